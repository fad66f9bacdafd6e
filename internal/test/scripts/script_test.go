// Package scripts runs the built arbe as a user would: the scripts in testdata/script/arbe, and what takes a process of
// its own. The tests drive the program and link none of it, so they compile neither the log engines nor go-github.
package scripts

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/rogpeppe/go-internal/testscript"

	"arbe.0sk.ar/runner/internal/test/built"
	"arbe.0sk.ar/runner/internal/test/fakevault"
	"arbe.0sk.ar/runner/internal/test/natsserver"
	"arbe.0sk.ar/runner/internal/test/port"
	"arbe.0sk.ar/runner/internal/test/postgres"
	"arbe.0sk.ar/runner/internal/test/surroundings"
)

// arbe is the path of the built program.
var arbe string

func TestMain(m *testing.M) {
	if script := os.Getenv("PLAYED"); script != "" { // this is the runner in a box, which a script plays
		if slices.Contains(os.Args[1:], "reach") {
			return // it reaches the thread server
		}
		err := syscall.Exec("/bin/sh", append([]string{"sh", script}, os.Args[1:]...), os.Environ())
		fmt.Fprintln(os.Stderr, "scripts:", err)
		os.Exit(1)
	}
	surroundings.Enter()
	built.Main(m, "../../..", func(bin string) { arbe = filepath.Join(bin, "arbe") })
}

// TestScript runs the program as a user would. Beside testscript's own commands the scripts have
//
//	status N CMD …   the command ends with N
//	wrong N RE CMD … it ends with N, prints nothing on stdout, and a message that matches on stderr
//	await FILE       wait until FILE has content
//	$SELF            an ARBE_RUNNER_BIN: a runner that is the script in PLAYED, and reaches the server
//	nats             start a nats-server for the script, with its address in ARBE_NATS_URL
//	http N METHOD URL [BODY]  send a request with the token in the file token; the answer's status is N
//	postgres         start a Postgres for the script, with the address of an empty database in ARBE_DATABASE
//	vault            start a double of Vault for the script, with its address and token in VAULT_ADDR and VAULT_TOKEN
//	postgres SQL     execute a statement in that database
//	postgres SQL V   wait until its only value is V
func TestScript(t *testing.T) {
	paths, err := filepath.Glob("../../../testdata/script/arbe/*.txtar")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Files: paths, RequireExplicitExec: true, RequireUniqueNames: true,
		UpdateScripts: os.Getenv("UPDATE_SCRIPTS") != "",
		Setup: func(env *testscript.Env) error {
			env.Setenv("HOME", env.WorkDir)
			env.Setenv("DATA", filepath.Join(env.WorkDir, ".local", "share", "arbe"))
			env.Setenv("TZ", "UTC")
			env.Setenv("PORT", freePort(t))
			env.Setenv("SELF", self)
			env.Setenv("PATH", filepath.Dir(arbe)+string(filepath.ListSeparator)+env.Getenv("PATH"))
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"status": func(ts *testscript.TestScript, _ bool, args []string) {
				want, err := strconv.Atoi(args[0])
				ts.Check(err)
				got := 0
				var ee *exec.ExitError
				if err := ts.Exec(args[1], args[2:]...); errors.As(err, &ee) {
					got = ee.ExitCode()
				} else {
					ts.Check(err)
				}
				if got != want {
					ts.Fatalf("%s ended with %d, want %d", strings.Join(args[1:], " "), got, want)
				}
			},
			"wrong": func(ts *testscript.TestScript, _ bool, args []string) {
				err := ts.Exec(args[2], args[3:]...)
				var ee *exec.ExitError
				if !errors.As(err, &ee) || strconv.Itoa(ee.ExitCode()) != args[0] {
					ts.Fatalf("%s: %v, want exit status %s", strings.Join(args[2:], " "), err, args[0])
				}
				text := ts.ReadFile("stderr")
				if !regexp.MustCompile(args[1]).MatchString(text) || strings.Contains(text, "goroutine ") {
					ts.Fatalf("%s: %s\nwant %s", strings.Join(args[2:], " "), text, args[1])
				}
				if out := ts.ReadFile("stdout"); out != "" {
					ts.Fatalf("%s: stdout has %s", strings.Join(args[2:], " "), out)
				}
			},
			"nats": func(ts *testscript.TestScript, _ bool, _ []string) {
				s, err := natsserver.Start(ts.MkAbs("jetstream"))
				ts.Check(err)
				ts.Defer(func() { natsserver.Stop(s) })
				ts.Setenv("ARBE_NATS_URL", s.ClientURL())
			},
			"postgres": func(ts *testscript.TestScript, _ bool, args []string) {
				if len(args) > 0 {
					ts.Check(query(ts.Getenv("ARBE_DATABASE"), args[0], args[1:]...))
					return
				}
				programs, err := postgres.Find()
				ts.Check(err)
				s, err := postgres.Start(programs)
				ts.Check(err)
				ts.Defer(func() { ts.Check(s.Stop()) })
				ts.Check(s.Template(context.Background(), nil))
				url, err := s.New(context.Background(), "arbe")
				ts.Check(err)
				ts.Setenv("ARBE_DATABASE", url)
			},
			"vault": func(ts *testscript.TestScript, _ bool, _ []string) {
				s := httptest.NewServer(fakevault.New())
				ts.Defer(s.Close)
				ts.Setenv("VAULT_ADDR", s.URL)
				ts.Setenv("VAULT_TOKEN", fakevault.Token)
				ts.Setenv("VAULT_MAX_RETRIES", "0")
			},
			"http": func(ts *testscript.TestScript, _ bool, args []string) {
				want, err := strconv.Atoi(args[0])
				ts.Check(err)
				body := strings.NewReader(strings.Join(args[3:], ""))
				req, err := http.NewRequest(args[1], args[2], body)
				ts.Check(err)
				req.Header.Set("Content-Type", "application/json")
				req.Header.Set("Authorization", "Bearer "+strings.TrimSpace(ts.ReadFile("token")))
				answer, err := http.DefaultClient.Do(req)
				ts.Check(err)
				b, err := io.ReadAll(answer.Body)
				ts.Check(errors.Join(err, answer.Body.Close()))
				fmt.Fprintf(ts.Stdout(), "%s", b)
				if answer.StatusCode != want {
					ts.Fatalf("got %s %s, want %d", answer.Status, b, want)
				}
			},
			"await": func(ts *testscript.TestScript, _ bool, args []string) {
				for began := time.Now(); ; time.Sleep(5 * time.Millisecond) { // between two looks
					if b, err := os.ReadFile(ts.MkAbs(args[0])); err == nil && len(b) > 0 {
						return
					}
					if time.Since(began) > 5*time.Minute {
						ts.Fatalf("waited in vain for %s", args[0])
					}
				}
			},
		},
	})
}

// query executes a statement, again and again until its only value is want, where there is one.
func query(url, sql string, want ...string) (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	c, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close(context.Background())) }()
	if len(want) == 0 {
		_, err = c.Exec(ctx, sql)
		return err
	}
	for got := ""; got != want[0]; time.Sleep(5 * time.Millisecond) { // between two looks
		if err := c.QueryRow(ctx, sql).Scan(&got); err != nil {
			return err
		}
	}
	return nil
}

// freePort returns a port that nobody listens on, reserved for the test.
func freePort(t *testing.T) string {
	t.Helper()
	_, number, err := net.SplitHostPort(port.Reserve(t))
	if err != nil {
		t.Fatal(err)
	}
	return number
}
