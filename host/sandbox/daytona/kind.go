// Package daytona makes boxes at Daytona, over version 0 of its API: by its control plane, and through its proxy by the
// daemon in each box.
package daytona

import (
	"context"
	"net/http"

	"arbe.0sk.ar/runner/host/sandbox"
)

// Name is the provider's part of a Ref.
const Name = "daytona"

// Variables of the host's environment.
const (
	variableKey      = "DAYTONA_API_KEY"
	variableURL      = "DAYTONA_API_URL"
	variableTarget   = "DAYTONA_TARGET"
	variableSnapshot = "DAYTONA_SNAPSHOT"
	variableGitHub   = "GITHUB_SERVER_URL"
)

// Kind returns the kind of boxes at Daytona.
func Kind() sandbox.Kind {
	return sandbox.Kind{
		Name: Name, Summary: "a sandbox at Daytona",
		Traits: sandbox.Traits{Isolated: true, IdleTimer: true, Wakes: true, Survives: true, Relabels: true},
		Takes: []sandbox.Option{
			sandbox.OptionImage, sandbox.OptionSnapshot, sandbox.OptionResources, sandbox.OptionTarget,
			sandbox.OptionVolumes,
		},
		ByImage: true,
		Needs: []sandbox.Variable{
			{Name: variableKey, Meaning: "key of the API", Required: true, Secret: true},
			{Name: variableURL, Meaning: "address of the API (default: " + DefaultURL + ")"},
			{Name: variableTarget, Meaning: "region of new boxes (default: the account's)"},
			{Name: variableSnapshot, Meaning: "snapshot of new boxes (default: " + Medium + ", or the account's)"},
		},
		Open: func(on sandbox.Setting) (sandbox.Provider, error) {
			return New(Config{
				Key: on.Getenv(variableKey), URL: on.Getenv(variableURL), Target: on.Getenv(variableTarget),
				Snapshot: on.Getenv(variableSnapshot), GitHub: on.Getenv(variableGitHub),
			})
		},
	}
}

// Name implements sandbox.Provider.
func (p *Provider) Name() string { return Name }

// Traits implements sandbox.Provider.
func (p *Provider) Traits() sandbox.Traits { return Kind().Traits }

// Works implements sandbox.Provider: a list that is allowed shows that the key is good.
func (p *Provider) Works(ctx context.Context) (version string, err error) {
	var page struct{}
	q := request{
		doing: "list the boxes", method: http.MethodGet, url: p.conf.URL + "/sandbox?limit=1", into: &page,
	}
	err = p.bounded(ctx, func(ctx context.Context) error { return p.do(ctx, q) })
	return "API v0", err
}
