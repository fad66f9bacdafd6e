package daytona

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"arbe.0sk.ar/runner/host/sandbox"
	"arbe.0sk.ar/runner/host/sandbox/kit"
	"arbe.0sk.ar/runner/internal/pause"
)

// volumeTimeout bounds the wait for a volume that is being made.
const volumeTimeout = 2 * time.Minute

// volume is the control plane's record of a volume.
type volume struct {
	ID          string `json:"id"`
	Name        string `json:"name"`
	State       string `json:"state"`
	ErrorReason string `json:"errorReason"`
}

// mounts returns the volumes of a new box, each by its id. Daytona refuses those that are not ready.
func (p *Provider) mounts(ctx context.Context, volumes []sandbox.Volume) (all []mount, err error) {
	for _, v := range volumes {
		found, err := p.readyVolume(ctx, v.Name)
		if err != nil {
			return nil, err
		}
		all = append(all, mount{found.ID, v.Path})
	}
	return all, nil
}

// readyVolume returns the volume with a name or an id, and waits while it is being made.
func (p *Provider) readyVolume(ctx context.Context, name string) (volume, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, volumeTimeout, fmt.Errorf("not ready within %v", volumeTimeout))
	defer cancel()
	for wait := p.pace; ; wait = min(wait*5/4, 20*p.pace) {
		v, err := p.volume(ctx, "/volumes/by-name/", name)
		if answered(err, http.StatusNotFound) {
			v, err = p.volume(ctx, "/volumes/", name)
		}
		switch {
		case answered(err, http.StatusNotFound):
			return v, fmt.Errorf("there is no volume %s: make it at Daytona first (%w)", name, err)
		case err != nil:
			return v, err
		case v.State == "ready":
			return v, nil
		case v.State != "creating" && v.State != "pending_create":
			why := strings.TrimSpace(v.State + " " + kit.Clip(v.ErrorReason))
			return v, fmt.Errorf("daytona: the volume %s is %s", name, why)
		}
		if !pause.For(ctx, wait) {
			err := context.Cause(ctx)
			return v, fmt.Errorf("daytona: wait for the volume %s: %w; its state is %s", name, err, v.State)
		}
	}
}

// volume requests one volume. An answer about another one is an error.
func (p *Provider) volume(ctx context.Context, route, name string) (v volume, err error) {
	doing := "look at the volume " + name
	err = p.do(ctx, request{
		doing: doing, method: http.MethodGet, url: p.conf.URL + route + url.PathEscape(name), into: &v,
	})
	if err == nil && (v.ID != name && v.Name != name || v.ID == "") {
		err = fmt.Errorf("daytona: %s: the answer is about another volume", doing)
	}
	return v, err
}
