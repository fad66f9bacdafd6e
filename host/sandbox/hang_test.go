package sandbox_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"arbe.0sk.ar/runner/host/sandbox"
	"arbe.0sk.ar/runner/host/sandbox/daytona"
)

// roundTrip is a transport in the test's process.
type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestHang is a provider that answers nothing, or that has no end: questions come back in time.
func TestHang(t *testing.T) {
	hang := func(r *http.Request) (*http.Response, error) {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	busy := func(*http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: 429, Header: http.Header{"Retry-After": {"30"}}, Body: http.NoBody}, nil
	}
	slow := func(r *http.Request) (*http.Response, error) {
		select {
		case <-time.After(9 * time.Second):
		case <-r.Context().Done():
			return nil, r.Context().Err()
		}
		body := `{"items":[],"nextCursor":"more"}`
		return &http.Response{StatusCode: 200, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body))}, nil
	}
	ask := map[string]func(context.Context, provider) error{
		"probe": func(ctx context.Context, p provider) error { _, _, err := p.Probe(ctx, "box"); return err },
		"list":  func(ctx context.Context, p provider) error { _, err := p.List(ctx, nil); return err },
	}
	for name, test := range map[string]struct {
		what      string
		transport roundTrip
		within    time.Duration
	}{
		"probe hangs":         {"probe", hang, 20 * time.Second},
		"list hangs":          {"list", hang, 20 * time.Second},
		"probe too often":     {"probe", busy, 20 * time.Second},
		"list too often":      {"list", busy, 20 * time.Second},
		"list without an end": {"list", slow, 2 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				conf := daytona.Config{Key: "k", URL: "http://daytona.test", Transport: test.transport}
				p, err := daytona.New(conf)
				if err != nil {
					t.Fatal(err)
				}
				began := time.Now()
				err = ask[test.what](t.Context(), p)
				if took := time.Since(began); err == nil || took > test.within {
					t.Errorf("it took %v, %v", took, err)
				}
			})
		})
	}
}

// TestAliveHangs: a box whose daemon hangs is not waited for longer than LookTimeout.
func TestAliveHangs(t *testing.T) {
	t.Parallel()
	h := daytonaHouse(t)
	b := h.create(t, sandbox.Options{})
	p, err := b.Detach(t.Context(), script("sleep 1000"), "log")
	if err != nil {
		t.Fatal(err)
	}
	base := transport(t)
	hangs := roundTrip(func(r *http.Request) (*http.Response, error) {
		if strings.HasSuffix(r.URL.Path, "/process/execute") {
			<-r.Context().Done()
			return nil, r.Context().Err()
		}
		return base.RoundTrip(r)
	})
	other, err := daytona.New(daytona.Config{
		Key: h.fake.Key, URL: h.fake.URL, Transport: hangs, LookTimeout: 50 * time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	again, err := other.Open(t.Context(), b.Ref().ID)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	if alive, err := again.(box).Alive(ctx, p); alive || err == nil || errors.Is(err, sandbox.ErrGone) ||
		ctx.Err() != nil {
		t.Errorf("alive %v, %v", alive, err)
	}
}

// TestDetachShortValues: a value of the environment that stands in the process's number or start hides neither.
func TestDetachShortValues(t *testing.T) {
	each(t, func(t *testing.T, h *house) {
		b := h.create(t, sandbox.Options{})
		c := script("sleep 1000")
		c.Env = map[string]string{}
		for _, digit := range strings.Split("0123456789", "") {
			c.Env["X"+digit] = digit
		}
		p, err := b.Detach(t.Context(), c, "log")
		if err != nil {
			t.Fatal(err)
		}
		if alive, err := b.Alive(t.Context(), p); !alive || err != nil {
			t.Errorf("alive %v, %v", alive, err)
		}
	})
}
