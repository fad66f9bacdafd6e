package postgres

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
)

func version(t *testing.T, url string) (v string) {
	t.Helper()
	c, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := c.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}()
	if err := c.QueryRow(t.Context(), "show server_version").Scan(&v); err != nil {
		t.Fatal(err)
	}
	return v
}

// A server runs as this user, and as nobody where this user is root. It survives KILL, and leaves no folder.
func TestServer(t *testing.T) {
	programs, err := Find()
	if err != nil {
		t.Fatal(err)
	}
	accounts := map[string]func() (*Server, error){"as this user": func() (*Server, error) { return Start(programs) }}
	if os.Getuid() == 0 {
		accounts["as nobody"] = func() (*Server, error) { return startAs(programs, asNobody) }
	}
	for name, start := range accounts {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, err := start()
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := s.Stop(); err != nil {
					t.Error(err)
				}
				if _, err := os.Stat(s.dir); !errors.Is(err, os.ErrNotExist) {
					t.Errorf("%s is left: %v", s.dir, err)
				}
			}()
			if err := s.Template(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
			url, err := s.New(t.Context(), "one")
			if err != nil {
				t.Fatal(err)
			}
			before := version(t, url)
			if err := errors.Join(s.Kill(), s.Restart()); err != nil {
				t.Fatal(err)
			}
			if after := version(t, url); after != before || os.Getenv(Var) == "" && !strings.HasPrefix(after, "18.") {
				t.Errorf("got %s, then %s", before, after)
			}
		})
	}
}

// The oldest version runs, too.
func TestFullOldest(t *testing.T) {
	programs, err := FindVersion(Oldest)
	if err != nil {
		t.Fatal(err)
	}
	s, err := Start(programs)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	}()
	if v := version(t, s.URL("postgres", "postgres")); !strings.HasPrefix(v, "15.") {
		t.Errorf("got %s", v)
	}
}

// childVar makes this test program a process that starts a server and is killed.
const childVar = "ARBE_TEST_PG_CHILD"

// A server ends with its parent, even with a killed one.
func TestParentKilled(t *testing.T) {
	if os.Getenv(childVar) != "" {
		programs, err := Find()
		if err != nil {
			t.Fatal(err)
		}
		s, err := Start(programs)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(os.Getenv(childVar), []byte(s.dir), 0o600); err != nil {
			t.Fatal(err)
		}
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	}
	note := filepath.Join(t.TempDir(), "dir")
	child := exec.Command(os.Args[0], "-test.run=^TestParentKilled$")
	child.Env = append(os.Environ(), childVar+"="+note)
	child.Stdout = new(strings.Builder) // a pipe, which the server has open, too: Run returns when it has ended
	err := child.Run()
	dir, readErr := os.ReadFile(note)
	if readErr != nil {
		t.Fatalf("%v, %v, %s", readErr, err, child.Stdout)
	}
	defer func() {
		if err := os.RemoveAll(string(dir)); err != nil {
			t.Error(err)
		}
	}()
	if _, err := os.Stat(filepath.Join(string(dir), "data", "postmaster.pid")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the server did not end in order: %v", err)
	}
}
