package main

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	arbe "arbe.0sk.ar/runner"
	"arbe.0sk.ar/runner/cmd/internal/cmdline"
	"arbe.0sk.ar/runner/harness"
	"arbe.0sk.ar/runner/runner"
	"arbe.0sk.ar/runner/thread"
	"arbe.0sk.ar/runner/thread/client"
	"arbe.0sk.ar/runner/thread/redact"
)

// settings are the settings from the environment.
type settings struct {
	thread    string
	base      string
	token     func() (string, error)
	renew     string
	author    string
	runID     string
	state     string
	sandbox   *thread.Sandbox
	next      int // index of the first line to mirror; 0 if not set
	guard     time.Duration
	guardWhy  string
	heartbeat time.Duration
	redact    *redact.Redactor
	http      *http.Client // this process's
}

// envHelp has the variables without a flag.
const envHelp = `Environment:
  ARBE_STREAM_TOKEN        a write token for the thread; required without a token file
  ARBE_STREAM_RENEW_TOKEN  a token that renews the write token, for a run that outlives it`

// readSettings reads the environment. Its error lists all problems. late is for a run that has begun: a missing token
// file is no problem then, since it may come back.
func readSettings(getenv func(string) string, environ []string, late bool) (settings, error) {
	s := settings{http: client.NewHTTPOf("arbe-pi-runner/" + arbe.This().String())}
	var problems []string
	problem := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }

	switch s.thread = getenv("ARBE_THREAD_ID"); {
	case s.thread == "":
		problem("ARBE_THREAD_ID is not set")
	case !thread.ValidThread(s.thread):
		problem("ARBE_THREAD_ID %q: want 1 to 128 characters of A-Z a-z 0-9 _ -", s.thread)
	}
	switch base := getenv("ARBE_STREAM_URL"); {
	case base == "":
		problem("ARBE_STREAM_URL is not set")
	default:
		if err := client.CheckAddress(base); err != nil {
			problem("ARBE_STREAM_URL is %v", err)
		}
		s.base = thread.BaseURL(base)
		if u, err := url.Parse(base); err == nil && u.User != nil {
			password, given := u.User.Password()
			if !given {
				password = u.User.Username() // a token, mostly
			}
			environ = append(slices.Clone(environ), "ARBE_STREAM_URL_PASSWORD="+password)
		}
	}
	if s.renew = getenv("ARBE_STREAM_RENEW_TOKEN"); strings.ContainsAny(s.renew, " \t\r\n") {
		problem("ARBE_STREAM_RENEW_TOKEN has white space in it")
	}
	token, file := getenv("ARBE_STREAM_TOKEN"), getenv("ARBE_STREAM_TOKEN_FILE")
	switch {
	case file != "":
		s.token = client.FileToken(file)
		secret, err := s.token()
		if err != nil && !late {
			problem("ARBE_STREAM_TOKEN_FILE: %v", err)
		}
		environ = append(slices.Clone(environ), "ARBE_STREAM_TOKEN="+secret) // the agent may have read it, too
	case token == "":
		problem("ARBE_STREAM_TOKEN is not set, and ARBE_STREAM_TOKEN_FILE isn't either")
	case strings.ContainsAny(token, " \t\r\n"):
		problem("ARBE_STREAM_TOKEN has white space in it")
	default:
		s.token = client.StaticToken(token)
	}
	s.author, s.guardWhy = getenv("ARBE_AUTHOR_ID"), getenv("ARBE_PI_TIMEOUT_REASON")
	if s.runID = getenv("ARBE_RUN_ID"); s.runID != "" && !thread.ValidRun(s.runID) {
		problem("ARBE_RUN_ID %q: want 1 to 128 characters of A-Z a-z 0-9 _ ~ -", s.runID)
	}
	if box := getenv("ARBE_SANDBOX"); box != "" {
		provider, ref, ok := strings.Cut(box, ":")
		if !ok || provider == "" || ref == "" {
			problem("ARBE_SANDBOX %q: want provider:ref", box)
		}
		s.sandbox = &thread.Sandbox{Provider: provider, Ref: ref}
	}
	duration := func(name string) time.Duration {
		text := getenv(name)
		if text == "" {
			return 0
		}
		d, err := time.ParseDuration(text)
		if err != nil || d <= 0 {
			problem("%s %q: want a duration like 90s or 72h", name, text)
		}
		return d
	}
	if text := getenv("ARBE_PI_MIRROR_NEXT_INDEX"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 0 {
			problem("ARBE_PI_MIRROR_NEXT_INDEX %q: want the index of a line, from 0", text)
		}
		s.next = n
	}
	s.guard, s.heartbeat = duration("ARBE_PI_TIMEOUT"), duration("ARBE_HEARTBEAT")
	var err error
	if s.state, err = stateDir(getenv); err != nil {
		problem("%v", err)
	}
	names := strings.FieldsFunc(getenv("ARBE_REDACT"), func(r rune) bool { return r == ',' || r == ' ' })
	s.redact = redact.New(environ, names)
	if file != "" {
		s.redact.AddFile("ARBE_STREAM_TOKEN", file) // the tokens to come
	}
	if home := harness.Home(getenv); home != "" {
		s.redact.AddListed(home)
	}
	if problems != nil {
		return s, &cmdline.Exit{
			Status: runner.StatusConfig,
			Cause:  errors.New("the environment is incomplete or wrong:\n  " + strings.Join(problems, "\n  ")),
		}
	}
	return s, nil
}

// stateDir returns the folder of this machine's runs.
func stateDir(getenv func(string) string) (string, error) {
	if dir := getenv("ARBE_STATE_DIR"); dir != "" {
		return filepath.Abs(dir)
	}
	home := harness.Home(getenv)
	if home == "" {
		return "", errors.New("neither ARBE_STATE_DIR nor HOME is set, and this account has no home folder")
	}
	return filepath.Join(home, ".arbe"), nil
}

func (s settings) client(log *slog.Logger) *client.Client {
	return &client.Client{Base: s.base, Thread: s.thread, Token: s.token, Renew: s.renew, Log: log, HTTP: s.http}
}

// cleanEnviron returns an environment without the secrets and settings of the runner.
func cleanEnviron(environ []string) []string {
	return slices.DeleteFunc(slices.Clone(environ), func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		return !runner.AgentMaySee(name)
	})
}

// with returns an environment in which a variable has a value.
func with(environ []string, name, value string) []string {
	is := func(kv string) bool { return strings.HasPrefix(kv, name+"=") }
	return append(slices.DeleteFunc(slices.Clone(environ), is), name+"="+value)
}

// variables are the variables that have a flag. Tokens have none: other users of the machine can read arguments.
var variables = []struct{ flag, variable, usage string }{
	{"thread", "ARBE_THREAD_ID", "write to the thread `ID` (required)"},
	{"url", "ARBE_STREAM_URL", "use the thread server at `URL` (required)"},
	{"token-file", "ARBE_STREAM_TOKEN_FILE", "read the write token from `FILE`, again when it changes; or set " +
		"ARBE_STREAM_TOKEN"},
	{"author", "ARBE_AUTHOR_ID", "`AUTHOR` of the entries"},
	{"redact", "ARBE_REDACT", "treat the values of the variables in `NAMES`, separated by commas, as secrets; those " +
		"with KEY, TOKEN, SECRET or PASSWORD in their name always are"},
	{"state-dir", "ARBE_STATE_DIR", "keep runs and sessions in `FOLDER` (default: ~/.arbe)"},
	{"run-id", "ARBE_RUN_ID", "open the run with the id `RUN` (default: a new one)"},
	{"timeout", "ARBE_PI_TIMEOUT", "end an agent that hangs after `DURATION` (default: 72h)"},
	{"heartbeat", "ARBE_HEARTBEAT", "post a heartbeat every `DURATION` (default: 5s)"},
	{"next-index", "ARBE_PI_MIRROR_NEXT_INDEX", "the thread has the lines of --session before line `N`"},
	{"sandbox", "ARBE_SANDBOX", "name the box on the thread: `PROVIDER:ID`"},
}

// onThread are the flags of commands that use a thread.
var onThread = []string{"thread", "url", "token-file", "author", "redact"}

// variableFlags returns the flags with these names.
func variableFlags(names ...string) (flags []cli.Flag) {
	for _, v := range variables {
		if slices.Contains(names, v.flag) {
			flags = append(flags, &cli.StringFlag{Name: v.flag, Usage: v.usage + " [$" + v.variable + "]"})
		}
	}
	return flags
}

// outrank puts the flags of the command line in the place of their variables. A worker has them in its environment.
func (p *program) outrank(c *cli.Context) error {
	if p.job != nil {
		return nil
	}
	for _, v := range variables {
		if slices.Contains(c.LocalFlagNames(), v.flag) {
			p.environ = with(p.environ, v.variable, c.String(v.flag))
		}
	}
	return nil
}
