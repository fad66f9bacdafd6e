package figures_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"arbe.0sk.ar/runner/internal/test/scene"

	"github.com/jackc/pgx/v5"

	"arbe.0sk.ar/runner/internal/test/postgres"
	"arbe.0sk.ar/runner/thread"
)

// BenchmarkDelegate: from a member's request for a task to the answer, which has the task's thread: its row is there
// then, and agent_spawn is durable on the thread that delegates. A new house's server, over HTTP.
func BenchmarkDelegate(b *testing.B) {
	const member, bot = "5d3c1a52-6b5e-4c6e-9c1a-0f1e2d3c4b5a", "7d3c1a52-6b5e-4c6e-9c1a-0f1e2d3c4b5a"
	h := newTaskServer(b, `
		insert into houses (id, name) values ('h1', 'one');
		insert into agents (id, kind, runtime) values ('`+member+`', 'human', null), ('`+bot+`', 'bot', 'pi');
		insert into members (house_id, agent_id, role) values ('h1', '`+member+`', 'owner'), ('h1', '`+bot+`', 'member');
		insert into environments (id, house_id, name) values ('e1', 'h1', 'base');
		insert into threads (id, house_id, stream_id, environment_id) values ('p1', 'h1', 'p1', 'e1')`)
	login := h.arbe("token", "mint", "--scope", "member", "--agent", member)
	delegate := func(i int) time.Duration {
		body := fmt.Appendf(nil, `{"task":"task %d"}`, i)
		req, err := http.NewRequest(http.MethodPost, h.url+"/api/threads/p1/tasks", bytes.NewReader(body))
		if err != nil {
			b.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Authorization", "Bearer "+login)
		began := time.Now()
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			b.Fatal(err)
		}
		out, err := io.ReadAll(resp.Body)
		took := time.Since(began)
		if err := errors.Join(err, resp.Body.Close()); err != nil || resp.StatusCode != http.StatusCreated {
			b.Fatalf("%s %s %v", resp.Status, out, err)
		}
		return took
	}
	delegate(0) // opens the connections
	var all []time.Duration
	for i := range b.N {
		all = append(all, delegate(i+1))
	}
	if n := strings.Count(h.arbe("thread", "read", "p1"), thread.TypeAgentSpawn); n != b.N+1 {
		b.Errorf("%d of %d tasks are on the thread", n, b.N+1)
	}
	report(b, "delegate", all)
	b.ReportMetric(0, "ns/op")
}

// taskServer is an arbe serve with a database.
type taskServer struct {
	b   *testing.B
	env []string
	url string
}

func newTaskServer(b *testing.B, rows string) *taskServer {
	programs, err := postgres.Find()
	if err != nil {
		b.Fatal(err)
	}
	pg, err := postgres.Start(programs)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := pg.Stop(); err != nil {
			b.Error(err)
		}
	})
	if err := pg.Template(b.Context(), nil); err != nil {
		b.Fatal(err)
	}
	database, err := pg.New(b.Context(), "arbe")
	if err != nil {
		b.Fatal(err)
	}
	data := b.TempDir()
	h := &taskServer{b: b, env: []string{"HOME=" + data, "ARBE_DATA=" + data, "ARBE_DATABASE=" + database}}
	h.arbe("db", "migrate")
	c, err := pgx.Connect(b.Context(), database)
	if err != nil {
		b.Fatal(err)
	}
	_, err = c.Exec(b.Context(), rows)
	if err := errors.Join(err, c.Close(b.Context())); err != nil {
		b.Fatal(err)
	}
	cmd := h.command("serve", "--addr", "127.0.0.1:0")
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := errors.Join(cmd.Process.Signal(syscall.SIGTERM), cmd.Wait()); err != nil {
			b.Error(err)
		}
	})
	var address []byte
	scene.Until(b, "the server's address", func() bool {
		address, err = os.ReadFile(filepath.Join(data, "address"))
		return err == nil && len(address) > 0
	})
	h.url = strings.TrimSpace(string(address))
	return h
}

func (h *taskServer) command(args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(scene.Bin, "arbe"), args...)
	cmd.Env = append(os.Environ(), h.env...)
	return cmd
}

func (h *taskServer) arbe(args ...string) string {
	h.b.Helper()
	out, err := h.command(args...).Output()
	if err != nil {
		h.b.Fatalf("arbe %v: %v", args, err)
	}
	return strings.TrimSpace(string(out))
}
