package server_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"arbe.0sk.ar/runner/host/proxy"
	"arbe.0sk.ar/runner/internal/test/agents"
	"arbe.0sk.ar/runner/internal/test/output"
)

// The answer for an upstream that is too slow differs from that for one that is not there.
func TestFrontsSlow(t *testing.T) {
	for name, start := range map[string]func(*testing.T, string) (string, *output.Buffer){
		"proxy": func(t *testing.T, upstream string) (string, *output.Buffer) {
			return goProxy(t, upstream, proxy.Proxy{Timeout: 50 * time.Millisecond})
		},
		"edge": func(t *testing.T, upstream string) (string, *output.Buffer) {
			hurry := filepath.Join(t.TempDir(), "hurry.js") // two minutes pass in five seconds
			if err := os.WriteFile(hurry,
				[]byte("const t = setTimeout; globalThis.setTimeout = (f, ms) => t(f, ms / 24);\n"),
				0o600); err != nil {
				t.Fatal(err)
			}
			return edge(t, upstream, "--preload="+hurry)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u := newUpstream(t, time.Second)
			base, _ := start(t, u.URL)
			for len(u.waits) == 0 { // on a loaded machine the time may be over before the upstream has the request
				a := call{method: "GET", path: "/odd/hang"}.do(t, base)
				if a.status != 504 || a.code != "upstream_slow" || a.header.Get("Content-Type") != "application/json" {
					t.Fatalf("got %+v", a)
				}
			}
			<-u.gone
		})
	}
}

// The types of the edge function are right, and those of the client in docs/examples. Without an address the function
// does not begin to serve.
func TestEdgeFunction(t *testing.T) {
	t.Parallel()
	const file = "../../deploy/supabase/functions/stream-proxy/index.ts"
	if testing.Short() {
		t.Skip("deno is left out")
	}
	cache, err := agents.Cache()
	if err != nil {
		t.Fatal(err)
	}
	deno, err := filepath.Glob(filepath.Join(cache, "deno-2.9.5", "node_modules", "@deno", "*", "deno"))
	if err != nil || len(deno) != 1 {
		t.Fatalf("%d denos in %s, %v: run make agents", len(deno), cache, err)
	}
	const client = "../../docs/examples/client.ts"
	for _, args := range [][]string{{"check", file, client}, {"lint", file, client}} {
		cmd := exec.CommandContext(t.Context(), deno[0], args...)
		cmd.Env = []string{"HOME=" + t.TempDir(), "NO_COLOR=1", "DENO_NO_UPDATE_CHECK=1"}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("deno %v: %v\n%s", args, err, out)
		}
	}
	for _, address := range []string{"", "thread.example", "http://user:secret@127.0.0.1:1", "http://127.0.0.1:1/?x"} {
		cmd := exec.CommandContext(t.Context(), deno[0], "run", "--no-prompt", "--allow-env=ARBE_WORKER_URL", file)
		cmd.Env = []string{
			"HOME=" + t.TempDir(),
			"NO_COLOR=1",
			"DENO_NO_UPDATE_CHECK=1",
			"ARBE_WORKER_URL=" + address,
		}
		if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "ARBE_WORKER_URL: want") ||
			strings.Contains(string(out), "secret@") {
			t.Errorf("%q: %v\n%s", address, err, out)
		}
	}
}
