package main

import (
	"errors"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"arbe.0sk.ar/runner/internal/test/model"
	"arbe.0sk.ar/runner/internal/test/postgres"
)

// What two terminals show while a bot answers: one that asks, and one that follows the thread.
const botsTitle = "A bot that answers"

const botsText = "A person asks a bot of a house, and another one follows the thread: each line stands there\n" +
	"as it comes. The command that asks ends with the answer. In a pipe both print whole replies alone."

// botsAnswer is the bot's reply.
const botsAnswer = "Three of them, on two files:\n\n1. a haiku about silence\n2. a look at three services\n" +
	"3. a minute of waiting, whose runner was killed"

// bots has a bot answer a person, and returns the screens.
func (s *stage) bots() (screens []string, err error) {
	programs, err := postgres.Find()
	if err != nil {
		return nil, err
	}
	server, err := postgres.Start(programs)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, server.Stop()) }()
	database := ""
	if err = server.Template(s.ctx, nil); err == nil {
		database, err = server.New(s.ctx, "arbe")
	}
	if err != nil {
		return nil, err
	}
	h := &house{stage: *s}
	h.env = append(h.env, "ARBE_DATABASE="+database, "ARBE_SECRET_KEYS="+filepath.Join(s.dir, "keys"))
	thread := h.make()
	if h.err != nil {
		return nil, h.err
	}
	provider := httptest.NewServer(&model.Server{Script: model.Script{Replies: []model.Reply{
		{Text: botsAnswer, Pace: model.Duration(100 * time.Millisecond)},
	}}})
	defer provider.Close()
	dispatch := h.command(s.dir, "arbe", "dispatch", "--model-url", "anthropic="+provider.URL)
	if err := dispatch.Start(); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, dispatch.Process.Signal(os.Interrupt), dispatch.Wait()) }()
	return h.watch(thread)
}

// house is a stage with a house, whose bot is Piet.
type house struct {
	stage
	err error
}

// run runs a command, and returns what it prints. After the first error it does nothing.
func (h *house) run(input string, args ...string) string {
	if h.err != nil {
		return ""
	}
	cmd := h.command(h.dir, "arbe", args...)
	cmd.Stdin = strings.NewReader(input)
	out, err := cmd.Output()
	if err != nil {
		h.err = fmt.Errorf("arbe %s: %w", strings.Join(args, " "), err)
	}
	return strings.TrimSpace(string(out))
}

// make makes the house, and returns a thread of it.
func (h *house) make() (thread string) {
	h.run("", "db", "migrate")
	ann := h.run("", "agent", "create", "--kind", "human", "Ann")
	h.run("", "agent", "create", "--kind", "bot", "--runtime", "pi", "Piet")
	house := h.run("", "house", "create", "Workshop", "--owner", "Ann")
	h.env = append(h.env, "ARBE_HOUSE="+house, "ARBE_AUTHOR_ID="+ann)
	h.run("", "member", "add", "Piet")
	h.run("", "agent", "set", "Piet", "--model", "anthropic/scripted-1")
	h.run("", "secret", "key", "new", filepath.Join(h.dir, "keys"))
	h.run("scripted-key-0001", "secret", "set", "ANTHROPIC_API_KEY")
	return h.run("", "thread", "new", "--name", "Tests")
}

// watch asks on one terminal and follows on another.
func (h *house) watch(thread string) (screens []string, err error) {
	var terminals [2]terminal
	for i := range terminals {
		work, err := os.MkdirTemp(h.dir, "work-")
		if err != nil {
			return nil, err
		}
		terminals[i] = terminal{&h.stage, filepath.Join(work, ".tmux")}
		if err := terminals[i].open(work); err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, terminals[i].close()) }()
	}
	if err := terminals[0].typeLine(`arbe say ` + thread + ` --wait "@Piet what ran here?"`); err != nil {
		return nil, err
	}
	err = until(h.ctx, "the question", func() (bool, error) {
		out, err := h.command(h.dir, "arbe", "thread", "read", thread).Output()
		return len(out) > 0, err
	})
	if err == nil {
		err = terminals[1].typeLine("arbe thread tail " + thread)
	}
	if err != nil {
		return nil, err
	}
	for _, at := range []struct {
		n    int
		want string
	}{{1, `1\. a haiku about`}, {0, `(?s)killed.*\n\$$`}, {1, `killed$`}} {
		screen, err := terminals[at.n].await(regexp.MustCompile(at.want))
		if err != nil {
			return nil, err
		}
		screens = append(screens, screen)
	}
	return screens, nil
}
