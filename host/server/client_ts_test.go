package server_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"arbe.0sk.ar/runner/host/server"
	"arbe.0sk.ar/runner/host/token"
	"arbe.0sk.ar/runner/thread"
)

// drive is a program that uses the client of docs/examples, and prints what it gets.
const drive = `
import { readFileSync } from "node:fs"
import { Refused, Status, Thread } from "./client.ts"
const { SERVER, TOKEN, EXPIRED, RENEW, MANY, RECORDED } = process.env
const ts = "2026-06-01T12:00:00.000Z"
const chat = (id: string, text: string) => ({ id, ts, payload: { type: "chat", text } })
const open = (thread: string, token: string, renew = "") => Object.assign(new Thread(SERVER!, thread, token, renew), { pause: 1 })
const refused = async (call: Promise<unknown>) => {
  const e = await call.then(() => undefined, (e) => e)
  console.log("refused", e instanceof Refused, e.status, e.code, e.entries.map((b: any) => [b.index, b.id].join()).join())
}
const demo = open("demo", TOKEN!)
console.log("append", JSON.stringify(await demo.append(chat("a", "one"), chat("b", "two"))))
let offset = ""
for await (const piece of demo.read()) {
  console.log("read", piece.entries.map((e) => e.id + " " + e.payload.text).join(), piece.upToDate)
  offset = piece.offset
}
const stop = new AbortController()
const followed: string[] = []
const following = (async () => {
  for await (const piece of demo.follow(offset, "chat", stop.signal)) {
    followed.push(...piece.entries.map((e) => e.id))
    if (followed.includes("d")) stop.abort()
  }
})()
await demo.append(chat("c", "three"))
await demo.append({ id: "s", ts, payload: { type: "signal.dispatch.end_requested" } })
await demo.append(chat("d", "four"))
await following
console.log("followed", followed.join())
const renewing = open("demo", EXPIRED!, RENEW)
console.log("renewed", (await renewing.append(chat("e", "five"))).appended, renewing.token !== EXPIRED)
await refused(open("demo", EXPIRED!).append(chat("f", "six")))
await refused(demo.append(chat("f", "six"), chat("a", "another")))
await refused(demo.append({ ...chat("f", "six"), id: "no id" }))
await refused(open("other", TOKEN!).read().next())
await refused(open("many", MANY!).read().next())
const many = open("many", MANY!)
await many.append(...Array.from({ length: 1000 }, (_, i) => chat("m" + i, "x")))
await many.append(...Array.from({ length: 500 }, (_, i) => chat("n" + i, "x")))
const sizes: number[] = []
for await (const piece of many.read()) sizes.push(piece.entries.length)
console.log("pieces", sizes.join())
for (const file of RECORDED!.split(",")) {
  const status = new Status()
  const all = readFileSync(file, "utf8").trim().split("\n").map((line) => (status.add(JSON.parse(line)), status.thread))
  console.log("status", file.split("/").at(-1), all.join())
}
`

// The client of docs/examples appends, reads, follows, renews and folds, although the answer to its first append is
// lost, and its first reads get a page of another server, the half of an answer, and a server that is busy. It has
// the same status of each recorded thread as thread.Fold, at each entry.
func TestTypeScriptClient(t *testing.T) {
	if testing.Short() {
		t.Skip("Node is left out")
	}
	t.Parallel()
	client, err := os.ReadFile("../../docs/examples/client.ts")
	if err != nil {
		t.Fatal(err)
	}
	files, want := foldedThreads(t)
	url := serveBehind(t, engines["pebble"](t), func(*server.Server) {}, failing)
	demo := thread.StreamName("demo")
	env := []string{
		"SERVER=" + url, "TOKEN=" + writer(t, "demo"), "MANY=" + writer(t, "many"),
		"EXPIRED=" + mint(t, token.Grant{
			Stream: demo, Scope: []string{token.ScopeWrite}, Until: time.Now().Add(-time.Minute),
		}),
		"RENEW=" + mint(t, token.Grant{Stream: demo, Scope: []string{token.ScopeRenew}}),
		"RECORDED=" + strings.Join(files, ","),
	}
	out := node(t, map[string]string{"client.ts": string(client), "drive.ts": drive}, []string{"drive.ts"}, env)
	want = `append {"nextOffset":"00000000000000000002","appended":0,"duplicates":2}
read a one,b two true
followed c,d
renewed 1 true
refused true 401 invalid_token 
refused true 409 conflict 1,a
refused true 400 invalid 0,
refused true 403 wrong_thread 
refused true 404 not_found 
pieces 1000,500
` + want
	if string(out) != want {
		t.Errorf("got %s\nwant %s", out, want)
	}
}

// failing has the first post applied and its answer lost. Of the first reads one gets a page, one half of its answer,
// and one 503.
func failing(next http.Handler) http.Handler {
	var posts, reads atomic.Int32
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method == "POST" && posts.Add(1) == 1:
			next.ServeHTTP(httptest.NewRecorder(), r)
			panic(http.ErrAbortHandler)
		case r.Method != "GET":
			next.ServeHTTP(w, r)
			return
		}
		switch reads.Add(1) {
		case 1:
			w.Header().Set("Content-Type", "text/html")
			fmt.Fprint(w, "<!doctype html><title>Log in</title>")
		case 2:
			all := httptest.NewRecorder()
			next.ServeHTTP(all, r)
			for name, values := range all.Header() {
				w.Header()[name] = values
			}
			w.Header().Set("Content-Length", strconv.Itoa(all.Body.Len()))
			w.Write(all.Body.Bytes()[:all.Body.Len()/2])
			panic(http.ErrAbortHandler)
		case 3:
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusServiceUnavailable)
			fmt.Fprint(w, `{"error":{"code":"busy","message":"no memory for the request"}}`)
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// replacedEnd is a thread whose first run has a host's end, which the runner's replaces, and ends that come too late.
// The other runs do not begin: their signals are under ids of other places.
const replacedEnd = `{"id":"r1.running","ts":"2026-06-01T12:00:00.000Z","payload":{"type":"signal.thread.status_changed","runId":"r1","status":"running"}}
{"id":"r1.orphan.0","ts":"2026-06-01T12:00:00.000Z","payload":{"type":"signal.thread.pi_session_orphaned","runId":"r1","reason":"silent"}}
{"id":"r1.orphan.1","ts":"2026-06-01T12:00:00.000Z","payload":{"type":"signal.thread.status_changed","runId":"r1","status":"failed"}}
{"id":"r1.end.0","ts":"2026-06-01T12:00:00.000Z","payload":{"type":"signal.thread.status_changed","runId":"r1","status":"completed"}}
{"id":"r1.end.1","ts":"2026-06-01T12:00:00.000Z","payload":{"type":"signal.thread.status_changed","runId":"r1","status":"cancelled"}}
{"id":"r1.orphan.2","ts":"2026-06-01T12:00:00.000Z","payload":{"type":"signal.thread.status_changed","runId":"r1","status":"failed"}}
{"id":"x","ts":"2026-06-01T12:00:00.000Z","payload":{"type":"signal.dispatch.session_started","runId":"r2"}}
{"id":"r3.prompt","ts":"2026-06-01T12:00:00.000Z","payload":{"type":"signal.dispatch.sandbox","runId":"r3"}}
{"id":"r3.beat.0","ts":"2026-06-01T12:00:00.000Z","payload":{"type":"signal.setup.box","runId":"r3"}}
{"id":"r4.waiting.0","ts":"2026-06-01T12:00:00.000Z","payload":{"type":"signal.dispatch.pi_waiting","runId":"r4"}}
`

// foldedThreads returns the paths of the recorded threads, and a line for each with its status at each entry.
func foldedThreads(t *testing.T) (files []string, lines string) {
	t.Helper()
	names, err := filepath.Glob("../../testdata/threads/*.ndjson")
	if err != nil || len(names) == 0 {
		t.Fatalf("no recorded threads: %v", err)
	}
	replaced := filepath.Join(t.TempDir(), "replaced.ndjson")
	if err := os.WriteFile(replaced, []byte(replacedEnd), 0o600); err != nil {
		t.Fatal(err)
	}
	names = append(names, replaced)
	var seen []string
	for _, name := range names {
		path, err := filepath.Abs(name)
		if err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, path)
		var fold thread.Fold
		var all []string
		for _, line := range bytes.Split(bytes.TrimSpace(b), []byte("\n")) {
			e, err := thread.ParseStored(json.RawMessage(line))
			if err != nil {
				t.Fatal(err)
			}
			fold.Add(e)
			all = append(all, fold.Status())
		}
		seen = append(seen, all[len(all)-1])
		lines += "status " + filepath.Base(path) + " " + strings.Join(all, ",") + "\n"
	}
	for _, status := range []string{thread.StatusCompleted, thread.StatusFailed, thread.StatusCancelled} {
		if !slices.Contains(seen, status) {
			t.Errorf("no recorded thread is %s", status)
		}
	}
	return files, lines
}
