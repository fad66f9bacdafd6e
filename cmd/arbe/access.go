package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"arbe.0sk.ar/runner/cmd/internal/cmdline"
	"arbe.0sk.ar/runner/host/daemon"
	"arbe.0sk.ar/runner/host/token"
	"arbe.0sk.ar/runner/thread"
	"arbe.0sk.ar/runner/thread/client"
)

// client returns a client of one thread, whose tokens have this scope.
func (c command) client(threadID, scope string) (*client.Client, error) {
	if !thread.ValidThread(threadID) {
		return nil, badThread(threadID)
	}
	cl, err := c.clientOf(thread.StreamName(threadID), scope)
	if err == nil {
		cl.Thread = threadID
	}
	return cl, err
}

func badThread(id string) error {
	return cmdline.Usage("thread id %q: want 1 to 128 characters of A-Z a-z 0-9 _ -", id)
}

// reading returns a client of the thread that is the only argument, which reads.
func (c command) reading(ctx context.Context) (*client.Client, error) {
	id, err := c.one(ctx)
	if err != nil {
		return nil, err
	}
	return c.client(id, token.ScopeRead)
}

// writing returns a client of the thread that is the first argument, which writes.
func (c command) writing(ctx context.Context) (*client.Client, error) {
	id, err := c.toChange(ctx, c.arg(0))
	if err != nil {
		return nil, err
	}
	return c.client(id, token.ScopeWrite)
}

// clientOf returns a client of no thread, whose tokens have this subject and scope.
func (c command) clientOf(subject, scope string) (*client.Client, error) {
	d, url, err := c.server()
	if err != nil {
		return nil, err
	}
	tokens, err := tokensFor(d, url, subject, scope)
	if err != nil {
		return nil, err
	}
	log := cmdline.Logger(c.stderr, false)
	return &client.Client{Base: thread.BaseURL(url), Token: tokens, Log: log, HTTP: c.http}, nil
}

// tokensFor returns a source of tokens for a subject on the server at url: a stream, or the list of threads. The token
// of the environment serves if it is for the subject and has not expired. Else tokens are signed here, one for each
// call. Beside a token of the environment, which may be another server's, the data folder's secret signs for a server
// on this machine alone.
func tokensFor(d daemon.Data, url, subject, scope string) (func() (string, error), error) {
	sign := func(key []byte) (string, error) {
		return token.Sign(key, token.Grant{
			Stream: subject, Scope: []string{scope}, Until: time.Now().Add(10 * time.Minute),
		})
	}
	name, given := givenToken()
	if given == nil {
		key, err := secret(d)
		return func() (string, error) { return sign(key) }, err
	}
	first, err := given()
	if err != nil {
		return nil, &cmdline.Exit{Status: exitConfig, Cause: fmt.Errorf("%s: %w", name, err)}
	}
	var key []byte
	if err = errElsewhere; os.Getenv("DURABLE_STREAMS_SECRET") != "" || onThisMachine(url) {
		key, err = secret(d)
	}
	if unfit := unfitFor(first, subject, time.Now()); unfit != "" && err != nil {
		return nil, &cmdline.Exit{Status: exitConfig, Cause: fmt.Errorf("%s %s, and no other can be signed: "+
			"set it to a token of arbe token mint, or unset it and set DURABLE_STREAMS_SECRET", name, unfit)}
	}
	return func() (string, error) {
		token, fail := given()
		if err == nil && fail == nil && unfitFor(token, subject, time.Now()) != "" {
			return sign(key)
		}
		return token, fail
	}, nil
}

var errElsewhere = errors.New("the data folder's secret is of a server on this machine")

// onThisMachine reports whether a server's address is a loopback one.
func onThisMachine(address string) bool {
	u, err := url.Parse(address)
	if err != nil {
		return false
	}
	ip := net.ParseIP(u.Hostname())
	return u.Hostname() == "localhost" || ip != nil && ip.IsLoopback()
}

// givenToken returns the name of the variable with the user's token, and a source of that token; nil for none.
func givenToken() (name string, token func() (string, error)) {
	if file := os.Getenv("ARBE_STREAM_TOKEN_FILE"); file != "" {
		return "ARBE_STREAM_TOKEN_FILE", client.FileToken(file)
	}
	if token := os.Getenv("ARBE_STREAM_TOKEN"); token != "" {
		return "ARBE_STREAM_TOKEN", client.StaticToken(token)
	}
	return "", nil
}

// unfitFor returns why a token, unverified, does not serve a subject; "" if it may. The server decides on one that
// can't be parsed.
func unfitFor(text, want string, now time.Time) string {
	subject, until := token.Peek(text)
	switch {
	case subject == "":
		return ""
	case subject != want:
		return fmt.Sprintf("is for %s, not for %s", subjectName(subject), subjectName(want))
	case !until.IsZero() && !now.Before(until):
		return "expired at " + until.Local().Format(time.DateTime)
	}
	return ""
}

// subjectName returns a token's subject for people.
func subjectName(subject string) string {
	if id, is := thread.OfStream(subject); is {
		return "thread " + id
	}
	if subject == token.SubjectThreads {
		return "the list of threads"
	}
	return fmt.Sprintf("%.100q", subject)
}

// reach gives an error of the thread server its exit status.
func reach(err error) error {
	var exit *cmdline.Exit
	switch {
	case err == nil || errors.Is(err, context.Canceled):
		return nil // the user ended it
	case errors.As(err, &exit):
		return err
	case client.Gone(err):
		return &cmdline.Exit{Status: exitNoThread, Cause: err}
	}
	var failed *url.Error
	if errors.As(err, &failed) {
		if u, parseErr := url.Parse(failed.URL); parseErr == nil {
			const next = "start it with arbe serve, or check ARBE_STREAM_URL"
			err = fmt.Errorf("no answer from %s://%s: %w; %s", u.Scheme, u.Host, failed.Err, next)
		}
	}
	return &cmdline.Exit{Status: exitNoReach, Cause: err}
}

// ofServer reports whether an error is one of the thread server, or that it can't be reached.
func ofServer(err error) bool {
	var status *client.StatusError
	var failed *url.Error
	return errors.As(err, &status) || errors.As(err, &failed) || client.Foreign(err)
}

// reachThread is reach for a command about one thread. It distinguishes a thread that does not exist from an address
// with another server.
func reachThread(cl *client.Client, err error) error {
	switch {
	case client.Gone(err):
		return &cmdline.Exit{Status: exitNoThread, Cause: fmt.Errorf(
			"thread %s was deleted, and its id is not given again: arbe thread new makes another one", cl.Thread)}
	case client.NoThread(err):
		return noThread(cl.Thread)
	case client.Foreign(err):
		return foreign(cl, err)
	}
	return reach(err)
}

// noThread is the error of a thread that does not exist.
func noThread(id string) error {
	return &cmdline.Exit{
		Status: exitNoThread, Cause: fmt.Errorf("no such thread: %s; arbe ls lists the threads", id),
	}
}

// foreign is the error of a server that is no thread server.
func foreign(cl *client.Client, err error) error {
	return &cmdline.Exit{Status: exitNoReach, Cause: fmt.Errorf(
		"%s answers, but is no thread server: check ARBE_STREAM_URL (%s)", cl.Address(), foreignAnswer(err))}
}

// foreignAnswer describes the answer of another server, without the page that it may be.
func foreignAnswer(err error) string {
	var status *client.StatusError
	if errors.As(err, &status) {
		return strings.TrimSpace(fmt.Sprintf("%d %s", status.Status, http.StatusText(status.Status)))
	}
	return "a page of HTML"
}
