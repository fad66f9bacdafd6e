package dispatch_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"arbe.0sk.ar/runner/host/rows"
	"arbe.0sk.ar/runner/host/token"
	"arbe.0sk.ar/runner/internal/test/botchaos"
	"arbe.0sk.ar/runner/internal/test/port"
	"arbe.0sk.ar/runner/internal/test/postgres"
	"arbe.0sk.ar/runner/thread"
	"arbe.0sk.ar/runner/thread/client"
)

// secret signs all tokens.
const secret = "a-secret-of-thirty-two-bytes-and-more"

// People and bots.
const (
	ann  = "0a000000-0000-4000-8000-000000000001"
	bob  = "0b000000-0000-4000-8000-000000000002"
	piet = "0d000000-0000-4000-8000-000000000003"
	alma = "0e000000-0000-4000-8000-000000000004"
	gus  = "0f000000-0000-4000-8000-000000000005"
)

var people = []string{ann, bob}

// houses are the bots of each house, by its id.
var houses = map[string][]botchaos.Bot{
	"quiet": {{ID: piet, Name: "piet", Mode: rows.ModeMention}, {ID: alma, Name: "alma", Mode: rows.ModeMention}},
	"ready": {{ID: piet, Name: "piet", Mode: rows.ModeAlways}, {ID: alma, Name: "alma", Mode: rows.ModeMention}},
	"attent": {
		{ID: piet, Name: "piet", Mode: rows.ModeMention},
		{ID: alma, Name: "alma", Mode: rows.ModeAmbient},
		{ID: gus, Name: "gus", Mode: rows.ModeMention},
	},
}

// houseNames are the keys of houses, which schedules take in turns.
var houseNames = []string{"quiet", "ready", "attent"}

// world is a Postgres with houses, a log with its servers, and a model.
type world struct {
	t       *testing.T
	db      string // address
	env     []string
	servers []*server
	model   *asked
	tokens  map[string]string // of people

	commands string // the file to which bots' commands append; "" for none
}

// newWorld starts a world with one server on a log of its own.
func newWorld(t *testing.T) *world {
	t.Helper()
	w := emptyWorld(t)
	w.serve()
	return w
}

// emptyWorld is a world without a server.
func emptyWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, tokens: map[string]string{}, model: newModel(t)}
	programs, err := postgres.Find()
	if err != nil {
		t.Fatal(err)
	}
	pg, err := postgres.Start(programs)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := pg.Stop(); err != nil {
			t.Error(err)
		}
	})
	if err := pg.Template(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if w.db, err = pg.New(t.Context(), "bots"); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	w.env = []string{
		"HOME=" + dir, "PATH=" + os.Getenv("PATH"), "DURABLE_STREAMS_SECRET=" + secret, "ARBE_DATABASE=" + w.db,
		"ARBE_SECRET_KEYS=" + filepath.Join(dir, "keys"),
	}
	w.arbe("", "db", "migrate")
	w.exec(`insert into agents (id, kind, runtime, name) values ($1, 'human', null, 'ann'), ($2, 'human', null, 'bob'),
		($3, 'bot', 'pi', 'piet'), ($4, 'bot', 'pi', 'alma'), ($5, 'bot', 'pi', 'gus')`, ann, bob, piet, alma, gus)
	for bot, provider := range map[string]string{"piet": "anthropic", "alma": "openai", "gus": "anthropic"} {
		w.arbe("", "agent", "set", bot, "--model", provider+"/scripted")
	}
	w.arbe("", "secret", "key", "new", filepath.Join(dir, "keys"))
	for id, bots := range houses {
		w.house(id, bots, "--ambient-delay", "500ms")
	}
	for _, person := range people {
		w.tokens[person] = strings.TrimSpace(w.arbe("", "token", "mint", "--scope", "member", "--agent", person))
	}
	return w
}

// house makes a house with its bots, which have the same settings besides their modes.
func (w *world) house(id string, bots []botchaos.Bot, settings ...string) {
	w.t.Helper()
	w.exec("insert into houses (id, name) values ($1, $1)", id)
	w.exec("insert into members (house_id, agent_id, role) values ($1, $2, 'owner'), ($1, $3, 'member')", id, ann, bob)
	for _, b := range bots {
		w.exec("insert into members (house_id, agent_id, role) values ($1, $2, 'member')", id, b.ID)
		w.arbe("", append([]string{"member", "set", b.Name, "--house", id, "--mode", b.Mode}, settings...)...)
	}
	for _, name := range []string{"ANTHROPIC_API_KEY", "OPENAI_API_KEY"} {
		w.arbe("sk-the-key-of-"+id, "secret", "set", "--house", id, name)
	}
}

// command is arbe with an environment.
func (w *world) command(env []string, args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(bin, "arbe"), args...)
	cmd.Env = append(append([]string{}, w.env...), env...)
	return cmd
}

// arbe runs a command with a text as its stdin, and returns what it prints.
func (w *world) arbe(input string, args ...string) string {
	w.t.Helper()
	cmd := w.command(nil, args...)
	cmd.Stdin = strings.NewReader(input)
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	if err := cmd.Run(); err != nil {
		w.t.Fatalf("arbe %v: %v: %s", args, err, &said)
	}
	return out.String()
}

// exec executes a statement as the owner of the rows.
func (w *world) exec(sql string, args ...any) {
	w.t.Helper()
	c, err := pgx.Connect(w.t.Context(), w.db)
	if err != nil {
		w.t.Fatal(err)
	}
	_, err = c.Exec(w.t.Context(), sql, args...)
	if err := errors.Join(err, c.Close(context.WithoutCancel(w.t.Context()))); err != nil {
		w.t.Fatalf("%s: %v", sql, err)
	}
}

// server is an arbe serve.
type server struct {
	addr string
	cmd  *exec.Cmd
	log  output
}

// serve starts a server, with further flags, and waits until it is there.
func (w *world) serve(flags ...string) *server {
	w.t.Helper()
	v := &server{addr: port.Reserve(w.t)}
	data := w.t.TempDir()
	args := append([]string{"serve", "--addr", v.addr, "--reconcile=false"}, flags...)
	v.cmd = w.command([]string{"ARBE_DATA=" + data}, args...)
	v.cmd.Stderr = &v.log
	if err := v.cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		_ = v.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
		if err := v.cmd.Wait(); err != nil {
			w.t.Errorf("arbe serve: %v\n%s", err, &v.log)
		}
	})
	until(w.t, "the server's address", func() bool {
		b, err := os.ReadFile(filepath.Join(data, "address"))
		return err == nil && len(b) > 0
	})
	w.servers = append(w.servers, v)
	return v
}

// client returns a client of a thread at a server.
func (w *world) client(v *server, id string) *client.Client {
	signed, err := token.Sign([]byte(secret), token.Grant{
		Stream: thread.StreamName(id), Scope: []string{token.ScopeWrite}, Until: time.Now().Add(time.Hour),
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return &client.Client{Base: thread.BaseURL("http://" + v.addr), Thread: id, Token: client.StaticToken(signed)}
}

// output keeps what a process prints.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// Write implements io.Writer.
func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(b)
}

// String returns what has come so far.
func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}
