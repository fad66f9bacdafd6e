package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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

// tokensFor returns a source of tokens for a subject on the server at url: a stream, or the list of threads. The token
// of the environment serves if it is for the subject and has not expired. Else tokens are signed here, one for each
// call. Beside a token of the environment, which may be another server's, the data folder's secret signs for a server
// on this machine alone.
func tokensFor(d daemon.Data, url, subject, scope string) (func() (string, error), error) {
	sign := func(key []byte) (string, error) { return signed(key, subject, scope, 10*time.Minute) }
	name, given := givenToken()
	if given == nil {
		key, err := secret(d)
		return func() (string, error) { return sign(key) }, err
	}
	first, err := given()
	if err != nil {
		return nil, cmdline.Fail(exitConfig, "%s: %w", name, err)
	}
	var key []byte
	if err = errElsewhere; os.Getenv("DURABLE_STREAMS_SECRET") != "" || onThisMachine(url) {
		key, err = secret(d)
	}
	if unfit := unfitFor(first, subject, time.Now()); unfit != "" && err != nil {
		return nil, cmdline.Fail(exitConfig, "%s %s, and no other can be signed: "+
			"set it to a token of arbe token mint, or unset it and set DURABLE_STREAMS_SECRET", name, unfit)
	}
	return func() (string, error) {
		token, fail := given()
		if err == nil && fail == nil && unfitFor(token, subject, time.Now()) != "" {
			return sign(key)
		}
		return token, fail
	}, nil
}

// signed returns a new token for a subject with one scope.
func signed(key []byte, subject, scope string, ttl time.Duration) (string, error) {
	return token.Sign(key, token.Grant{Stream: subject, Scope: []string{scope}, Until: time.Now().Add(ttl)})
}

var errElsewhere = errors.New("the data folder's secret is of a server on this machine")

// onThisMachine reports whether a server's address is a loopback one, or a socket.
func onThisMachine(address string) bool {
	if _, is := thread.SocketOf(address); is {
		return true
	}
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

// askIdle is the time without a byte after which a request fails.
const askIdle = 2 * time.Minute

// ask sends a request outside of the thread API to a client's server, with the body sent, JSON, unless that is nil. It
// returns the answer's body, which the caller closes. An answer without success is a *client.StatusError.
func ask(ctx context.Context, cl *client.Client, method, path string, sent []byte) (io.ReadCloser, error) {
	token, err := cl.Token()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	idle := time.AfterFunc(askIdle, func() { cancel(fmt.Errorf("no data for %v", askIdle)) })
	body := &answerBody{idle: idle, ctx: ctx, end: func() { idle.Stop(); cancel(nil) }}
	at := strings.TrimSuffix(cl.Base, "/api/stream") + path
	req, err := http.NewRequestWithContext(ctx, method, at, bytes.NewReader(sent))
	if err != nil {
		body.end()
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+token)
	if sent != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	// A redirect is not followed: net/http would make a GET of a DELETE, and its 200 a success.
	stay := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	resp, err := (&http.Client{CheckRedirect: stay}).Do(req)
	if err != nil {
		body.end()
		return nil, err
	}
	body.ReadCloser = resp.Body
	if resp.StatusCode/100 == 2 {
		return body, nil
	}
	defer body.Close()                              // it is read
	b, _ := io.ReadAll(io.LimitReader(body, 1<<16)) // a part of the message will do
	var answer struct {
		Error struct{ Code, Message string } `json:"error"`
	}
	if json.Unmarshal(b, &answer) != nil {
		answer.Error.Message, _, _ = strings.Cut(strings.ToValidUTF8(string(b[:min(len(b), 200)]), "\uFFFD"), "\n")
	}
	return nil, &client.StatusError{Status: resp.StatusCode, Code: answer.Error.Code, Message: answer.Error.Message}
}

// answerBody is the body of an answer, which may be long; it fails after askIdle without a byte.
type answerBody struct {
	io.ReadCloser
	idle *time.Timer
	ctx  context.Context // its cause is the reason of the end
	end  func()
}

func (a *answerBody) Read(b []byte) (int, error) {
	n, err := a.ReadCloser.Read(b)
	a.idle.Reset(askIdle)
	if err != nil && a.ctx.Err() != nil {
		err = context.Cause(a.ctx)
	}
	return n, err
}

func (a *answerBody) Close() error {
	err := a.ReadCloser.Close()
	a.end()
	return err
}
