package rows_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"arbe.0sk.ar/runner/internal/test/scene"

	"github.com/jackc/pgx/v5"

	"arbe.0sk.ar/runner/internal/test/postgres"
	"arbe.0sk.ar/runner/thread"
)

// withRows gives the host a database of its own, with a house and an environment that injects its secret DB_LOGIN.
func withRows(h *scene.Host) (database string) {
	h.T.Helper()
	programs, err := postgres.Find()
	if err != nil {
		h.T.Fatal(err)
	}
	s, err := postgres.Start(programs)
	if err != nil {
		h.T.Fatal(err)
	}
	h.T.Cleanup(func() {
		if err := s.Stop(); err != nil {
			h.T.Error(err)
		}
	})
	if err := s.Template(h.T.Context(), nil); err != nil {
		h.T.Fatal(err)
	}
	if database, err = s.New(h.T.Context(), "arbe"); err != nil {
		h.T.Fatal(err)
	}
	h.Env = append(h.Env, "ARBE_DATABASE="+database, "ARBE_SECRET_KEYS="+filepath.Join(h.Dir, "keys"))
	for _, args := range [][]string{{"db", "migrate"}, {"secret", "key", "new", filepath.Join(h.Dir, "keys")}} {
		if out, err := h.Try(args...); err != nil {
			h.T.Fatalf("arbe %v: %v\n%s", args, err, out)
		}
	}
	onDatabase(h, database, func(c *pgx.Conn) error {
		for _, sql := range []string{
			"insert into houses (id, name) values ('house1', 'One')",
			`insert into environments (id, house_id, name, runtime, secret_bindings)
				values ('env1', 'house1', 'base', 'local', '[{"name": "DB_LOGIN", "required": true}]')`,
			`insert into agents (id, kind, runtime) values ('7d3c1a52-6b5e-4c6e-9c1a-0f1e2d3c4b5a', 'bot', 'pi')`,
			"insert into members (house_id, agent_id, role) select 'house1', id, 'member' from agents",
		} {
			if _, err := c.Exec(h.T.Context(), sql); err != nil {
				return err
			}
		}
		return nil
	})
	return database
}

func onDatabase(h *scene.Host, url string, do func(*pgx.Conn) error) {
	h.T.Helper()
	c, err := pgx.Connect(h.T.Context(), url)
	if err != nil {
		h.T.Fatal(err)
	}
	if err := errors.Join(do(c), c.Close(context.WithoutCancel(h.T.Context()))); err != nil {
		h.T.Fatal(err)
	}
}

// dump returns all rows of all tables of a database as text, with its large values as they are and in hex.
func dump(h *scene.Host, url string) string {
	h.T.Helper()
	var all strings.Builder
	onDatabase(h, url, func(c *pgx.Conn) error {
		rows, err := c.Query(h.T.Context(), `select format('%I.%I', table_schema, table_name) from
			information_schema.tables where table_type = 'BASE TABLE' and table_schema <> 'information_schema'
			and table_schema <> 'pg_catalog' order by 1`)
		if err != nil {
			return err
		}
		tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			return err
		}
		for _, table := range tables {
			var text string
			err := c.QueryRow(h.T.Context(),
				`select coalesce(string_agg(r::text, E'\n'), '') from `+table+` r`).Scan(&text)
			if err != nil {
				return err
			}
			fmt.Fprintf(&all, "%s:\n%s\n", table, text)
		}
		return nil
	})
	return all.String()
}

// holding returns the files below a folder that have a text.
func holding(t *testing.T, dir, text string) (paths []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		b, err := os.ReadFile(path)
		if bytes.Contains(b, []byte(text)) {
			paths = append(paths, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return paths
}

// The real pi, launched in an environment of a house, has the house's secret, and prints it with a tool. Its value is
// in no entry, no output of a program, no command line, no file but those of the agent itself, and in no row of the
// onDatabase but sealed.
func TestFullSecretOfPi(t *testing.T) {
	t.Parallel()
	const secret = "pg-login-8a7b6c5d4e3f"
	h := scene.NewHost(t, scene.Bash("env; echo \"it is $DB_LOGIN\"; until [ -e go ]; do sleep 0.01; done"),
		scene.Say("It is "+secret+"."))
	database := withRows(h)
	set := h.Command("secret", "set", "--house", "house1", "DB_LOGIN")
	set.Stdin = strings.NewReader(secret + "\n")
	printed, err := set.CombinedOutput()
	if err != nil {
		t.Fatalf("arbe secret set: %v\n%s", err, printed)
	}
	launch := h.Command(h.With("launch", []string{
		"--house", "house1", "--environment", "env1", "--", "print the login",
	})...)
	var out, said bytes.Buffer
	launch.Stdout, launch.Stderr = &out, &said
	if err := launch.Start(); err != nil {
		t.Fatal(err)
	}
	noArgument := func() {
		t.Helper()
		if pids := processesWith(t, secret, ""); len(pids) > 0 {
			t.Errorf("the secret is on the command lines of the processes %v", pids)
		}
	}
	ended := make(chan error, 1)
	go func() { ended <- launch.Wait() }()
	scene.Until(t, "the launch", func() bool {
		noArgument()
		select {
		case err = <-ended:
			return true
		default:
			return false
		}
	})
	if err != nil {
		t.Fatalf("arbe launch: %v\n%s%s", err, &said, &out)
	}
	var l scene.Launched
	if err := json.Unmarshal(out.Bytes(), &l); err != nil {
		t.Fatalf("%v in %s", err, &out)
	}
	h.Thread = l.ThreadID
	printed = append(append(printed, out.Bytes()...), said.Bytes()...)
	scene.Until(t, "the agent's tool", func() bool { return len(processesWith(t, "until [ -e go ]", l.WorkDir)) > 0 })
	noArgument()
	if err := os.WriteFile(filepath.Join(l.WorkDir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	h.Ends(l.ThreadID)

	requests := h.Model.Requests()
	if len(requests) != 2 || !strings.Contains(string(requests[1].Body), "it is "+secret) {
		t.Errorf("the agent did not have the secret: %d requests", len(requests))
	}
	var entries strings.Builder
	for _, e := range h.Entries() {
		entries.Write(thread.Marshal(e))
	}
	if got := entries.String(); !strings.Contains(got, "it is [redacted:DB_LOGIN]") ||
		!strings.Contains(got, "It is [redacted:DB_LOGIN].") {
		t.Errorf("the thread does not have the tool's output: %.4000s", got)
	}
	for _, args := range [][]string{
		{"thread", "read", h.Thread},
		{"thread", "status", h.Thread, "--json"},
		{"secret", "list", "--house", "house1"},
		{"ls"},
		{"sandbox", "list"},
	} {
		out, err := h.Try(args...)
		if err != nil {
			t.Errorf("arbe %v: %v\n%s", args, err, out)
		}
		printed = append(printed, out...)
	}
	rows := dump(h, database)
	if !strings.Contains(rows, "DB_LOGIN") || !strings.Contains(rows, "public.secret_values:\n(") {
		t.Errorf("the database does not have the secret:\n%s", rows)
	}
	for what, text := range map[string]string{
		"an entry": entries.String(), "what programs print": string(printed), "a row": rows,
	} {
		for _, form := range []string{
			secret, hex.EncodeToString([]byte(secret)), base64.StdEncoding.EncodeToString([]byte(secret)),
		} {
			if strings.Contains(text, form) {
				t.Errorf("%s has %s", what, form)
			}
		}
	}
	own := 0 // files of the agent in its box: what it has printed, and its session
	for _, path := range holding(t, h.Dir, secret) {
		if own++; !strings.Contains(path, "/.arbe/sessions/") && !strings.HasSuffix(path, "/"+l.RunID+"/stdout") {
			t.Errorf("the secret is in %s", path)
		}
	}
	if own == 0 {
		t.Error("no file of the agent's has the secret: this test looks in the wrong folder")
	}
}

// processesWith returns the processes whose command line has a text, and that work in dir, unless it is "".
func processesWith(t *testing.T, text, dir string) (pids []string) {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	for _, proc := range all {
		b, err := os.ReadFile(filepath.Join(proc, "cmdline"))
		if err != nil || !bytes.Contains(b, []byte(text)) {
			continue // it has ended, or is another one
		}
		if cwd, err := os.Readlink(filepath.Join(proc, "cwd")); dir == "" || err == nil && cwd == dir {
			pids = append(pids, filepath.Base(proc))
		}
	}
	return pids
}
