package rows_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"arbe.0sk.ar/runner/internal/test/model"
	"arbe.0sk.ar/runner/internal/test/scene"
	"arbe.0sk.ar/runner/thread"
)

const pietsID = "7d3c1a52-6b5e-4c6e-9c1a-0f1e2d3c4b5a"

// withPiet returns a host with a house whose bot piet has a model, and a thread of the house.
func withPiet(t *testing.T, replies ...model.Reply) *scene.Host {
	t.Helper()
	h := scene.NewHost(t, replies...)
	url := withRows(h)
	h.Thread = h.Arbe("thread", "new")
	onDatabase(h, url, func(c *pgx.Conn) error {
		_, err := c.Exec(t.Context(),
			`insert into threads (id, house_id, stream_id) values ($1, 'house1', $1)`, h.Thread)
		return err
	})
	for _, args := range [][]string{
		{"agent", "set", pietsID, "--name", "piet", "--model", "anthropic/scripted-1"},
		{"secret", "set", "--house", "house1", "ANTHROPIC_API_KEY"},
	} {
		cmd := h.Command(args...)
		cmd.Stdin = strings.NewReader("scripted-key-0001")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("arbe %q: %v\n%s", args, err, out)
		}
	}
	return h
}

// dispatching starts arbe dispatch, and stops it when the test ends.
func dispatching(h *scene.Host) {
	h.T.Helper()
	line := h.Command("dispatch", "--model-url", "anthropic="+h.Url)
	cmd := exec.Command(line.Path, line.Args[1:]...) // it outlives the test's context
	var said bytes.Buffer
	cmd.Env, cmd.Stderr = line.Env, &said
	if err := cmd.Start(); err != nil {
		h.T.Fatal(err)
	}
	h.T.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // it may have ended
		if err := cmd.Wait(); err != nil {
			h.T.Errorf("arbe dispatch: %v\n%s", err, &said)
		}
	})
}

// background is an arbe say that runs.
type background struct {
	cmd         *exec.Cmd
	out, screen *scene.Seen // stdout, stderr
}

func say(h *scene.Host, args ...string) background {
	h.T.Helper()
	s := background{h.Command(append([]string{"say", h.Thread, "--wait"}, args...)...), &scene.Seen{}, &scene.Seen{}}
	s.cmd.Stdout, s.cmd.Stderr = s.out, s.screen
	if err := s.cmd.Start(); err != nil {
		h.T.Fatal(err)
	}
	return s
}

// status returns the exit status, once it has ended.
func (s background) status() int {
	var failed *exec.ExitError
	if err := s.cmd.Wait(); errors.As(err, &failed) {
		return failed.ExitCode()
	} else if err != nil {
		return -1
	}
	return 0
}

// A person asks a bot and waits: while no host dispatches the command reports that, and then it prints the answer. The
// decision on the chat can be explained before and after.
func TestSayToBot(t *testing.T) {
	t.Parallel()
	h := withPiet(t, model.Reply{Text: "There are three."})
	if s := say(h, "hello"); s.status() != 75 || !strings.Contains(s.screen.String(), "no bot answers it: name one") {
		t.Errorf("a chat that names nobody: %s", s.screen)
	}
	s := say(h, "@piet how many?")
	scene.Until(t, "the command reports that nobody dispatches", func() bool {
		return strings.Contains(s.screen.String(), "does arbe dispatch run?")
	})
	chat := ""
	for _, e := range h.Entries() {
		if scene.Payload[thread.Chat](t, e).Text == "@piet how many?" {
			chat = e.ID
		}
	}
	explain := func(args ...string) string {
		t.Helper()
		out, err := h.Try(append([]string{"dispatch", "explain"}, args...)...)
		if err != nil {
			t.Fatalf("explain: %v\n%s", err, out)
		}
		return out
	}
	want := chat + ": no host has decided; one would decide now, depth 1\n  piet  react: it is named\n"
	if got := explain(h.Thread, chat); got != want {
		t.Errorf("explained as\n%s\nwant\n%s", got, want)
	}
	if n := len(h.Entries()); n != 2 {
		t.Errorf("explain leaves %d entries on the thread, want 2", n)
	}
	dispatching(h)
	if status := s.status(); status != 0 || s.out.String() != "There are three.\n" {
		t.Errorf("status %d, %q\n%s", status, s.out, s.screen)
	}
	got := explain(h.Thread, chat)
	if !strings.Contains(got, ": decided at 20") || !strings.Contains(got, "  piet  react: it is named\n    x_") ||
		!strings.Contains(got, ": answered, 1 round, 0 calls, ") || !strings.Contains(got, "anthropic/scripted-1") {
		t.Errorf("explained as\n%s", got)
	}
	var x struct {
		Decided   bool
		Bots      []struct{ Name, Decision, Reason string }
		Reactions []struct {
			Name, Outcome  string
			Rounds, Claims int
			Chats          []string
		}
	}
	if err := json.Unmarshal([]byte(explain("--json", h.Thread, chat)), &x); err != nil || !x.Decided ||
		len(x.Bots) != 1 || x.Bots[0].Name != "piet" || len(x.Reactions) != 1 || x.Reactions[0].Outcome != "answered" ||
		x.Reactions[0].Rounds != 1 || x.Reactions[0].Claims != 1 || x.Reactions[0].Chats[0] != chat {
		t.Errorf("explained as %+v, %v", x, err)
	}
	tail, err := h.Try("thread", "tail", "--no-wait", h.Thread)
	if err != nil || !strings.Contains(tail, "\npiet (bot) ") || !strings.Contains(tail, "\nThere are three.\n") {
		t.Errorf("the tail has\n%s, %v", tail, err)
	}
	got = explain(h.Thread, thread.DecidedID(chat))
	if !strings.Contains(got, "it is neither a chat nor a bot's reply") {
		t.Errorf("explained as %s", got)
	}
}

// left returns what is left on a terminal of a text that redraws its last line.
func left(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		lines[i] = line[strings.LastIndex(line, "\r\x1b[K")+1:]
	}
	return strings.Join(lines, "\n")
}

// On a terminal the answer comes while the bot writes it, and stands there once. An answer that is cancelled ends.
func TestSayOnTerminal(t *testing.T) {
	t.Parallel()
	const words = "one two three four five six seven eight nine ten"
	slow := model.Reply{Text: words + " " + words, Pace: model.Duration(100 * time.Millisecond)}
	endless := model.Reply{Text: strings.Repeat(words+" ", 500), Pace: model.Duration(100 * time.Millisecond)}
	slow.When, endless.When = "count", "forever"
	h := withPiet(t, slow, endless)
	dispatching(h)
	start := func(text string) (*exec.Cmd, *os.File, *scene.Seen) {
		t.Helper()
		line := h.Command("say", h.Thread, "--wait", text)
		cmd, _, tty, screen := h.ForTerminal()
		cmd.Path, cmd.Args, cmd.Err, cmd.Env = line.Path, line.Args, nil, line.Env
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		return cmd, tty, screen
	}

	cmd, tty, screen := start("@piet count")
	if err := cmd.Wait(); err != nil {
		t.Errorf("say: %v", err)
	}
	if _, err := tty.WriteString("$ "); err != nil {
		t.Fatal(err)
	}
	scene.Until(t, "the screen is whole", func() bool { return strings.HasSuffix(screen.String(), "$ ") })
	if got := left(screen.String()); strings.Count(got, "piet (bot)") != 1 || strings.Count(got, words) != 2 ||
		strings.Count(got, "one") != 2 {
		t.Errorf("the screen has %q", got)
	}

	cmd, _, screen = start("@piet forever")
	scene.Until(t, "words are on the screen", func() bool { return strings.Contains(screen.String(), words) })
	out, err := h.Try("cancel", "--wait", h.Thread)
	if err != nil || !strings.Contains(out, "to end its reaction x_") || !strings.HasSuffix(out, "\ncancelled\n") {
		t.Errorf("cancel: %v\n%s", err, out)
	}
	if err := cmd.Wait(); err == nil || cmd.ProcessState.ExitCode() != 1 {
		t.Errorf("say: %v", err)
	}
	scene.Until(t, "the reason is on the screen", func() bool {
		return strings.Contains(screen.String(), "piet was stopped")
	})
}
