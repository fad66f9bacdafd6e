// Package local makes boxes that are folders of this machine. What runs in one is kept apart from others by its folders
// alone: the package builds no wall.
package local

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"arbe.0sk.ar/runner/host/sandbox"
)

// Name is the provider's part of a Ref.
const Name = "local"

// folder is the folder of the boxes in the host's data.
const folder = "boxes"

// Kind returns the kind of local boxes.
func Kind() sandbox.Kind {
	return sandbox.Kind{
		Name: Name, Summary: "a folder of this machine",
		Traits: sandbox.Traits{SameMachine: true, Wakes: true, Survives: true},
		Open: func(on sandbox.Setting) (sandbox.Provider, error) {
			if runtime.GOOS != "linux" {
				return nil, fmt.Errorf("local boxes need Linux, and this is %s: use another provider", runtime.GOOS)
			}
			return New(filepath.Join(on.Data, folder)), nil
		},
	}
}

// Name implements sandbox.Provider.
func (p *Provider) Name() string { return Name }

// Traits implements sandbox.Provider.
func (p *Provider) Traits() sandbox.Traits { return Kind().Traits }

// Works implements sandbox.Provider: the version is that of the kernel.
func (p *Provider) Works(context.Context) (version string, err error) {
	release, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return "", fmt.Errorf("ask for the version of the kernel: %w", err)
	}
	return "Linux " + strings.TrimSpace(string(release)), nil
}
