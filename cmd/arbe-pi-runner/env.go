package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

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
	s := settings{http: client.NewHTTP()}
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
		u, err := url.Parse(base)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.RawQuery != "" ||
			u.Fragment != "" {
			problem("ARBE_STREAM_URL is no base URL: want one like https://host/api/stream")
		}
		s.base = thread.BaseURL(base)
		if err == nil && u.User != nil {
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
	s.author = getenv("ARBE_AUTHOR_ID")
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

// signalled is the cause of a context that ended by a signal.
type signalled struct{ sig os.Signal }

func (s signalled) Error() string {
	if n, ok := s.sig.(syscall.Signal); ok {
		return unix.SignalName(n)
	}
	return s.sig.String()
}

// enough is the number of signals after which the program gives up at once.
const enough = 3

// untilSignal returns two contexts. The first ends with the first TERM, INT or HUP; the second with a second INT, from
// a person who presses Ctrl-C again, or with a third signal of any kind, from a supervisor. stop ends both and waits
// for the goroutine. The signals in before count as received now. Each later one is logged: the kernel may deliver
// several that come at once as one.
func untilSignal(
	parent context.Context, log *slog.Logger, before ...syscall.Signal,
) (first, second context.Context, stop func()) {
	signals := []os.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP}
	if signal.Ignored(syscall.SIGHUP) {
		signals = signals[:2] // under nohup
	}
	came := make(chan os.Signal, 4)
	signal.Notify(came, signals...)
	first, end := context.WithCancelCause(parent)
	second, abandon := context.WithCancelCause(context.WithoutCancel(parent))
	quit, done := make(chan struct{}), make(chan struct{})
	n := 0
	take := func(sig os.Signal) {
		if n++; n >= enough || n > 1 && sig == syscall.SIGINT {
			abandon(signalled{sig})
		}
		end(signalled{sig})
	}
	for _, sig := range before {
		take(sig)
	}
	go func() {
		defer close(done)
		for {
			select {
			case sig := <-came:
				take(sig)
				left := enough - n
				if sig == syscall.SIGINT {
					left = min(left, 1)
				}
				if second.Err() != nil {
					left = 0
				}
				log.Info("signal received", "signal", signalled{sig}.Error(), "more_to_give_up", left)
			case <-quit:
				return
			}
		}
	}()
	return first, second, func() {
		signal.Stop(came)
		close(quit)
		<-done
		end(nil)
		abandon(nil)
	}
}

// ignoreBrokenPipe keeps the program alive without a reader of its stderr, as after arbe launch.
func ignoreBrokenPipe() (stop func()) {
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGPIPE)
	return func() { signal.Stop(c) }
}
