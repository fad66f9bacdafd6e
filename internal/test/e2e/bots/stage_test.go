package bots_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"arbe.0sk.ar/runner/internal/test/model"
	"arbe.0sk.ar/runner/internal/test/postgres"
	"arbe.0sk.ar/runner/internal/test/scene"
	"arbe.0sk.ar/runner/thread"
)

// The members of the house.
const (
	ann  = "5d3c1a52-6b5e-4c6e-9c1a-0f1e2d3c4b5a"
	piet = "7d3c1a52-6b5e-4c6e-9c1a-0f1e2d3c4b5a"
)

// key is the house's key of its provider.
const key = "sk-scripted-5e4d3c2b1a"

// house is a house with a human and a bot, whose model is scripted, and with an arbe serve for its threads.
type house struct {
	testing.TB
	pg       *postgres.Server
	database string
	data     string
	model    *model.Server
	env      []string
	logs     []*buffer
	asked    chan time.Time // the model, now; nobody need receive it
	left     chan time.Time // a request of it ends before its reply; likewise
	pid      int            // of the program that was started last
}

// buffer is the log of a program.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func newHouse(t testing.TB, replies ...model.Reply) *house {
	pg, url := postgres.Own(t)
	h := &house{
		TB: t, pg: pg, database: url, data: t.TempDir(),
		model: &model.Server{Script: model.Script{Replies: replies}},
	}
	h.asked, h.left = make(chan time.Time, 1), make(chan time.Time, 1)
	provider := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		note(h.asked)
		defer func() { // it panics where the host has gone
			if r.Context().Err() != nil {
				note(h.left)
			}
		}()
		h.model.ServeHTTP(w, r)
	}))
	t.Cleanup(provider.Close)
	keys := filepath.Join(h.data, "keys")
	h.env = []string{
		"HOME=" + h.data, "ARBE_DATA=" + h.data, "ARBE_DATABASE=" + h.database, "ARBE_SECRET_KEYS=" + keys,
		"MODEL=" + provider.URL,
	}
	h.arbe("", "db", "migrate")
	h.arbe("", "secret", "key", "new", keys)
	h.sql(`insert into houses (id, name, dispatch_since) values ('h1', 'lab', '2020-01-01')`,
		`insert into agents (id, kind, runtime, name) values ('`+ann+`', 'human', null, 'ann'),
			('`+piet+`', 'bot', 'pi', 'piet')`,
		`update agents set config = '{"model": "anthropic/scripted"}' where kind = 'bot'`,
		`insert into members (house_id, agent_id, role, joined_at) values ('h1', '`+ann+`', 'owner', '2020-01-01'),
			('h1', '`+piet+`', 'member', '2020-01-01')`)
	h.arbe(key, "secret", "set", "--house", "h1", "ANTHROPIC_API_KEY")
	return h
}

// note sends the time, unless nobody has received the last one.
func note(to chan time.Time) {
	select {
	case to <- time.Now():
	default:
	}
}

// sql changes rows.
func (h *house) sql(statements ...string) {
	h.Helper()
	ctx := context.WithoutCancel(h.Context())
	c, err := pgx.Connect(ctx, h.database)
	if err != nil {
		h.Fatal(err)
	}
	for _, s := range statements {
		if _, err := c.Exec(ctx, s); err != nil {
			h.Fatal(err)
		}
	}
	if err := c.Close(ctx); err != nil {
		h.Fatal(err)
	}
}

// count returns the number of rows of a table.
func (h *house) count(table string) (n int) {
	h.Helper()
	ctx := context.WithoutCancel(h.Context())
	c, err := pgx.Connect(ctx, h.database)
	if err == nil {
		err = errors.Join(c.QueryRow(ctx, "select count(*) from "+table).Scan(&n), c.Close(ctx))
	}
	if err != nil {
		h.Fatal(err)
	}
	return n
}

func (h *house) command(args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(scene.Bin, "arbe"), args...)
	cmd.Env = append(os.Environ(), h.env...)
	return cmd
}

// arbe runs a command to its end, and returns its output.
func (h *house) arbe(stdin string, args ...string) string {
	h.Helper()
	cmd := h.command(args...)
	var out, said bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &said
	if err := cmd.Run(); err != nil {
		h.Fatalf("arbe %v: %v\n%s", args, err, said.String())
	}
	h.logs = append(h.logs, &buffer{b: said})
	return strings.TrimSpace(out.String())
}

// start starts a command that lasts until stop is called, or the test ends.
func (h *house) start(args ...string) (stop func()) {
	h.Helper()
	cmd, log := h.command(args...), &buffer{}
	cmd.Stderr = log
	h.logs = append(h.logs, log)
	if err := cmd.Start(); err != nil {
		h.Fatal(err)
	}
	h.pid = cmd.Process.Pid
	stop = sync.OnceFunc(func() {
		if err := errors.Join(cmd.Process.Signal(syscall.SIGTERM), cmd.Wait()); err != nil {
			h.Errorf("arbe %v: %v\n%s", args, err, log)
		}
	})
	h.Cleanup(func() {
		if stop(); h.Failed() {
			h.Logf("arbe %v:\n%s", args, log)
		}
	})
	return stop
}

// serve starts the thread server.
func (h *house) serve(args ...string) (stop func()) {
	h.Helper()
	stop = h.start(append([]string{"serve", "--addr", "127.0.0.1:0"}, args...)...)
	scene.Until(h, "the server's address", func() bool {
		b, err := os.ReadFile(filepath.Join(h.data, "address"))
		return err == nil && len(b) > 0
	})
	return stop
}

// dispatch starts a host that dispatches, with further flags. It is up: before, a signal would kill it.
func (h *house) dispatch(flags ...string) (stop func()) {
	h.Helper()
	stop = h.start(h.dispatching(append([]string{"dispatch"}, flags...)...)...)
	log := h.logs[len(h.logs)-1]
	scene.Until(h, "a host that is up", func() bool { return strings.Contains(log.String(), "answering on threads") })
	return stop
}

// dispatching returns a command with the address of the scripted model.
func (h *house) dispatching(args ...string) []string {
	for _, v := range h.env {
		if url, is := strings.CutPrefix(v, "MODEL="); is {
			args = append(args, "--model-url", "anthropic="+url)
		}
	}
	return args
}

// thread makes a thread.
func (h *house) thread() (id string) {
	h.Helper()
	return h.arbe("", "thread", "new", "--house", "h1")
}

// say posts a chat of ann's.
func (h *house) say(id, text string) { h.Helper(); h.arbe("", "say", "--author", ann, id, "--", text) }

// entries returns those of a thread.
func (h *house) entries(id string) (all []thread.Entry) {
	h.Helper()
	for line := range strings.Lines(h.arbe("", "thread", "read", id)) {
		var e thread.Entry
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			h.Fatal(err)
		}
		all = append(all, e)
	}
	return all
}

// ends returns the ends of a thread's reactions.
func (h *house) ends(id string) (all []thread.ReactionFinished) {
	h.Helper()
	for _, e := range h.entries(id) {
		if p := scene.Payload[thread.ReactionFinished](h.TB.(*testing.T), e); p.Type == thread.TypeReactionFinished {
			all = append(all, p)
		}
	}
	return all
}
