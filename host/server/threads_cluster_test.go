package server_test

import (
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"arbe.0sk.ar/runner/host/daemon"
	"arbe.0sk.ar/runner/host/log/jetstream"
	"arbe.0sk.ar/runner/host/token"
	"arbe.0sk.ar/runner/internal/test/natsserver"
	"arbe.0sk.ar/runner/thread"
)

// Each server of a cluster has an index of its own, which follows what the others append and delete, also while it is
// away.
func TestIndexesOnOneCluster(t *testing.T) {
	t.Parallel()
	natsd, err := natsserver.Start(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { natsserver.Stop(natsd) })
	cluster := jetstream.Config{URL: natsd.ClientURL(), Shards: 3, Replicas: 1, AllowUnsafe: true, Logger: quiet}
	dirs := []string{t.TempDir(), t.TempDir()}
	start := func(i int) (string, func() error) {
		t.Helper()
		url, stop := serve(t, daemon.Config{
			Addr: "127.0.0.1:0", Data: daemon.Data(dirs[i]), Secrets: [][]byte{secret}, NATS: &cluster,
		})
		if url == "" {
			t.Fatal(stop())
		}
		return url, stop
	}
	list := mint(t, token.Grant{Stream: token.SubjectThreads, Scope: []string{token.ScopeThreads}})
	threads := func(base string) (all []thread.Summary) {
		t.Helper()
		for cursor := ""; ; {
			a := call{
				method: "GET",
				path:   "/api/threads?limit=3&cursor=" + url.QueryEscape(cursor),
				token:  list,
			}.do(
				t,
				base,
			)
			var page thread.SummaryPage
			if a.status == 503 {
				return nil // it is being built
			}
			if err := json.Unmarshal([]byte(a.body), &page); err != nil || a.status != 200 {
				t.Fatalf("%v, %+v", err, a)
			}
			all = append(all, page.Threads...)
			if cursor = page.Cursor; cursor == "" {
				return all
			}
		}
	}
	post := func(base string, id int, entries ...string) {
		t.Helper()
		for _, e := range entries {
			name := fmt.Sprint("t", id)
			c := call{method: "POST", path: "/api/stream/arbe-thread-" + name, token: writer(t, name), body: e}
			if a := c.do(t, base); a.status != 200 {
				t.Fatalf("got %+v", a)
			}
		}
	}
	same := func(a, b string, n int) {
		t.Helper()
		for began := time.Now(); ; time.Sleep(2 * time.Millisecond) { // until the other server has received all
			one, other := threads(a), threads(b)
			d := cmp.Diff(one, other)
			if d == "" && len(one) == n {
				return
			}
			if time.Since(began) > patience {
				t.Fatalf("%d and %d threads of %d: %s", len(one), len(other), n, d)
			}
		}
	}
	a, stopA := start(0)
	b, stopB := start(1)
	for i := range 7 {
		post([]string{a, b}[i%2], i, signal("r1", "running", thread.TypeStatus, `,"status":"running"`))
	}
	same(a, b, 7)
	if err := stopB(); err != nil {
		t.Error(err)
	}
	for i := range 7 {
		post(a, i, signal("r1", "end.0", thread.TypeStatus, `,"status":"completed"`))
	}
	gone := mint(t, token.Grant{Stream: thread.StreamName("t3"), Scope: []string{token.ScopeDelete}})
	if r := (call{method: "DELETE", path: "/v1/stream/arbe-thread-t3", token: gone}).do(t, a); r.status != 204 {
		t.Fatalf("got %+v", r)
	}
	b, stopB = start(1)
	same(a, b, 6)
	if got := threads(b)[0].Status; got != "completed" {
		t.Errorf("got %s", got)
	}
	gone = mint(t, token.Grant{Stream: thread.StreamName("t4"), Scope: []string{token.ScopeDelete}})
	if r := (call{method: "DELETE", path: "/v1/stream/arbe-thread-t4", token: gone}).do(t, b); r.status != 204 {
		t.Fatalf("got %+v", r)
	}
	same(a, b, 5)
	if err := stopB(); err != nil {
		t.Error(err)
	}
	if err := os.WriteFile(filepath.Join(dirs[1], "index", "threads.0"), []byte("damaged"), 0o600); err != nil {
		t.Fatal(err)
	}
	b, stopB = start(1)
	same(a, b, 5)
	for _, stop := range []func() error{stopA, stopB} {
		if err := stop(); err != nil {
			t.Error(err)
		}
	}
}
