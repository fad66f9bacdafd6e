// Package fakeagent is an agent for tests of timing and faults. It takes pi's command line, writes a session in pi's
// format, and follows a plan file, one instruction a line:
//
//	user TEXT                                           a user's turn
//	say TEXT, cut TEXT, fail TEXT, abort                a reply that ends with stop, length, error, aborted
//	call NAME, result TEXT                              a reply that calls a tool; the tool's result
//	tool FILE                                           a tool in a session of its own, until somebody ends it;
//	                                                    its pid is in FILE, its result in the session
//	big BYTES                                           a tool's result of that length
//	bulk BYTES                                          the same, written piece by piece, so that it takes no memory
//	skew DURATION                                       the clock jumps, for the lines that follow
//	eat BYTES                                           so much memory is taken, and used
//	line JSON, half TEXT                                a line as it is; text without a newline
//	prompt                                              the prompt as pi got it, as a user's turn
//	print TEXT, warn TEXT                               to stdout, to stderr
//	flood BYTES                                         so much to stdout
//	gush FILE                                           from now on to stdout, at full speed, until FILE exists
//	env NAME                                            NAME=value to stdout
//	sleep DURATION, wait FILE, touch FILE               time passes; until there is such a file; make one
//	ignore SIGNAL, on SIGNAL STATUS                     don't end of it; end with that status
//	grandchild FILE                                     leave a process in a session of its own that keeps stdout; its
//	                                                    pid is in FILE
//	converse FILE                                       pi's --mode rpc until stdin ends; FILE has the messages
//	truncate, delete, replace                           the session file: emptied in place; gone; another file with
//	                                                    the same content
//	die SIGNAL, exit STATUS                             the end; without one it is exit 0
package fakeagent

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// PlanVar names the variable that holds the plan file's path. A test binary whose TestMain sees it set is the agent.
const PlanVar = "FAKE_AGENT_PLAN"

// agent is the state of a plan under way.
type agent struct {
	session string
	prompt  string
	parent  string
	n       int // lines written
	calls   int
	skew    time.Duration
	eaten   []byte
}

// Main is the agent's life. It returns the status to exit with.
func Main() int {
	if err := new(agent).run(os.Args[1:], os.Getenv(PlanVar)); err != nil {
		fmt.Fprintln(os.Stderr, "fakeagent:", err)
		return 97
	}
	return 0
}

func (a *agent) run(args []string, plan string) error {
	for i, arg := range args {
		if arg == "--session" && i+1 < len(args) {
			a.session = args[i+1]
		}
		if arg == "-p" && i+1 < len(args) {
			a.prompt = args[i+1]
		}
	}
	if !slices.Contains(args, "rpc") {
		stdin, err := io.ReadAll(os.Stdin)
		if err != nil {
			return err
		}
		a.prompt = strings.TrimSpace(string(stdin)) + a.prompt
	}
	f, err := os.Open(plan)
	if err != nil {
		return err
	}
	defer f.Close()
	a.parent = "start"
	if b, err := os.ReadFile(a.session); err == nil { // a session to resume
		for _, id := range regexp.MustCompile(`"id":"m([0-9]+)"`).FindAllStringSubmatch(string(b), -1) {
			if n, err := strconv.Atoi(id[1]); err == nil {
				a.n, a.parent = n, "m"+id[1]
			}
		}
	}
	lines := bufio.NewScanner(f)
	for n := 1; lines.Scan(); n++ {
		text := strings.TrimSpace(lines.Text())
		if text == "" || strings.HasPrefix(text, "#") {
			continue
		}
		verb, rest, _ := strings.Cut(text, " ")
		if err := a.do(verb, rest); err != nil {
			return fmt.Errorf("%s:%d: %s: %w", plan, n, text, err)
		}
	}
	return lines.Err()
}

func (a *agent) do(verb, rest string) error {
	reply := func(stop, text, more string) error {
		return a.message(
			fmt.Sprintf(`{"role":"assistant","content":[{"type":"text","text":%q}%s],"provider":"fake","model":"fake-1",`+
				`"usage":{"input":10,"output":2,"totalTokens":12,"cost":{"total":0.5}},"stopReason":%q,"errorMessage":%q}`, text, more, stop, text),
		)
	}
	switch verb {
	case "converse":
		return a.converse(rest)
	case "user":
		return a.message(fmt.Sprintf(`{"role":"user","content":%q}`, rest))
	case "prompt":
		text, err := json.Marshal(a.prompt)
		if err != nil {
			return err
		}
		return a.message(`{"role":"user","content":` + string(text) + `}`)
	case "say":
		return reply("stop", rest, "")
	case "cut":
		return reply("length", rest, "")
	case "fail":
		return reply("error", rest, "")
	case "abort":
		return reply("aborted", rest, "")
	case "call":
		a.calls++
		return reply(
			"toolUse",
			"calling",
			fmt.Sprintf(`,{"type":"toolCall","id":"c%d","name":%q,"arguments":{}}`, a.calls, rest),
		)
	case "result":
		return a.message(
			fmt.Sprintf(
				`{"role":"toolResult","toolCallId":"c%d","toolName":"bash","content":[{"type":"text","text":%q}],"isError":false}`,
				a.calls,
				rest,
			),
		)
	case "tool":
		cmd, err := lasting(rest)
		if err != nil {
			return err
		}
		how := "ended"
		if err := cmd.Wait(); err != nil {
			how = err.Error()
		}
		return a.do("result", how)
	case "big":
		n, err := strconv.Atoi(rest)
		if err != nil {
			return err
		}
		return a.do("result", strings.Repeat("0123456789abcde ", n/16))
	case "bulk":
		n, err := strconv.Atoi(rest)
		if err != nil {
			return err
		}
		return a.bulk(n)
	case "skew":
		d, err := time.ParseDuration(rest)
		a.skew += d
		return err
	case "eat":
		n, err := strconv.Atoi(rest)
		if err == nil {
			a.eaten = bytes.Repeat([]byte{1}, n)
		}
		return err
	case "line":
		return a.write(rest + "\n")
	case "half":
		return a.write(rest)
	case "print":
		_, err := fmt.Println(rest)
		return err
	case "warn":
		_, err := fmt.Fprintln(os.Stderr, rest)
		return err
	case "flood":
		n, err := strconv.ParseInt(rest, 10, 64)
		if err == nil {
			_, err = io.CopyN(os.Stdout, zeroes{}, n)
		}
		return err
	case "gush":
		go func() {
			for _, err := os.Stat(rest); err != nil; _, err = os.Stat(rest) {
				if _, err := io.CopyN(os.Stdout, zeroes{}, 1<<20); err != nil {
					return
				}
			}
		}()
		return nil
	case "env":
		value, ok := os.LookupEnv(rest)
		if !ok {
			value = "(unset)"
		}
		_, err := fmt.Printf("%s=%s\n", rest, value)
		return err
	case "sleep":
		d, err := time.ParseDuration(rest)
		time.Sleep(d) // as the plan has it
		return err
	case "wait":
		await(rest, nil)
		return nil
	case "touch":
		return os.WriteFile(rest, nil, 0o600)
	case "grandchild":
		_, err := lasting(rest)
		return err
	case "truncate":
		return os.Truncate(a.session, 0)
	case "delete":
		return os.Remove(a.session)
	case "replace":
		b, err := os.ReadFile(a.session)
		if err == nil {
			err = os.WriteFile(a.session+".new", b, 0o600)
		}
		if err == nil {
			err = os.Rename(a.session+".new", a.session)
		}
		return err
	}
	return a.end(verb, rest)
}

// lasting starts a process in a session of its own that keeps our output open. Its pid is in file, as a whole or not at
// all, and nothing else of it runs then.
func lasting(file string) (*exec.Cmd, error) {
	cmd := exec.Command("sleep", "300")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	err := os.WriteFile(file+".new", fmt.Appendln(nil, cmd.Process.Pid), 0o600)
	if err == nil {
		err = os.Rename(file+".new", file)
	}
	return cmd, err
}

// end does what has to do with the agent's end.
func (a *agent) end(verb, rest string) error {
	name, status, _ := strings.Cut(rest, " ")
	sig := signals[name]
	switch verb {
	case "exit":
		n, err := strconv.Atoi(rest)
		if err != nil {
			return err
		}
		os.Exit(n)
	case "ignore":
		signal.Ignore(sig)
		return nil
	case "on":
		n, err := strconv.Atoi(status)
		if err != nil {
			return err
		}
		came := make(chan os.Signal, 1)
		signal.Notify(came, sig)
		go func() {
			<-came
			os.Exit(n)
		}()
		return nil
	case "die":
		if err := syscall.Kill(os.Getpid(), sig); err != nil {
			return err
		}
		select {} // it comes at once
	}
	return fmt.Errorf("no such instruction")
}

var signals = map[string]syscall.Signal{
	"TERM": syscall.SIGTERM, "INT": syscall.SIGINT, "HUP": syscall.SIGHUP, "KILL": syscall.SIGKILL,
}

// message writes a message's line, as pi does: with an id, its parent and the time.
func (a *agent) message(body string) error {
	a.n++
	id := fmt.Sprintf("m%d", a.n)
	line := fmt.Sprintf(
		`{"type":"message","id":%q,"parentId":%q,"timestamp":%q,"message":%s}`,
		id,
		a.parent,
		time.Now().Add(a.skew).UTC().Format("2006-01-02T15:04:05.000Z"),
		body,
	)
	a.parent = id
	return a.write(line + "\n")
}

// bulk writes a tool's result of n bytes in pieces.
func (a *agent) bulk(n int) error {
	f, err := os.OpenFile(a.session, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	a.n++
	id := fmt.Sprintf("m%d", a.n)
	_, err = fmt.Fprintf(f, `{"type":"message","id":%q,"parentId":%q,"timestamp":%q,"message":{"role":"toolResult",`+
		`"toolCallId":"c%d","toolName":"bash","content":[{"type":"text","text":"`,
		id, a.parent, time.Now().Add(a.skew).UTC().Format("2006-01-02T15:04:05.000Z"), a.calls)
	a.parent = id
	for piece := strings.Repeat("0123456789abcde ", 1<<12); err == nil && n > 0; n -= len(piece) {
		_, err = io.WriteString(f, piece[:min(n, len(piece))])
	}
	if err == nil {
		_, err = io.WriteString(f, `"}],"isError":false}}`+"\n")
	}
	return errors.Join(err, f.Close())
}

// write appends to the session as pi does: opened, written once, closed.
func (a *agent) write(text string) error {
	f, err := os.OpenFile(a.session, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	if _, err := io.WriteString(f, text); err != nil {
		return err
	}
	return f.Close()
}

// zeroes reads as lines of zeroes.
type zeroes struct{}

func (zeroes) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = '0'
		if i%100 == 99 {
			b[i] = '\n'
		}
	}
	return len(b), nil
}
