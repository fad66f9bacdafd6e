package rows_test

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"

	"arbe.0sk.ar/runner/host/dispatch"
	"arbe.0sk.ar/runner/internal/test/model"
	"arbe.0sk.ar/runner/internal/test/scene"
	"arbe.0sk.ar/runner/thread"
)

const annsID = "5d3c1a52-6b5e-4c6e-9c1a-0f1e2d3c4b5a"

// drivenByPiet returns a host with a thread of a house that piet drives, in local boxes that have pi.
func drivenByPiet(t *testing.T, replies ...model.Reply) *scene.Host {
	t.Helper()
	h := scene.NewHostOf(t, "0.87.1", replies...)
	database := withRows(h)
	h.Thread = h.Arbe("thread", "new")
	onDatabase(h, database, func(c *pgx.Conn) error {
		for _, args := range [][]any{
			{`update houses set dispatch_since = '2020-01-01'`},
			{`update agents set name = 'piet'`},
			{`insert into agents (id, kind, name) values ($1, 'human', 'ann')`, annsID},
			{`insert into members (house_id, agent_id, role) values ('house1', $1, 'member')`, annsID},
			{`insert into environments (id, house_id, name, runtime, config)
				values ('driven1', 'house1', 'driven', 'local', $1)`, h.BoxOfPi()},
			{
				`insert into threads (id, stream_id, house_id, environment_id, agent_id, status)
					values ($1, $1, 'house1', 'driven1', $2, 'idle')`, h.Thread, pietsID,
			},
		} {
			if _, err := c.Exec(t.Context(), args[0].(string), args[1:]...); err != nil {
				return err
			}
		}
		return nil
	})
	return h
}

// drives starts an arbe dispatch that reaches the server at an address, and that may use local boxes.
func drives(h *scene.Host, server string) *exec.Cmd {
	h.T.Helper()
	args := append([]string{"dispatch", "--local-boxes"}, h.With("", nil)[3:]...)
	line := h.Command(args...)
	cmd, said := exec.Command(line.Path, line.Args[1:]...), &scene.Seen{} // it outlives the test's context
	cmd.Env, cmd.Stderr = append(line.Env, "ARBE_STREAM_URL="+server, "ARBE_BOX_STREAM_URL="+scene.Server), said
	if err := cmd.Start(); err != nil {
		h.T.Fatal(err)
	}
	h.T.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // it may have ended
		_ = cmd.Wait()                          // which the log has
		if h.T.Failed() {
			h.T.Logf("arbe dispatch:\n%s", said)
		}
	})
	return cmd
}

// trap is a way to the tests' server on which one append is held, and lost when it is let go.
type trap struct {
	*httptest.Server
	holds atomic.Bool
	lost  chan struct{}
}

func newTrap(t *testing.T, text string) *trap {
	to, err := url.Parse(scene.Server)
	if err != nil {
		t.Fatal(err)
	}
	x := &trap{lost: make(chan struct{})}
	proxy := httputil.NewSingleHostReverseProxy(to)
	proxy.FlushInterval = -1
	x.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		if bytes.Contains(body, []byte(text)) {
			x.holds.Store(true)
			<-x.lost
			panic(http.ErrAbortHandler)
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		x.CloseClientConnections()
		x.Close()
	})
	return x
}

// chatOfAnn posts a chat of ann's, and returns its id.
func chatOfAnn(h *scene.Host, text string) string {
	h.T.Helper()
	cmd := h.Command("say", "--author", annsID, h.Thread, "--", text)
	out, err := cmd.Output()
	if err != nil {
		h.T.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

// Chats on a thread that a bot drives: a host launches a run, another one where it is killed between the decision and
// the launch. A chat that comes while the run lasts is the run's, and the next one behind it gets another run, in the
// same box. No chat is had twice.
func TestFullDriven(t *testing.T) {
	t.Parallel()
	h := drivenByPiet(t, scene.Say("First."), scene.Say("Second."), scene.Say("Third."))
	x := newTrap(t, thread.TypeClaim)
	first := drives(h, x.URL)
	one := chatOfAnn(h, "one")
	scene.Until(t, "a launch", func() bool { return x.holds.Load() })
	if err := first.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	close(x.lost)
	if all := scene.TextOf(h.Entries()); strings.Count(all, thread.TypeDecided) != 1 ||
		strings.Contains(all, thread.TypeStatus) {
		t.Fatalf("not between the decision and the launch: %s", all)
	}
	drives(h, scene.Server)
	drives(h, scene.Server)

	waits := func(n int) {
		t.Helper()
		scene.Until(t, "the agent waits again", func() bool {
			return strings.Count(scene.TextOf(h.Entries()), thread.TypeWaiting) >= n
		})
	}
	waits(1)
	s := say(h, "--author", annsID, "two")
	if status := s.status(); status != 0 || s.out.String() != "completed\n" {
		t.Errorf("status %d, %q\n%s", status, s.out, s.screen)
	}
	waits(2)
	h.Arbe("say", h.Thread, "--end")
	h.Ends(h.Thread)
	s = say(h, "--author", annsID, "three")
	if status := s.status(); status != 0 || s.out.String() != "completed\n" {
		t.Errorf("status %d, %q\n%s", status, s.out, s.screen)
	}
	waits(3)
	h.Arbe("say", h.Thread, "--end")
	h.Ends(h.Thread)

	var fold thread.Fold
	var pending thread.Pending
	var had, chats []string
	for _, e := range h.Entries() {
		fold.Add(e)
		pending.Add(e)
		line, _ := thread.ParseMirrored(e.Payload)
		if line.Names() {
			had = append(had, line.Named()...)
		} else if line.Type == thread.TypeChat && line.Session == nil {
			chats = append(chats, e.ID)
		}
	}
	if !slices.Equal(had, chats) || len(chats) != 3 || chats[0] != one || len(pending.Chats()) > 0 {
		t.Errorf("runs had %v of %v, and %d are pending", had, chats, len(pending.Chats()))
	}
	want := []string{dispatch.RunOf(h.Thread, chats[0]), dispatch.RunOf(h.Thread, chats[2])}
	var got []string
	for _, r := range fold.Runs() {
		got = append(got, r.ID)
		if r.Status != thread.StatusCompleted || r.Started == nil || !r.Started.Live || r.Ephemeral {
			t.Errorf("the run is %+v", r)
		}
	}
	if !slices.Equal(got, want) {
		t.Fatalf("the runs %v, want %v", got, want)
	}
	if how := fold.Runs()[1].Started.Resume; how != "continue" {
		t.Errorf("the second run has its session by %s", how)
	}
	if n := len(h.Model.Requests()); n != 3 {
		t.Errorf("the model was asked %d times", n)
	}
	out, err := h.Try("dispatch", "explain", h.Thread, one)
	shown := "  piet  react: it drives the thread: a run takes the chat\n    run " + want[0] + ": completed\n"
	if err != nil || !strings.HasSuffix(out, shown) {
		t.Errorf("%v, explained as\n%s\nwant\n%s", err, out, shown)
	}
}
