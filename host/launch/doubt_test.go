package launch_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"arbe.0sk.ar/runner/host/launch"
	"arbe.0sk.ar/runner/host/sandbox"
	"arbe.0sk.ar/runner/thread/client"
)

// answers is a provider whose box b1 was used by the thread's last run. It gives one answer after the other; the last
// one stays.
type answers struct {
	oneBox
	all    []answer
	listed bool
	calls  []string
}

type answer struct {
	health sandbox.Health
	err    error
}

func (p *answers) Probe(context.Context, string) (sandbox.Health, string, error) {
	a := p.all[0]
	if len(p.all) > 1 {
		p.all = p.all[1:]
	}
	return a.health, "its state", a.err
}

func (p *answers) List(context.Context, map[string]string) ([]sandbox.Box, error) {
	if !p.listed && p.all[0].health != sandbox.Live {
		return nil, nil
	}
	return []sandbox.Box{{
		Ref: sandbox.Ref{Provider: "cloud", ID: "b1"}, Health: sandbox.Live, State: "started",
		Labels: map[string]string{sandbox.LabelThread: "t1"},
	}}, nil
}

func (p *answers) Open(_ context.Context, id string) (sandbox.Sandbox, error) {
	p.calls = append(p.calls, "open "+id)
	return nil, errors.New("that is enough")
}

func (p *answers) Create(context.Context, sandbox.Options) (sandbox.Sandbox, error) {
	p.calls = append(p.calls, "create")
	return nil, errors.New("that is enough")
}

func (p *answers) Destroy(_ context.Context, id string) error {
	p.calls = append(p.calls, "destroy "+id)
	return nil
}

// ended is a thread server whose thread t1 has a run that has ended, in the box b1.
type ended struct{}

func (ended) RoundTrip(req *http.Request) (*http.Response, error) {
	status, body := http.StatusOK, `{"nextOffset":"9","appended":1,"duplicates":0}`
	h := http.Header{"Content-Type": {"application/json"}}
	switch {
	case req.Method == http.MethodPost:
	case req.URL.Path == "/healthz":
		body = `{"installation":"i"}`
	case strings.HasSuffix(req.URL.Path, "arbe-thread-t1"):
		h.Set("Stream-Next-Offset", "3")
		h.Set("Stream-Up-To-Date", "true")
		h.Set("Content-Type", "application/x-ndjson")
		body = ""
		for _, e := range [][2]string{
			{"r1.running", `"type":"signal.thread.status_changed","status":"running"`},
			{"r1.sandbox", `"type":"signal.dispatch.sandbox","sandbox":{"provider":"cloud","ref":"b1"}`},
			{"r1.end.0", `"type":"signal.thread.status_changed","status":"completed"`},
		} {
			const entry = `{"id":%q,"ts":"2026-01-01T00:00:00.000Z","payload":{%s,"runId":"r1","harness":"pi"}}` + "\n"
			body += fmt.Sprintf(entry, e[0], e[1])
		}
	default:
		status, body = http.StatusNotFound, `{"error":{"code":"not_found","message":"no such thread"}}`
	}
	return &http.Response{
		StatusCode: status, Header: h, Request: req, Body: io.NopCloser(strings.NewReader(body)),
	}, nil
}

// A launch that resumes gets another box only where the thread's own is gone by two answers and the list: the work in
// that one is not in another box.
func TestFormerBoxInDoubt(t *testing.T) {
	gone, live := answer{health: sandbox.Gone}, answer{health: sandbox.Live}
	for _, tt := range []struct {
		name   string
		all    []answer
		listed bool
		calls  string
		err    string
	}{
		{"live", []answer{live}, true, "open b1", "that is enough"},
		{"gone", []answer{gone}, false, "create", "that is enough"},
		{"gone once", []answer{gone, gone, live}, false, "open b1", "that is enough"},
		{"gone, and listed", []answer{gone}, true, "", "its state, and the provider's list has it as started"},
		{"no answer", []answer{{err: errors.New("no answer")}}, true, "", "open the sandbox cloud:b1: no answer"},
		{"no answer after the first", []answer{gone, gone, {err: errors.New("no answer")}}, false, "", "no answer"},
		{"of another host", []answer{{err: sandbox.ErrForeign}}, false, "create", "that is enough"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &answers{all: tt.all, listed: tt.listed}
				cl := func(id string) *client.Client {
					return &client.Client{
						Base: "http://threads.test/api/stream", Thread: id, Token: client.StaticToken("t"),
						HTTP: &http.Client{Transport: ended{}},
					}
				}
				l := launch.Launcher{Provider: p, Client: cl("t1"), Boxes: cl}
				task := launch.Task{Thread: "t1", Run: "r2", Prompt: "go on", Harness: "pi", Resume: true}
				_, err := l.Launch(t.Context(), task)
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Errorf("the launch returned %v", err)
				}
				if got := strings.Join(p.calls, ", "); got != tt.calls {
					t.Errorf("calls: %q, want %q", got, tt.calls)
				}
			})
		})
	}
}
