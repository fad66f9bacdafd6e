// Command captures plays real runs of pi and claude-code, against a scripted model, and writes what a terminal of 80
// columns and 24 rows shows of them into a document. "make captures" calls it with both binaries built and both agents
// installed.
package main

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"arbe.0sk.ar/runner/internal/procfs"
	"arbe.0sk.ar/runner/internal/test/agents"
	"arbe.0sk.ar/runner/internal/test/model"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: captures BIN DOCUMENT")
		os.Exit(64)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := captures(ctx, os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "captures:", err)
		os.Exit(1)
	}
}

// capture is one run, and what is typed and seen meanwhile.
type capture struct {
	title, text  string
	harness      string
	version      string
	prompt       string
	replies      []model.Reply
	kill         *regexp.Regexp   // once the screen has it, the runner and its agent are killed
	screens      []*regexp.Regexp // the screen is captured once it has these, one after the other
	typed        string           // the command, with ID for the thread
	then         string           // a command that is typed next, once its output has silent
	withoutAgent bool
}

const shell = "bash"

func call(name string, commands ...string) (tools []model.Tool) {
	for _, c := range commands {
		tools = append(tools, model.Tool{Name: name, Arguments: map[string]any{"command": c, "description": c}})
	}
	return tools
}

var (
	silent = regexp.MustCompile(`no entry from the runner`)
	ended  = regexp.MustCompile(`(?m)^\s*[✔✘-] `)
	all    = []capture{
		{
			title: "A run", harness: "pi", version: "0.78.0", typed: "arbe thread tail ID",
			text:   "A person follows a run with `arbe thread tail`. The demo, `make demo`, plays it in a box.",
			prompt: "Write a haiku about silence into haiku.txt",
			replies: []model.Reply{
				{
					Text: "I will write the haiku into a file and read it back.",
					Pace: model.Duration(20 * time.Millisecond),
					Tools: call(shell, `printf 'The box is silent.\nIs it dead, or is it thinking?\nA heartbeat answers.\n' `+
						`> haiku.txt && sleep 3 && cat haiku.txt`),
				},
				{Text: "Done: haiku.txt has three lines."},
			},
			screens: []*regexp.Regexp{ended},
		},
		{
			title: "Three parallel tools", harness: "claude-code", version: "2.1.329", typed: "arbe thread tail ID",
			text: "claude-code calls three tools at once, and the first one takes the longest. Each result names\n" +
				"its call.",
			prompt: "Check the three services",
			replies: []model.Reply{
				{Tools: call("Bash", "sleep 4; echo database: ok", "echo queue: ok", "sleep 1; echo cache: ok")},
				{Text: "All three are up."},
			},
			screens: []*regexp.Regexp{ended},
		},
		{
			title: "A failure", harness: "pi", version: "0.78.0", typed: "arbe thread tail ID",
			text:   "The provider refuses the key. The last lines have the agent's own words.",
			prompt: "Write a haiku",
			replies: []model.Reply{
				{Status: 401, Message: "invalid x-api-key", Times: -1},
			},
			screens: []*regexp.Regexp{ended},
		},
		{
			title: "A dead run", harness: "pi", version: "0.78.0", typed: "arbe thread tail ID",
			text: "The runner and its agent are killed, as if the box had lost its power. After three missed\n" +
				"heartbeats, which come every second here, the live line has it.",
			prompt: "Wait a minute",
			replies: []model.Reply{
				{Text: "I wait.", Tools: call(shell, "sleep 60")},
			},
			kill:    regexp.MustCompile(`(?s)I wait\..*quiet for`), // a heartbeat has come, which has the next one's time
			screens: []*regexp.Regexp{silent}, then: "arbe thread status ID",
		},
		{
			title: "The list", typed: "arbe ls", withoutAgent: true,
			text:    "`arbe ls` has all of these runs, newest first.",
			screens: []*regexp.Regexp{regexp.MustCompile(`(?s)haiku.*\n\$$`)},
		},
	}
)

// stage is shared by the captures: a server, and a folder.
type stage struct {
	ctx      context.Context
	bin, dir string
	url      string
	env      []string // of its commands, beside the common ones
}

func captures(ctx context.Context, bin, document string) (err error) {
	if bin, err = filepath.Abs(bin); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "arbe-captures-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	s := &stage{ctx: ctx, bin: bin, dir: dir}
	serve := s.command(dir, "arbe", "serve", "--addr", "127.0.0.1:0")
	if err := serve.Start(); err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, serve.Process.Signal(os.Interrupt), serve.Wait())
	}()
	err = until(ctx, "the server", func() (bool, error) {
		b, err := os.ReadFile(filepath.Join(dir, "data", "address"))
		s.url = strings.TrimSpace(string(b))
		return err == nil && s.url != "", nil
	})
	if err != nil {
		return err
	}
	var doc strings.Builder
	doc.WriteString("# What a terminal shows\n\nReal runs in a terminal of 80 columns and 24 rows, played by " +
		"`make captures` against a scripted model. Colours are\nmissing here.\n")
	for _, c := range all {
		fmt.Fprintln(os.Stderr, time.Now().Format(time.TimeOnly), c.title)
		screens, err := s.play(c)
		if err != nil {
			return fmt.Errorf("%s: %w", c.title, err)
		}
		write(&doc, c.title, c.text, screens)
	}
	fmt.Fprintln(os.Stderr, time.Now().Format(time.TimeOnly), botsTitle)
	screens, err := s.bots()
	if err != nil {
		return fmt.Errorf("%s: %w", botsTitle, err)
	}
	write(&doc, botsTitle, botsText, screens)
	return os.WriteFile(document, []byte(doc.String()), 0o644)
}

// write writes a part of the document.
func write(doc *strings.Builder, title, text string, screens []string) {
	fmt.Fprintf(doc, "\n## %s\n\n%s\n", title, text)
	for _, screen := range screens {
		fmt.Fprintf(doc, "\n```text\n%s\n```\n", screen)
	}
}

// command returns a command of the stage, in its folder, with more variables.
func (s *stage) command(dir, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(s.ctx, filepath.Join(s.bin, name), args...)
	cmd.Dir = dir
	cmd.Env = []string{
		"HOME=" + s.dir, "PATH=" + s.bin + ":" + os.Getenv("PATH"), "LANG=C.UTF-8", "LC_ALL=C.UTF-8", "TZ=UTC",
		"ARBE_DATA=" + filepath.Join(s.dir, "data"), "ARBE_STATE_DIR=" + filepath.Join(s.dir, "state"),
	}
	cmd.Env = append(cmd.Env, s.env...)
	cmd.WaitDelay = 10 * time.Second
	return cmd
}

// play plays a capture and returns its screens.
func (s *stage) play(c capture) (screens []string, err error) {
	work, err := os.MkdirTemp(s.dir, "work-")
	if err != nil {
		return nil, err
	}
	id := ""
	var run *exec.Cmd
	if !c.withoutAgent {
		b, err := s.command(work, "arbe", "thread", "new").Output()
		if err != nil {
			return nil, err
		}
		id = strings.TrimSpace(string(b))
		end, cmd, err := s.run(c, work, id)
		if err != nil {
			return nil, err
		}
		defer end()
		run = cmd
		err = until(s.ctx, "the run", func() (bool, error) {
			out, err := s.command(work, "arbe", "thread", "status", id).Output()
			return strings.HasPrefix(string(out), "running"), err
		})
		if err != nil {
			return nil, err
		}
	}
	t := terminal{s, filepath.Join(work, ".tmux")}
	if err := t.open(work); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, t.close()) }()
	if err := t.typeLine(strings.ReplaceAll(c.typed, "ID", id)); err != nil {
		return nil, err
	}
	if c.kill != nil {
		if _, err := t.await(c.kill); err != nil {
			return nil, err
		}
		if err := killTree(run.Process.Pid); err != nil {
			return nil, err
		}
	}
	for _, want := range c.screens {
		screen, err := t.await(want)
		if err != nil {
			return nil, err
		}
		screens = append(screens, screen)
	}
	if c.then == "" {
		return screens, nil
	}
	then := strings.Fields(strings.ReplaceAll(c.then, "ID", id))
	err = until(s.ctx, c.then, func() (bool, error) {
		out, err := s.command(work, then[0], then[1:]...).CombinedOutput()
		return silent.Match(out), err
	})
	if err != nil {
		return nil, err
	}
	for _, keys := range [][]string{{"C-c"}, {"-R"}, {"C-l"}} {
		if _, err := t.tmux(append([]string{"send-keys"}, keys...)...); err != nil {
			return nil, err
		}
	}
	if err := t.typeLine(strings.Join(then, " ")); err != nil {
		return nil, err
	}
	screen, err := t.await(silent)
	return append(screens, screen), err
}

// run starts the agent's run on the thread. end ends what is left of it.
func (s *stage) run(c capture, work, id string) (end func(), cmd *exec.Cmd, err error) {
	agent, err := agents.Find(c.harness, c.version)
	if err != nil {
		return nil, nil, err
	}
	provider := httptest.NewServer(&model.Server{Script: model.Script{Replies: c.replies}})
	home := filepath.Join(work, ".home")
	if err := agent.Home(home, provider.URL, 100); err != nil {
		return nil, nil, err
	}
	token, err := s.command(work, "arbe", "token", "mint", "--thread", id).Output()
	if err != nil {
		return nil, nil, err
	}
	args := []string{"run", "--harness", c.harness}
	if agent.Model != "" {
		args = append(args, "--model", agent.Model)
	}
	cmd = s.command(work, "arbe-pi-runner", append(args, "--", c.prompt)...)
	cmd.Env = append(append(cmd.Env, agent.Env(home)...),
		"ARBE_THREAD_ID="+id, "ARBE_STREAM_URL="+s.url, "ARBE_STREAM_TOKEN="+strings.TrimSpace(string(token)),
		"ARBE_HEARTBEAT=1s", "ARBE_AUTHOR_ID=you")
	if err := cmd.Start(); err != nil {
		return nil, nil, err
	}
	return func() {
		_ = cmd.Wait() // its verdict is on the thread
		provider.CloseClientConnections()
		provider.Close()
	}, cmd, nil
}

// killTree kills a process and all below it.
func killTree(pid int) error {
	// A process that is stopped starts no other one.
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		return err
	}
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, path := range tasks {
		b, _ := os.ReadFile(path) // a thread may have ended
		for child := range strings.FieldsSeq(string(b)) {
			n := 0
			if _, err := fmt.Sscan(child, &n); err != nil {
				return err
			}
			if err := killTree(n); err != nil && !errors.Is(err, syscall.ESRCH) {
				return err
			}
		}
	}
	return syscall.Kill(pid, syscall.SIGKILL)
}

// terminal is a tmux server with one shell.
type terminal struct {
	*stage
	socket string
}

func (t terminal) tmux(args ...string) (string, error) {
	cmd := exec.CommandContext(t.ctx, "tmux", append([]string{"-S", t.socket, "-f", "/dev/null"}, args...)...)
	cmd.Env = t.command("", "arbe").Env
	out, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("tmux %s: %w: %s", args[0], err, out)
	}
	return string(out), err
}

func (t terminal) open(dir string) error {
	_, err := t.tmux("new-session", "-d", "-x", "80", "-y", "24", "-c", dir,
		"exec env 'PS1=$ ' bash --noprofile --norc -i")
	if err == nil {
		_, err = t.tmux("set-option", "status", "off")
	}
	if err == nil {
		_, err = t.await(regexp.MustCompile(`^\$`))
	}
	return err
}

// close ends the server, and waits for the processes of its shell: one that is about to end writes its history.
func (t terminal) close() error {
	pane, err := t.tmux("display-message", "-p", "#{pane_pid}")
	if err == nil {
		_, err = t.tmux("kill-server")
	}
	if err != nil {
		return err
	}
	session, err := strconv.Atoi(strings.TrimSpace(pane))
	if err != nil {
		return err
	}
	return awaitSession(t.ctx, session)
}

// awaitSession waits until all processes of a session have ended.
func awaitSession(ctx context.Context, session int) error {
	return until(ctx, fmt.Sprintf("the end of session %d", session), func() (bool, error) {
		dirs, err := filepath.Glob("/proc/[0-9]*")
		for _, dir := range dirs {
			pid, _ := strconv.Atoi(filepath.Base(dir))
			if st, err := procfs.Read(pid); err == nil && st.Session == session && st.Alive() {
				return false, nil
			}
		}
		return true, err
	})
}

func (t terminal) typeLine(line string) error {
	_, err := t.tmux("send-keys", "-l", line)
	if err == nil {
		_, err = t.tmux("send-keys", "Enter")
	}
	return err
}

// await returns the screen once it matches.
func (t terminal) await(want *regexp.Regexp) (screen string, err error) {
	err = until(t.ctx, want.String(), func() (bool, error) {
		text, err := t.tmux("capture-pane", "-p")
		screen = strings.TrimRight(text, "\n")
		return want.MatchString(screen), err
	})
	if err != nil {
		err = fmt.Errorf("%w; the screen has\n%s", err, screen)
	}
	return strings.TrimRight(strings.TrimSuffix(screen, "\n$"), "\n"), err
}

// until waits until a condition holds, for a minute at most.
func until(ctx context.Context, what string, holds func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		if ok, err := holds(); ok || err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("waited in vain for %s", what)
		}
	}
}
