// Package debian finds programs of Debian's that tests run and that are not installed: a Docker engine, rpm, busybox.
// "make debian" unpacks their packages into the cache folder.
package debian

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"arbe.0sk.ar/runner/internal/test/agents"
)

// Root is the folder that the packages are unpacked into, laid out as the root of a machine is.
type Root string

// folders are those of a Root that have programs.
var folders = []string{"usr/sbin", "usr/bin"}

// Find returns the folder, which has the named program. Where nothing is unpacked, the error names the way to get it.
func Find(program string) (Root, error) {
	cache, err := agents.Cache()
	if err != nil {
		return "", err
	}
	root := Root(filepath.Join(cache, "debian-1", "root"))
	_, err = os.Stat(root.Program(program))
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%s of Debian's is not unpacked (make debian): %w", program, err)
	}
	return root, err
}

// Program returns the path of a program.
func (r Root) Program(name string) string {
	for _, folder := range folders {
		path := filepath.Join(string(r), folder, name)
		if _, err := os.Stat(path); err == nil {
			return path
		}
	}
	return filepath.Join(string(r), folders[0], name)
}

// Env returns the environment of a program that starts others of the same folder.
func (r Root) Env() []string {
	path := os.Getenv("PATH")
	for _, folder := range folders {
		path = filepath.Join(string(r), folder) + string(filepath.ListSeparator) + path
	}
	return append(os.Environ(), "PATH="+path)
}
