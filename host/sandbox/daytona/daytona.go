package daytona

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"arbe.0sk.ar/runner/host/sandbox"
	"arbe.0sk.ar/runner/host/sandbox/kit"
	"arbe.0sk.ar/runner/internal/pause"
)

// DefaultURL is Daytona's own control plane, version 0.
const DefaultURL = "https://app.daytona.io/api"

// Config is the configuration of a Daytona provider.
type Config struct {
	Key       string            // of the API
	URL       string            // of the control plane; "" for DefaultURL
	Target    string            // the region if Options name none; "" for the account's
	Snapshot  string            // the image if Options name none; "" for Medium where Daytona has it, else its default
	GitHub    string            // address that org/repo is appended to; "" for GitHub
	Pace      time.Duration     // first wait between two tries, or two polls; the next are longer. 0: 100 ms
	Transport http.RoundTripper // nil for http.DefaultTransport

	// LookTimeout bounds each query of a box (Probe, Alive) and each page of List, retries included. 0: 20 s
	LookTimeout time.Duration
}

// Provider is the provider whose boxes are Daytona's, over version 0 of its API. Its methods may be used concurrently.
type Provider struct {
	*client
	conf Config

	noMedium atomic.Bool // this Daytona has no snapshot Medium
}

// Medium is Daytona's snapshot with 2 cores, 4 GiB of memory and 8 GiB of disk. Without a snapshot a box has 1 core and
// 1 GiB, which is little for an agent and what it builds.
const Medium = "daytona-medium"

// New returns the provider whose boxes are Daytona's.
func New(c Config) (*Provider, error) {
	if c.Key == "" {
		//lint:ignore ST1005 it begins with a name
		return nil, errors.New("Daytona API key required (set DAYTONA_API_KEY)")
	}
	c.URL = strings.TrimRight(cmp.Or(c.URL, DefaultURL), "/")
	c.GitHub = sandbox.ServerOf(c.GitHub)
	c.Pace = cmp.Or(c.Pace, 100*time.Millisecond)
	c.LookTimeout = cmp.Or(c.LookTimeout, 20*time.Second)
	return &Provider{client: newClient(c), conf: c}, nil
}

// info is the control plane's record of a box.
type info struct {
	ID          string            `json:"id"`
	Name        string            `json:"name"`
	State       string            `json:"state"`
	ErrorReason string            `json:"errorReason"`
	Recoverable bool              `json:"recoverable"` // from the error
	Labels      map[string]string `json:"labels"`
	Created     time.Time         `json:"createdAt"`
	Toolbox     string            `json:"toolboxProxyUrl"`
	AutoStop    *int              `json:"autoStopInterval"` // minutes; 0: never
}

// why returns the box's state, and its reason if known.
func (i info) why() string {
	if i.ErrorReason != "" {
		return i.State + ": " + kit.Clip(i.ErrorReason)
	}
	return i.State
}

// gone reports whether the box is in a state that no box recovers from. A box in error, or whose build failed, still
// has to be deleted.
func (i info) gone() bool {
	return i.going() || i.State == "error" && !i.Recoverable || i.State == "build_failed"
}

// going reports whether the box was deleted. Destroying may take an hour. The state removing is not Daytona's own.
func (i info) going() bool {
	return slices.Contains([]string{"destroyed", "destroying", "removing"}, i.State)
}

// box returns the box as List returns it.
func (i info) box() sandbox.Box {
	return sandbox.Box{
		Ref: sandbox.Ref{Provider: Name, ID: i.ID}, State: i.State, Health: i.health(), Going: i.going(),
		Labels: i.Labels, Created: i.Created,
	}
}

// health returns the state of the box.
func (i info) health() sandbox.Health {
	switch {
	case i.gone():
		return sandbox.Gone
	case i.State == "started":
		return sandbox.Live
	case i.State == "paused":
		return sandbox.Frozen
	}
	return sandbox.Asleep
}

// asleep reports whether the box exists without running.
func (i info) asleep() bool {
	return slices.Contains([]string{"stopped", "archived", "archiving", "error"}, i.State) && !i.gone()
}

// waking returns the call that makes the box run; "" where it runs, or has to come to an end of what it does first.
func (i info) waking() string {
	switch i.State {
	case "stopped", "archived", "paused":
		return "start"
	case "error":
		return "recover"
	}
	return ""
}

// boxID matches ids and names. Anything else could change the meaning of an address: an empty id lists all boxes.
var boxID = regexp.MustCompile(`\A[A-Za-z0-9_-]{1,128}\z`)

func (p *Provider) boxURL(id string) string { return p.conf.URL + "/sandbox/" + id }

// get returns the box with the id, or the name. An answer about another box, or about none, is an error.
func (p *Provider) get(ctx context.Context, id string) (i info, err error) {
	if !boxID.MatchString(id) {
		return i, fmt.Errorf("daytona: %q is not the id of a box", id)
	}
	doing := "look at the box " + id
	if err := p.do(ctx, request{doing: doing, method: http.MethodGet, url: p.boxURL(id), into: &i}); err != nil {
		return info{}, err
	}
	switch {
	case i.ID != id && i.Name != id || !boxID.MatchString(i.ID):
		return info{}, fmt.Errorf("daytona: %s: the answer is about another box", doing)
	case i.State == "":
		return info{}, fmt.Errorf("daytona: %s: the answer names no state", doing)
	}
	return i, nil
}

// look is get with a time limit, LookTimeout.
func (p *Provider) look(ctx context.Context, id string) (i info, err error) {
	err = p.bounded(ctx, func(ctx context.Context) error {
		i, err = p.get(ctx, id)
		return err
	})
	return i, err
}

// bounded calls ask with a context that ends after LookTimeout.
func (p *Provider) bounded(ctx context.Context, ask func(context.Context) error) error {
	short, cancel := context.WithTimeout(ctx, p.conf.LookTimeout)
	defer cancel()
	err := ask(short)
	if err != nil && short.Err() != nil && ctx.Err() == nil {
		return fmt.Errorf("no answer within %v: %w", p.conf.LookTimeout, err)
	}
	return err
}

func (p *Provider) Probe(ctx context.Context, id string) (sandbox.Health, string, error) {
	i, err := p.look(ctx, id)
	switch {
	case notFound(err, id):
		return sandbox.Gone, "not found", nil
	case err != nil:
		return sandbox.Unknown, "", err
	}
	return i.health(), i.why(), nil
}

// Open returns the box with the id, started; ErrGone if there is no such box. A box that is stopped, archived or paused
// is started, and one in an error that Daytona can repair is recovered: both have their files.
func (p *Provider) Open(ctx context.Context, id string) (sandbox.Sandbox, error) {
	i, err := p.get(ctx, id)
	if notFound(err, id) || err == nil && i.gone() {
		return nil, fmt.Errorf("open the box %s: %w", id, sandbox.ErrGone)
	}
	if err != nil {
		return nil, err
	}
	if i, err = p.started(ctx, i, p.wake); err != nil {
		return nil, err
	}
	return p.box(ctx, i)
}

// wake makes a box run that does not. done is false where it has to be called again if the state stays.
func (p *Provider) wake(ctx context.Context, i info) (done bool, err error) {
	call := i.waking()
	if call == "" {
		return true, nil
	}
	doing := call + " the box " + i.ID
	err = p.do(ctx, request{doing: doing, method: http.MethodPost, url: p.boxURL(i.ID) + "/" + call})
	if answered(err, http.StatusConflict) {
		return false, nil // another request changes its state
	}
	return true, err
}

// startTimeout bounds the start of a box. A box whose image has to be fetched takes minutes.
const startTimeout = 10 * time.Minute

// started waits until a box is started. It calls wake, if that is not nil, for each state that the box comes to.
func (p *Provider) started(
	ctx context.Context, i info, wake func(context.Context, info) (done bool, err error),
) (info, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout, fmt.Errorf("not started within %v", startTimeout))
	defer cancel()
	woken := ""
	for wait := p.pace; i.State != "started"; wait = min(wait*5/4, 20*p.pace) {
		if i.gone() || i.State == "error" && (wake == nil || woken == "error") {
			return i, fmt.Errorf("daytona: start the box %s: %s", i.ID, i.why())
		}
		if wake != nil && i.State != woken {
			done, err := wake(ctx, i)
			if err != nil {
				return i, err
			}
			if done {
				woken = i.State
			}
		}
		if !pause.For(ctx, wait) {
			return i, fmt.Errorf("daytona: start the box %s: %w; its state is %s", i.ID, context.Cause(ctx), i.State)
		}
		next, err := p.get(ctx, i.ID)
		if err != nil {
			return i, err
		}
		i = next
	}
	return i, nil
}

// Bounds of List.
const (
	pages       = 1000
	listTimeout = 2 * time.Minute
)

func (p *Provider) List(ctx context.Context, labels map[string]string) ([]sandbox.Box, error) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	query := url.Values{"limit": {"200"}}
	if len(labels) > 0 {
		filter, err := json.Marshal(labels)
		if err != nil {
			return nil, err
		}
		query.Set("labels", string(filter))
	}
	var boxes []sandbox.Box
	seen := map[string]bool{}
	for range pages {
		var page struct {
			Items []info `json:"items"`
			Next  string `json:"nextCursor"`
		}
		address := p.conf.URL + "/sandbox?" + query.Encode()
		q := request{doing: "list the boxes", method: http.MethodGet, url: address, into: &page}
		if err := p.bounded(ctx, func(ctx context.Context) error { return p.do(ctx, q) }); err != nil {
			return nil, err
		}
		for _, i := range page.Items {
			// The list may be out of date, and pages overlap if it changes meanwhile.
			if i.State != "destroyed" && sandbox.Matches(i.Labels, labels) && !seen[i.ID] {
				seen[i.ID] = true
				boxes = append(boxes, i.box())
			}
		}
		if page.Next == "" {
			return boxes, nil
		}
		query.Set("cursor", page.Next)
	}
	return nil, fmt.Errorf("daytona: list the boxes: no end after %d pages", pages)
}

// destroyTimeout bounds the tries to delete a box that is busy. A box that starts, for one, can't be deleted.
const destroyTimeout = 2 * time.Minute

// Destroy deletes a box. It returns nil if Daytona answers that the box is being deleted, which takes a while, or does
// not exist. No other answer counts, even one with status 200.
func (p *Provider) Destroy(ctx context.Context, id string) error {
	if !boxID.MatchString(id) {
		return fmt.Errorf("daytona: %q is not the id of a box", id)
	}
	ctx, cancel := context.WithTimeout(ctx, destroyTimeout)
	defer cancel()
	doing := "delete the box " + id
	for wait := p.pace; ; wait = min(wait*5/4, 20*p.pace) {
		var deleted info
		err := p.do(ctx, request{doing: doing, method: http.MethodDelete, url: p.boxURL(id), into: &deleted})
		switch {
		case err == nil && deleted.ID == id && deleted.State != "", notFound(err, id):
			return nil
		case err == nil:
			err = fmt.Errorf("daytona: %s: the answer is about another box", doing)
		}
		// It may be busy because it is being deleted, or be deleted although the answer was lost.
		i, lerr := p.get(ctx, id)
		if notFound(lerr, id) || lerr == nil && i.going() {
			return nil
		}
		if !answered(err, http.StatusConflict, http.StatusBadRequest) {
			return err
		}
		if !pause.For(ctx, wait) {
			return errors.Join(err, context.Cause(ctx))
		}
	}
}
