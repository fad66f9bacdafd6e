package server_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"arbe.0sk.ar/runner/host/log"
	"arbe.0sk.ar/runner/host/log/jetstream"
	"arbe.0sk.ar/runner/host/log/pebble"
	"arbe.0sk.ar/runner/host/server"
	"arbe.0sk.ar/runner/internal/test/agents"
	"arbe.0sk.ar/runner/internal/test/natsserver"
)

// engines open the engines that a log can use, by name.
var engines = map[string]func(t testing.TB) log.Engine{
	"pebble": func(t testing.TB) log.Engine {
		e, err := pebble.Open(t.TempDir(), quiet)
		if err != nil {
			t.Fatal(err)
		}
		return e
	},
	"nats": func(t testing.TB) log.Engine { return natsCluster(t)(t) },
}

// natsCluster starts a NATS server, and returns a function that opens another engine on it.
func natsCluster(t testing.TB) func(t testing.TB) log.Engine {
	s, err := natsserver.Start(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { natsserver.Stop(s) })
	return func(t testing.TB) log.Engine {
		e, err := jetstream.Open(
			t.Context(),
			jetstream.Config{URL: s.ClientURL(), Shards: 4, Replicas: 1, AllowUnsafe: true, Logger: quiet},
		)
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
}

var quiet = slog.New(slog.DiscardHandler)

// serveOn is a server on an engine.
func serveOn(t testing.TB, e log.Engine, change func(*server.Server)) string {
	return serveBehind(t, e, change, func(h http.Handler) http.Handler { return h })
}

// serveBehind is serveOn with something around the handler.
func serveBehind(
	t testing.TB,
	e log.Engine,
	change func(*server.Server),
	around func(http.Handler) http.Handler,
) string {
	streams := log.New(e)
	ctx, stop := context.WithCancel(t.Context())
	watched := make(chan error, 1)
	go func() { watched <- streams.Watch(ctx) }()
	s := &server.Server{
		Log:      streams,
		Secrets:  [][]byte{secret},
		LongPoll: 500 * time.Millisecond,
		Closing:  ctx,
		Logger:   slog.New(slog.NewTextHandler(testLog{t}, nil)),
	}
	change(s)
	srv := httptest.NewServer(around(s.Handler()))
	t.Cleanup(func() {
		stop()
		srv.Close()
		if err := <-watched; err != nil {
			t.Error(err)
		}
		if err := streams.Close(); err != nil {
			t.Error(err)
		}
	})
	return srv.URL
}

// node runs the Node of the conformance suite's folder there, with files beside its packages.
func node(t *testing.T, files map[string]string, args, env []string) []byte {
	t.Helper()
	if testing.Short() {
		t.Skip("Node is left out")
	}
	cache, err := agents.Cache()
	if err != nil {
		t.Fatal(err)
	}
	modules := filepath.Join(cache, "durable-streams-0.3.6", "node_modules")
	if _, err := os.Stat(modules); err != nil {
		t.Fatalf("%v: run make agents", err)
	}
	dir := t.TempDir()
	if err := os.Symlink(modules, filepath.Join(dir, "node_modules")); err != nil {
		t.Fatal(err)
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), filepath.Join(modules, ".bin", "node"), args...)
	cmd.Dir = dir
	cmd.Env = append([]string{"HOME=" + dir, "PATH=" + os.Getenv("PATH"), "NO_COLOR=1"}, env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Logf("node: %v", err) // its output decides
	}
	return out
}

// slow are the names of those tests of the suite that wait for time to pass. They are left out but for make
// conformance.
const slow = `^(?!.*(TTL|Expir|expir|Property-Based)).*$`

// The protocol's own suite finds nothing wrong: all of its 332 tests, or those that do not wait, on Pebble, and in
// TestFullConformance on JetStream.
func TestConformance(t *testing.T) { conformance(t, "pebble") }

func TestFullConformance(t *testing.T) { conformance(t, "nats") }

func conformance(t *testing.T, name string) {
	all := os.Getenv("ARBE_CONFORMANCE") != ""
	least := 270
	args := []string{"node_modules/vitest/vitest.mjs", "run", "--reporter=json", "--outputFile=result.json"}
	if all {
		least = 332
	} else {
		args = append(args, "-t", slow)
	}
	t.Parallel()
	url := serveOn(t, engines[name](t), func(s *server.Server) { s.Insecure = true })
	out := node(t, map[string]string{
		"conformance.test.mjs": `import { runConformanceTests } from "@durable-streams/server-conformance-tests"
runConformanceTests({ baseUrl: process.env.SERVER_URL, longPollTimeoutMs: 500, subscriptions: false })`,
		"vitest.config.mjs": `export default { test: { include: ["*.test.mjs"], testTimeout: 30000 } }`,
	}, append([]string{"-e", `
		const { spawnSync } = require("node:child_process"), fs = require("node:fs")
		const r = spawnSync(process.execPath, process.argv.slice(1), { stdio: ["ignore", "ignore", "pipe"] })
		process.stderr.write(r.stderr)
		process.stdout.write("\nRESULT" + fs.readFileSync("result.json", "utf8"))
	`}, args...), []string{"SERVER_URL=" + url})
	_, result, _ := strings.Cut(string(out), "\nRESULT")
	var report struct {
		NumPassedTests, NumFailedTests int
		TestResults                    []struct {
			AssertionResults []struct {
				FullName, Status string
				FailureMessages  []string
			}
		}
	}
	if err := json.Unmarshal([]byte(result), &report); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	t.Logf("%d tests passed", report.NumPassedTests)
	if report.NumFailedTests > 0 || report.NumPassedTests < least {
		t.Errorf("%d tests passed, %d failed; want %d", report.NumPassedTests, report.NumFailedTests, least)
	}
	for _, file := range report.TestResults {
		for _, a := range file.AssertionResults {
			if a.Status == "failed" {
				t.Errorf("%s: %s", a.FullName, a.FailureMessages)
			}
		}
	}
}
