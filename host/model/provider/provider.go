// Package provider has the common parts of the adapters of package model: one bounded HTTP request to a provider, and
// the rules for messages, replies and errors that do not depend on an API.
//
// A request is sent once and is never redirected, so the key reaches no host but the configured one. Its answer is
// bounded in size and in silence. Each error is a *model.Error, or that of the caller's context, and has no key in it.
package provider

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"arbe.0sk.ar/runner/host/model"
	"arbe.0sk.ar/runner/thread/redact"
)

// Config describes how to reach a provider.
type Config struct {
	BaseURL   string            // "" for the provider's own; as the provider's programs write it
	Key       string            // no error has it
	Transport http.RoundTripper // nil for http.DefaultTransport
	Silence   time.Duration     // how long a provider may send nothing, at the beginning or later; 0 for a minute
}

// Client makes requests to one provider. Its methods may be called at the same time.
type Client struct {
	BaseURL string

	transport http.RoundTripper
	silence   time.Duration
	secrets   *redact.Redactor
}

// New returns a client of the provider whose own base URL is own.
func New(c Config, own string) (*Client, error) {
	if c.Key == "" || strings.ContainsFunc(c.Key, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return nil, errors.New("the provider's key is empty, or has characters that no key has")
	}
	u, err := url.Parse(c.BaseURL)
	switch {
	case c.BaseURL == "":
		c.BaseURL = own
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.User != nil:
		return nil, errors.New("the provider's base URL is not of the form https://HOST/PATH")
	}
	if c.Transport == nil {
		c.Transport = http.DefaultTransport
	}
	if c.Silence == 0 {
		c.Silence = time.Minute
	}
	secrets := redact.New(nil, nil)
	secrets.Add("KEY", c.Key)
	return &Client{BaseURL: c.BaseURL, transport: c.Transport, silence: c.Silence, secrets: secrets}, nil
}

// errSilent ends a request whose provider sends nothing.
var errSilent = errors.New("silent")

// Do calls send, which makes one request with ctx and h and reads its answer, and returns what went wrong as a
// *model.Error, or as the error of the caller's ctx. An error of send that is neither of the connection nor a
// *model.Error is Invalid before the request is sent, and Garbage after: send did not understand the answer.
func (c *Client) Do(ctx context.Context, send func(ctx context.Context, h *http.Client) error) error {
	inner, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	w := &watch{next: c.transport, silence: c.silence, left: mostBytes}
	w.timer = time.AfterFunc(c.silence, func() { cancel(errSilent) })
	defer w.timer.Stop()
	err := send(inner, &http.Client{Transport: w})
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	var e *model.Error
	switch {
	case errors.As(err, &e):
		e = new(*e)
	case context.Cause(inner) == errSilent:
		e = &model.Error{Kind: model.Again, Message: fmt.Sprintf("the provider has sent nothing for %v", c.silence)}
	case w.broke != nil:
		e = &model.Error{Kind: model.Again, Message: "the connection to the provider broke: " + w.broke.Error()}
	case !w.sent:
		e = &model.Error{Kind: model.Invalid, Message: "the request can't be written: " + err.Error()}
	default:
		e = &model.Error{Kind: model.Garbage, Message: "the provider's answer is not understood: " + err.Error()}
	}
	e.Message, e.Unsent = brief(c.secrets.Text(e.Message)), !w.sent || dialing(w.broke)
	return e
}

// dialing reports whether an error is that of a connection which was never there.
func dialing(err error) bool {
	op, is := errors.AsType[*net.OpError](err)
	return is && op.Op == "dial"
}

// mostMessage bounds the message of an error, in bytes.
const mostMessage = 1000

// brief returns a message as one line of bounded length.
func brief(s string) string {
	s = strings.Join(strings.Fields(strings.ToValidUTF8(s, "�")), " ")
	if len(s) > mostMessage {
		s = strings.ToValidUTF8(s[:mostMessage-len("…")], "") + "…"
	}
	return s
}
