package provision

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"testing"

	"arbe.0sk.ar/runner/host/exec"
	"arbe.0sk.ar/runner/host/launch"
	"arbe.0sk.ar/runner/host/rows"
	"arbe.0sk.ar/runner/host/sandbox"
	"arbe.0sk.ar/runner/host/sandbox/local"
	"arbe.0sk.ar/runner/host/sandbox/providers"
	"arbe.0sk.ar/runner/thread/client"
)

// boxes is a provider without boxes.
type boxes struct {
	launch.Provider
	name string
	all  []sandbox.Box
}

func (b boxes) Name() string { return b.name }

func (b boxes) Traits() sandbox.Traits { return sandbox.Traits{Isolated: b.name != local.Name} }

func (boxes) Check(sandbox.Options) error { return nil }

func (b boxes) List(context.Context, map[string]string) ([]sandbox.Box, error) { return b.all, nil }

// host returns a host with a driven thread t of a house, whose environment binds a secret.
func host(provider string) *Host {
	e := rows.Environment{ID: "e", Recipe: rows.Recipe{
		Runtime: provider, Config: json.RawMessage(`{}`), Bindings: []rows.Binding{{Name: "KEY", Required: true}},
	}}
	all := &house{
		threads: map[string]rows.Thread{"t": {ID: "t", House: "h", Agent: "old"}},
		place:   rows.Place{Environment: e, Provider: provider},
	}
	return &Host{
		Client:    func(id string) (*client.Client, error) { return &client.Client{Thread: id}, nil },
		Provider:  func(_, name string) (Provider, error) { return boxes{name: name}, nil },
		StreamURL: func(string) (string, error) { return "http://127.0.0.1:1", nil },
		Log:       slog.New(slog.DiscardHandler),
		Runtimes:  Runtimes(providers.All()),
		Rows:      all.open,
		Secrets: func(context.Context, string) (map[string]string, error) {
			return map[string]string{"KEY": "secret", "OTHER": "secret, too"}, nil
		},
	}
}

func command(thread string) *exec.Request {
	return &exec.Request{Thread: thread, ID: "x", Argv: []string{"true"}, Env: map[string]string{"KEY": "typed"}}
}

// A command of a thread with a row gets the secrets of the environment; a variable that the caller names outranks one.
func TestCommand(t *testing.T) {
	h, r := host("daytona"), command("t")
	_, rowed, err := h.Command(t.Context(), &client.Client{}, r, "", nil)
	if err != nil || !rowed {
		t.Fatalf("rowed %v, %v", rowed, err)
	}
	if want := (map[string]string{"KEY": "typed", "OTHER": "secret, too"}); !maps.Equal(r.Env, want) {
		t.Errorf("got the variables %v", r.Env)
	}
	if !slices.Equal(r.Secrets, []string{"KEY", "OTHER"}) {
		t.Errorf("got the secrets %v", r.Secrets)
	}
}

// A secret that is missing ends the command on the thread, not before it is posted.
func TestMissingSecret(t *testing.T) {
	h, r := host("daytona"), command("t")
	h.Secrets = func(context.Context, string) (map[string]string, error) { return nil, rows.ErrMissing }
	x, rowed, err := h.Command(t.Context(), &client.Client{}, r, "", nil)
	if err != nil || !rowed || x.Box == nil || len(r.Secrets) != 0 {
		t.Errorf("rowed %v, %v, secrets %v", rowed, err, r.Secrets)
	}
}

// An environment without secrets needs no keys.
func TestNoSecrets(t *testing.T) {
	h, task := host("daytona"), launch.Task{}
	h.Secrets = func(context.Context, string) (map[string]string, error) { return nil, errors.New("no keys") }
	e := rows.Environment{ID: "e", Recipe: rows.Recipe{Runtime: "local", Config: json.RawMessage(`{}`)}}
	if err := h.Follow(&task, rows.Place{House: "h", Environment: e}); err != nil {
		t.Fatal(err)
	}
	if secrets, err := task.Secrets(t.Context()); err != nil || len(secrets) != 0 {
		t.Errorf("got %v, %v", secrets, err)
	}
}

// Which commands this host runs.
func TestCommandRefused(t *testing.T) {
	unset := errors.New("DAYTONA_API_KEY is not set")
	for _, tt := range []struct {
		name, provider, thread string
		local                  bool
		missing                bool // the provider is not configured
		rowed                  bool
		err                    error
	}{
		{name: "in a local box", provider: local.Name, thread: "t", err: ErrLocal},
		{name: "in a local box that is allowed", provider: local.Name, thread: "t", local: true, rowed: true},
		{name: "in a box elsewhere", provider: "daytona", thread: "t", rowed: true},
		{name: "without the provider", provider: "daytona", thread: "t", missing: true, err: unset},
		{name: "of a thread without a row", provider: local.Name, thread: "other"},
	} {
		h := host(tt.provider)
		h.LocalBoxes = tt.local
		if tt.missing {
			h.Provider = func(string, string) (Provider, error) { return nil, unset }
		}
		_, rowed, err := h.Command(t.Context(), &client.Client{}, command(tt.thread), "", nil)
		if !errors.Is(err, tt.err) || tt.err == nil && rowed != tt.rowed {
			t.Errorf("%s: rowed %v, %v", tt.name, rowed, err)
		}
		if unreachable := new(UnreachableError); errors.As(err, &unreachable) != tt.missing {
			t.Errorf("%s: %T", tt.name, err)
		}
	}
}

// The lease of a box with a row needs a database.
func TestLeaseOfRow(t *testing.T) {
	h := host("daytona")
	h.Rows = nil
	ref := sandbox.Ref{Provider: "daytona", ID: "b"}
	h.Provider = func(_, name string) (Provider, error) {
		labels := map[string]string{sandbox.LabelRow: "s1"}
		return boxes{name: name, all: []sandbox.Box{{Ref: ref, Labels: labels}}}, nil
	}
	_, err := h.lease(&client.Client{})(t.Context(), ref)
	if err == nil || err.Error() != NoRows(ref).Error() {
		t.Errorf("got %v", err)
	}
}
