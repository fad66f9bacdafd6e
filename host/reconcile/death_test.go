package reconcile_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"arbe.0sk.ar/runner/host/sandbox"
	"arbe.0sk.ar/runner/thread"
	"arbe.0sk.ar/runner/thread/client"
)

// A run is given up on evidence only, and once.
func TestSettle(t *testing.T) {
	for _, tt := range []struct {
		name    string
		entries []string
		ahead   time.Duration
		set     func(*world)
		did     string // what was done
		status  string
		open    bool
		fails   bool
	}{
		{"no runs", []string{`c1 {"type":"chat","text":"hi"}`}, time.Hour, nil, "", "idle", false, false},
		{"a live box", []string{running, inBox("b1", true, "")}, 20 * time.Minute, nil, "", "running", true, false},
		{"gone", []string{running, inBox("b1", true, "")}, 3 * time.Minute, gone, "orphaned box_gone", "failed", false, false},
		{"gone, and heard of a moment ago", []string{running, inBox("b1", true, "")}, 90 * time.Second, gone, "", "running", true, false},
		{"gone, and the list has it", []string{running, inBox("b1", true, "")}, 3 * time.Minute, func(w *world) {
			gone(w)
			w.labels["b1"] = w.label("t1", "true")
		}, "", "running", true, true},
		{"gone once, and there again", []string{running, inBox("b1", true, "")}, 3 * time.Minute, func(w *world) {
			gone(w)
			w.asked = func(string) {
				if w.probes.Load() == 2 {
					w.health["b1"] = sandbox.Live
				}
			}
		}, "", "running", true, false},
		{"its process is gone", []string{running, inBox("b1", true, ""), startedEntry}, 35 * time.Second, nil, "orphaned runner_lost: process 7", "failed", false, false},
		{"its process is gone, and heard of a moment ago", []string{running, inBox("b1", true, ""), startedEntry}, 5 * time.Second, nil, "", "running", true, false},
		{"silent, and its process is alive", []string{running, inBox("b1", true, ""), startedEntry}, time.Hour, func(w *world) { w.runs["b1"] = true }, "", "running", true, false},
		{
			"it waits, and heard of within its interval",
			[]string{running, inBox("b1", true, ""), startedEntry, waitingEntry},
			45 * time.Second, nil, "", "running", true, false,
		},
		{
			"it waits, and its process is gone",
			[]string{running, inBox("b1", true, ""), startedEntry, waitingEntry},
			95 * time.Second, nil, "orphaned runner_lost: process 7", "failed", false, false,
		},
		{"nobody knows of the box", []string{running, inBox("b1", true, "")}, 29 * time.Minute, func(w *world) { w.health["b1"] = sandbox.Unknown }, "", "running", true, false},
		{"the provider is down", []string{running, inBox("b1", true, "")}, 29 * time.Minute, func(w *world) { w.broken = errors.New("no answer") }, "", "running", true, true},
		{"the provider is down, and it is silent", []string{running, inBox("b1", true, "")}, 2 * time.Hour, func(w *world) { w.broken = errors.New("no answer") }, "orphaned silent", "failed", true, true},
		{"silent without a box", []string{running}, time.Hour, nil, "orphaned silent", "failed", false, false},
		{"not silent for long", []string{running}, 29 * time.Minute, nil, "", "running", true, false},
		{"somebody else's box", []string{running, strings.Replace(inBox("b1", true, ""), `"boxes"`, `"others"`, 1)}, 29 * time.Minute, gone, "", "running", true, false},
		{"ended well", []string{running, inBox("b1", false, ""), answer, completed}, time.Hour, gone, "", "completed", false, false},
		{"runs without an id", []string{
			`s1 {"type":"signal.thread.status_changed","status":"running"}`, `s2 {"type":"signal.thread.status_changed","status":"failed"}`,
			`s3 {"type":"signal.thread.status_changed","status":"running"}`,
		}, time.Hour, nil, "orphaned silent", "failed", false, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.health["b1"] = sandbox.Live
			if tt.set != nil {
				tt.set(w)
			}
			w.post("t1", tt.entries...)
			w.ahead.Store(int64(tt.ahead))
			s, err := w.reconciler().Thread(t.Context(), "t1")
			if (err != nil) != tt.fails {
				t.Fatalf("got %v", err)
			}
			did := ""
			for _, d := range s.Actions {
				did += d.Did + " " + d.Why
			}
			if !strings.HasPrefix(did, tt.did) || tt.did == "" && did != "" || s.Status != tt.status ||
				s.Open != tt.open {
				t.Errorf("got %+v", s)
			}
			// Again, by another one: nothing more.
			before := w.entries("t1")
			if again, err := w.reconciler().Thread(t.Context(), "t1"); len(again.Actions) > 0 ||
				(err != nil) != tt.fails {
				t.Errorf("again it did %+v, %v", again.Actions, err)
			}
			if after := w.entries("t1"); len(after) != len(before) {
				t.Errorf("the thread grew by %v", after[len(before):])
			}
		})
	}
}

// The reply of a bot is no sign of the life of a run on its thread.
func TestBotIsNoLife(t *testing.T) {
	w := newWorld(t)
	w.health["b1"] = sandbox.Live
	w.post("t1", running, inBox("b1", true, ""), startedEntry)
	last := w.stored("t1", "r1.started").At
	for n := 0; ; n++ {
		id := fmt.Sprint("x_1.", n)
		w.post("t1", id+` {"type":"pi.assistant","reaction":{"id":"x_1","round":0,"depth":0}}`)
		if w.stored("t1", id).At > last { // it came in a later millisecond
			break
		}
	}
	w.ahead.Store(int64(35 * time.Second))
	if s, err := w.reconciler().Thread(t.Context(), "t1"); err != nil || s.Status != "failed" {
		t.Fatalf("%+v, %v", s, err)
	}
	var p thread.Orphaned
	if err := json.Unmarshal(w.stored("t1", "r1.orphan.0").Payload, &p); err != nil || p.LastEntryAt != last {
		t.Errorf("its last entry came at %s, want %s, %v", p.LastEntryAt, last, err)
	}
}

// An attached run ends on the evidence that a pass ends it on, and its box and the rest of the thread stay as they are.
func TestEnd(t *testing.T) {
	for _, tt := range []struct {
		name   string
		ahead  time.Duration
		set    func(*world)
		reason string // "" where it stays open
		end    string
	}{
		{"its process is gone", 35 * time.Second, nil, "runner_lost", ""},
		{"its process is gone since a moment", 20 * time.Second, nil, "", ""},
		{"its box is gone", 3 * time.Minute, func(w *world) { gone(w); delete(w.labels, "b1") }, "box_gone", ""},
		{"it lives", time.Hour, func(w *world) { w.runs["b1"] = true }, "", ""},
		{"another host's box", 29 * time.Minute, func(w *world) { w.broken = sandbox.ErrForeign }, "", ""},
		{"another host's box, for long", time.Hour, func(w *world) { w.broken = sandbox.ErrForeign }, "silent", ""},
		{"it has ended", time.Hour, nil, "", completed},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.health["b1"] = sandbox.Live
			w.labels["b1"] = w.label("t1", "true")
			if tt.set != nil {
				tt.set(w)
			}
			w.post("t1", running, inBox("b1", true, ""), startedEntry)
			if tt.end != "" {
				w.post("t1", tt.end)
			}
			w.ahead.Store(int64(tt.ahead))
			before := w.entries("t1")
			if err := w.reconciler().End(t.Context(), "t1", "r1"); err != nil {
				t.Fatal(err)
			}
			added := w.entries("t1")[len(before):]
			if (tt.reason != "") != (len(added) == 2) || tt.reason != "" && !strings.Contains(added[0], tt.reason) ||
				len(w.boxes.gone) > 0 {
				t.Errorf("it posted %q, deleted %v", added, w.boxes.gone)
			}
		})
	}
}

// A run that was launched into a box and never began is a launch that has failed; one that has begun is lost.
func TestNeverBegan(t *testing.T) {
	for _, tt := range []struct {
		name    string
		entries []string
		want    string
	}{
		{"not begun", []string{running, inBox("b1", true, "")}, `"type":"signal.thread.pi_failed","runId":"r1",` +
			`"harness":"pi","errorClass":"launch","message":"the runner did not begin the run: no entry for `},
		{"begun", []string{running, inBox("b1", true, ""), startedEntry}, `"type":"signal.thread.pi_session_orphaned"`},
		{"without a box", []string{running}, `"type":"signal.thread.pi_session_orphaned"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.health["b1"] = sandbox.Live
			w.post("t1", tt.entries...)
			w.ahead.Store(int64(time.Hour))
			if _, err := w.reconciler().Thread(t.Context(), "t1"); err != nil {
				t.Fatal(err)
			}
			all := w.entries("t1")
			if len(all) < len(tt.entries)+2 || !strings.Contains(all[len(tt.entries)], tt.want) ||
				!strings.Contains(all[len(tt.entries)], "r1.orphan.0") {
				t.Errorf("the thread has\n%s", strings.Join(all, "\n"))
			}
		})
	}
}

// A run whose runner lives on in its box without ever reaching the server gets a provisional end, with the runner's
// log. Its box stays, and its own end replaces that one.
func TestRunnerWithoutWay(t *testing.T) {
	const log = `level=WARN msg="no answer from the thread server; retrying" thread=t1 run=r1 url=http://x
panic: of nobody's
level=INFO msg="agent started" thread=t2 run=r12
level=INFO msg="agent started" thread=t1 run=r1
`
	for _, tt := range []struct {
		name   string
		unread error
		tail   string
	}{
		{"its log", nil, `"stderrTail":"level=WARN msg=\"no answer from the thread server; retrying\" thread=t1 run=r1 ` +
			`url=http://x\npanic: of nobody's\nlevel=INFO msg=\"agent started\" thread=t1 run=r1"`},
		{"without its log", errors.New("no answer"), ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.health["b1"], w.runs["b1"], w.labels["b1"] = sandbox.Live, true, w.label("t1", "true")
			w.says, w.unread = log, tt.unread
			w.post("t1", running, inBox("b1", true, ""))
			settle := func(ahead time.Duration, status string, actions int) {
				t.Helper()
				w.ahead.Store(int64(ahead))
				s, err := w.reconciler().Thread(t.Context(), "t1")
				if err != nil || s.Status != status || len(s.Actions) != actions || len(w.gone) > 0 {
					t.Errorf("after %v: %+v, %v, deleted %v", ahead, s, err, w.gone)
				}
			}
			settle(4*time.Minute, "running", 0)
			settle(6*time.Minute, "failed", 1)
			settle(100*time.Hour, "failed", 0)
			all := w.entries("t1")
			if !strings.Contains(all[2], `r1.orphan.0 {"type":"signal.thread.pi_failed"`) ||
				!strings.Contains(all[2], `"errorClass":"launch"`) || !strings.Contains(all[2], tt.tail) ||
				!strings.Contains(all[2], "did not begin the run: it is running in boxes:b1, and has posted nothing") {
				t.Errorf("the thread has\n%s", strings.Join(all, "\n"))
			}
			w.runs["b1"] = false
			w.post("t1", startedEntry, answer, completed)
			w.ahead.Store(int64(100*time.Hour + time.Minute))
			if s, err := w.reconciler().Thread(t.Context(), "t1"); err != nil || s.Status != "completed" {
				t.Errorf("with its own end: %+v, %v", s, err)
			}
		})
	}
}

// An outage of the server is no silence of the runs: it counts from when the log could be written again.
func TestOutageOrphansNoRun(t *testing.T) {
	w := newWorld(t)
	w.health["b1"] = sandbox.Unknown
	w.post("t1", running, inBox("b1", true, ""))
	cl, _ := w.client("t1")
	down := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/healthz" {
			since := time.Now().Add(time.Duration(w.ahead.Load()) - time.Second).UTC().Format(time.RFC3339Nano)
			fmt.Fprintf(rw, `{"installation":%q,"writableSince":%q}`, w.own, since)
			return
		}
		r.URL.Host, r.URL.Scheme, r.RequestURI = strings.TrimPrefix(w.url, "http://"), "http", ""
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Error(err)
			return
		}
		defer resp.Body.Close()
		for k, v := range resp.Header {
			rw.Header()[k] = v
		}
		rw.WriteHeader(resp.StatusCode)
		_, _ = io.Copy(rw, resp.Body)
	}))
	defer down.Close()
	w.ahead.Store(int64(5 * time.Hour))
	r := w.reconciler()
	r.Client = func(id string) (*client.Client, error) {
		c, err := w.client(id)
		c.Base = thread.BaseURL(down.URL)
		return c, err
	}
	s, err := r.Thread(t.Context(), cl.Thread)
	if err != nil || s.Status != "running" || !s.Open || len(s.Actions) > 0 {
		t.Errorf("got %+v, %v", s, err)
	}
}

// What the host posts is provisional, and an end that comes while the provider is asked is the end.
func TestLateRunner(t *testing.T) {
	w := newWorld(t)
	w.health["b1"] = sandbox.Gone
	w.post("t1", running, inBox("b1", true, ""))
	w.post("t2", running, inBox("b2", true, ""))
	w.ahead.Store(int64(3 * time.Minute))
	if s, err := w.reconciler().Thread(t.Context(), "t1"); err != nil || s.Status != "failed" {
		t.Fatalf("got %+v, %v", s, err)
	}
	w.post("t1", completed)
	if s, err := w.reconciler().Thread(t.Context(), "t1"); err != nil || s.Status != "completed" || len(s.Actions) > 0 {
		t.Errorf("got %+v, %v", s, err)
	}

	w.health["b2"] = sandbox.Gone
	w.asked = func(id string) {
		if id == "b2" {
			w.post("t2", completed)
		}
	}
	if s, err := w.reconciler().Thread(t.Context(), "t2"); err != nil || s.Status != "completed" || len(s.Actions) > 0 {
		t.Errorf("got %+v, %v", s, err)
	}
	for _, e := range w.entries("t2") {
		if strings.HasPrefix(e, "r1.orphan") {
			t.Errorf("a run that has ended was given up: %s", e)
		}
	}
}
