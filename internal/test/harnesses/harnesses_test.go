// Package harnesses_test shows that a harness is data: one that is invented here is posted, listed, watched, exported
// and reconciled like those that are built in.
package harnesses_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"arbe.0sk.ar/runner/harness"
	"arbe.0sk.ar/runner/harness/catalog"
	"arbe.0sk.ar/runner/host/access"
	"arbe.0sk.ar/runner/host/index"
	"arbe.0sk.ar/runner/host/log"
	"arbe.0sk.ar/runner/host/log/pebble"
	"arbe.0sk.ar/runner/host/page"
	"arbe.0sk.ar/runner/host/reconcile"
	"arbe.0sk.ar/runner/host/server"
	"arbe.0sk.ar/runner/host/token"
	"arbe.0sk.ar/runner/host/view"
	"arbe.0sk.ar/runner/hydrate"
	"arbe.0sk.ar/runner/mirror"
	"arbe.0sk.ar/runner/session"
	"arbe.0sk.ar/runner/thread"
	"arbe.0sk.ar/runner/thread/client"
	"arbe.0sk.ar/runner/thread/redact"
)

// abacus is the invented harness. Its prefix is not its name.
var abacus = session.Dialect{Harness: "abacus-cli", Prefix: "abacus", Decode: decode, Outline: decode, Turn: turn}

// content is its session: a header, a prompt and an answer.
const content = `{"who":"head","id":"a1","dir":"/w"}
{"who":"user","text":"what is two and three?"}
{"who":"agent","text":"it is exactly five"}
`

type line struct {
	Who  string `json:"who"`
	ID   string `json:"id,omitempty"`
	Dir  string `json:"dir,omitempty"`
	Text string `json:"text,omitempty"`
}

func decode(raw []byte) session.Entry {
	var l line
	if json.Unmarshal(raw, &l) != nil {
		return session.Entry{Kind: session.Text, Type: "text"}
	}
	e := session.Entry{Type: l.Who, Known: true, Text: l.Text}
	said := map[string]any{"role": l.Who, "content": []map[string]string{{"type": "text", "text": l.Text}}}
	switch l.Who {
	case "head":
		e.Kind, e.ID, e.SessionID, e.Cwd = session.Header, l.ID, l.ID, l.Dir
	case "user":
		e.Kind, e.Mark, e.Message = session.User, session.Prompt, thread.Marshal(said)
	case "agent":
		said["role"] = "assistant"
		e.Kind, e.Mark, e.StopReason, e.Message = session.Assistant, session.End, "stop", thread.Marshal(said)
	}
	return e
}

func turn(t session.Turn, _ session.Place) (lines [][]byte, omitted string) {
	who := map[session.Kind]string{session.User: "user", session.Assistant: "agent"}[t.Kind]
	return [][]byte{thread.Marshal(line{Who: who, Text: *t.Text})}, ""
}

// world is a thread server whose list has the harnesses.
type world struct {
	t    *testing.T
	key  []byte
	url  string
	list session.List
}

func newWorld(t *testing.T, list session.List) *world {
	quiet := slog.New(slog.DiscardHandler)
	e, err := pebble.Open(t.TempDir(), quiet)
	if err != nil {
		t.Fatal(err)
	}
	streams := log.New(e)
	threads, err := index.Open(t.TempDir(), "", streams, quiet)
	if err != nil {
		t.Fatal(err)
	}
	streams.Changed = threads.Changed
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- threads.Run(ctx) }()
	w := &world{t: t, key: bytes.Repeat([]byte("k"), token.MinSecret), list: list}
	srv := httptest.NewServer((&server.Server{
		Log: streams, Secrets: [][]byte{w.key}, LongPoll: time.Second, Closing: ctx, Logger: quiet, Index: threads,
		Harnesses: list,
		Page: page.Handler(page.Config{
			Log: streams, Threads: threads, Secrets: [][]byte{w.key}, Local: true, Closing: ctx, Logger: quiet,
			Harnesses: list, Session: w.session,
		}),
	}).Handler())
	t.Cleanup(func() {
		cancel()
		srv.Close()
		if err := errors.Join(<-ended, threads.Close(), streams.Close()); err != nil {
			t.Error(err)
		}
	})
	w.url = srv.URL
	return w
}

// session writes a thread's session, as arbe serve does.
func (w *world) session(to io.Writer, harness string, entries iter.Seq2[thread.Entry, error]) error {
	d, known := w.list.Named(harness)
	if !known {
		return page.ErrNoSession
	}
	r := &hydrate.Rebuilder{Dialect: d, Harnesses: w.list, TempDir: w.t.TempDir(), DefaultCwd: "/"}
	for e, err := range entries {
		if err == nil {
			err = r.Add(hydrate.Parse(e, d))
		}
		if err != nil {
			return errors.Join(err, r.Close())
		}
	}
	_, err := r.Copy(to, "new", time.Now())
	return errors.Join(err, r.Close())
}

func (w *world) client(id string) (*client.Client, error) {
	mint := func() (string, error) {
		return token.Sign(w.key, token.Grant{
			Stream: thread.StreamName(id), Scope: []string{token.ScopeWrite}, Until: time.Now().Add(time.Hour),
		})
	}
	return &client.Client{Base: thread.BaseURL(w.url), Thread: id, Token: mint}, nil
}

// post posts entries, each "id payload".
func (w *world) post(id string, entries ...string) {
	w.t.Helper()
	cl, _ := w.client(id)
	for _, e := range entries {
		name, payload, _ := strings.Cut(e, " ")
		entry := thread.Entry{ID: name, TS: thread.Stamp(time.Now()), Payload: []byte(payload)}
		if _, err := cl.Append(w.t.Context(), []thread.Entry{entry}); err != nil {
			w.t.Fatal(err)
		}
	}
}

// prompt is the prompt of the run, which the session has on record.
const prompt = `r1.prompt {"type":"chat","text":"what is two and three?","runId":"r1"}`

// mirror posts a session of the invented harness.
func (w *world) mirror(id string) error {
	path := filepath.Join(w.t.TempDir(), "a1.jsonl")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		w.t.Fatal(err)
	}
	cl, _ := w.client(id)
	m := &mirror.Mirror{
		Encoder: mirror.Encoder{
			Namer: mirror.Namer{Dialect: abacus, Session: "a1"}, Redact: &redact.Redactor{}, Prompt: "r1.prompt",
		},
		Path: path, Log: slog.New(slog.DiscardHandler),
		Append: func(ctx context.Context, entries []thread.Entry) error {
			_, err := cl.Append(ctx, entries)
			return err
		},
	}
	defer m.Close() // read only: nothing to lose
	return m.Sync(w.t.Context())
}

// open returns a page for people.
func (w *world) open(path string) string {
	w.t.Helper()
	at, err := url.Parse(w.url)
	if err != nil {
		w.t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(w.t.Context(), http.MethodGet, w.url+path, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	r.AddCookie(&http.Cookie{Name: "arbe-" + at.Port(), Value: access.Seal(w.key, access.NewSession(time.Now()))})
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		w.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		w.t.Fatalf("%s: %s %s, %v", path, resp.Status, b, err)
	}
	return string(b)
}

// status returns the entry of a run's status.
func status(id, status, more string) string {
	return fmt.Sprintf(`%s {"type":"signal.thread.status_changed","runId":"r1","harness":"abacus-cli","status":%q%s}`,
		id, status, more)
}

// end is the end of a run that did well.
var end = status("r1.end.0", "completed",
	`,"exitCode":0,"signal":null,"stopReason":"stop","durationMs":1,"lines":3,"digest":"","leftovers":0`)

// An invented harness is posted, listed, watched, exported and reconciled, with no code of its own but its dialect.
func TestInvented(t *testing.T) {
	w := newWorld(t, append(session.Harnesses(), abacus))
	w.post("t1", status("r1.running", "running", `,"parent":{"threadId":"parent"}`), prompt)
	if err := w.mirror("t1"); err != nil {
		t.Fatal(err)
	}
	w.post("t1", end)
	cl, _ := w.client("t1")

	row, _, err := cl.Summary(t.Context())
	if err != nil || row.Harness != "abacus-cli" || row.Status != "completed" {
		t.Errorf("listed as %+v, %v", row, err)
	}

	watched := view.Builder{Harnesses: w.list}
	var shown []string
	export, exported := bytes.Buffer{}, 0
	x, err := page.NewExport(&export, row, w.list, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := cl.Read(t.Context(), "0", false, func(e thread.Entry) error {
		exported++
		for _, c := range watched.Add(e) {
			if c.Item.Text != "" {
				shown = append(shown, fmt.Sprint(c.Item.Harness, ": ", c.Item.Text))
			}
		}
		return x.Add(e)
	}); err != nil {
		t.Fatal(err)
	}
	if all := strings.Join(shown, "\n"); !strings.Contains(all, "abacus-cli: it is exactly five") {
		t.Errorf("watched as %s", all)
	}
	if err := x.Close(); err != nil || !strings.Contains(export.String(), "it is exactly five") {
		t.Errorf("%d entries exported as %s, %v", exported, &export, err)
	}

	if site := w.open("/t/t1"); !strings.Contains(site, "it is exactly five") ||
		!strings.Contains(site, "--resume --harness abacus-cli") {
		t.Errorf("on the page as %s", site)
	}
	if got := w.open("/t/t1/session"); got != content {
		t.Errorf("its session is rebuilt as\n%s", got)
	}

	reconciler := &reconcile.Reconciler{Client: w.client, Harnesses: w.list}
	if _, err := reconciler.Thread(t.Context(), "t1"); err != nil {
		t.Fatal(err)
	}
	parent, _ := w.client("parent")
	var told string
	if _, err := parent.Read(t.Context(), "0", false, func(e thread.Entry) error {
		told += string(e.Payload)
		return nil
	}); err != nil || !strings.Contains(told, "it is exactly five") {
		t.Errorf("its parent got %s, %v", told, err)
	}
}

// Who starts agents, and the published documents, know the harnesses of the list, and no others.
func TestLists(t *testing.T) {
	list := session.Harnesses()
	names, prefixes := list.Names(), list.Types("")
	if got := slices.Sorted(slices.Values(names)); !slices.Equal(got, catalog.Names()) {
		t.Errorf("the catalog has %v, the list %v", catalog.Names(), got)
	}
	for _, name := range names {
		spec, err := harness.Lookup(name)
		if d, _ := list.Named(name); err != nil || spec.Name != name || spec.Dialect.Prefix != d.Prefix {
			t.Errorf("%s: the Spec is %s's, with the prefix %s, %v", name, spec.Name, spec.Dialect.Prefix, err)
		}
	}
	pattern := "(" + strings.ReplaceAll(strings.Join(prefixes, "|"), ".", "") + ")"
	for file, want := range map[string][]string{
		"entry.schema.json": {pattern, `["` + strings.Join(names, `", "`) + `"]`},
		"openapi.yaml":      {"[" + strings.Join(names, ", ") + "]"},
	} {
		b, err := os.ReadFile("../../../docs/" + file)
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range want {
			begin, _, _ := strings.Cut(w, names[1])
			if n := strings.Count(string(b), w); n == 0 || n != strings.Count(string(b), begin) {
				t.Errorf("%s: want %s wherever harnesses are named", file, w)
			}
		}
	}
}

// The lines of a listed harness are a sign of life of a run whose signals are old.
func TestInventedLives(t *testing.T) {
	w := newWorld(t, append(session.Harnesses(), abacus))
	w.post("t1", status("r1.running", "running", ""), prompt)
	if err := w.mirror("t1"); err != nil {
		t.Fatal(err)
	}
	to, err := url.Parse(w.url)
	if err != nil {
		t.Fatal(err)
	}
	later := httputil.NewSingleHostReverseProxy(to) // by hours: the run's signals are old, its lines are not
	later.ModifyResponse = func(resp *http.Response) error {
		resp.Header.Set("Date", time.Now().Add(5*time.Hour).UTC().Format(http.TimeFormat))
		if !strings.Contains(resp.Request.URL.Query().Get("types"), "abacus") {
			return nil
		}
		b, err := io.ReadAll(resp.Body)
		err = errors.Join(err, resp.Body.Close())
		b = bytes.ReplaceAll(b, []byte(`"at":"20`), []byte(`"at":"21`))
		resp.Body = io.NopCloser(bytes.NewReader(b))
		return err
	}
	srv := httptest.NewServer(later)
	defer srv.Close()
	cl := func(id string) (*client.Client, error) {
		c, err := w.client(id)
		c.Base = thread.BaseURL(srv.URL)
		return c, err
	}
	for _, tt := range []struct {
		list session.List
		want string
	}{{w.list, "running"}, {session.Harnesses(), "failed"}} {
		r := &reconcile.Reconciler{Client: cl, Harnesses: tt.list}
		if s, err := r.Thread(t.Context(), "t1"); err != nil || s.Status != tt.want {
			t.Errorf("with %v: got %+v, %v, want %s", tt.list.Names(), s, err, tt.want)
		}
	}
}

// A turn of an invented harness is one of a session of another, and the other way around.
func TestInventedCrossing(t *testing.T) {
	w := newWorld(t, append(session.Harnesses(), abacus))
	w.post("t1", status("r1.running", "running", ""), prompt)
	if err := w.mirror("t1"); err != nil {
		t.Fatal(err)
	}
	cl, _ := w.client("t1")
	entries := func(yield func(thread.Entry, error) bool) {
		if _, err := cl.Read(t.Context(), "0", false, func(e thread.Entry) error {
			yield(e, nil)
			return nil
		}); err != nil {
			t.Error(err)
		}
	}
	for _, d := range session.Harnesses() {
		var file bytes.Buffer
		if err := w.session(&file, d.Harness, entries); err != nil ||
			!strings.Contains(file.String(), "exactly five") || !strings.Contains(file.String(), "two and three") {
			t.Errorf("%s: %v, %s", d.Harness, err, &file)
		}
	}
}

// A server refuses lines of a harness that its list lacks, and names those that it has.
func TestUnlisted(t *testing.T) {
	for _, list := range []session.List{nil, session.Harnesses()} {
		w := newWorld(t, list)
		cl, _ := w.client("t1")
		_, err := cl.Append(t.Context(), []thread.Entry{{
			ID: "abacus:a1:0", TS: thread.Stamp(time.Now()), Payload: []byte(`{"type":"abacus.session"}`),
		}})
		const why = `payload.type "abacus.session": want chat, pi.<kind>, codex.<kind>, claude.<kind> or `
		if se := new(client.StatusError); !errors.As(err, &se) || se.Status != http.StatusBadRequest ||
			len(se.Entries) != 1 || !strings.HasPrefix(se.Entries[0].Reason, why) {
			t.Errorf("got %v", err)
		}
		if _, _, err := cl.Summary(t.Context()); !client.NotFound(err) {
			t.Errorf("the thread has something: %v", err)
		}
	}
}
