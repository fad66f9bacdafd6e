package server_test

import (
	"net/url"
	"strings"
	"testing"

	"arbe.0sk.ar/runner/internal/test/wire"
)

// described holds the answer to a request against docs/openapi.yaml, but for the streams of the Durable Streams
// protocol.
func (a answer) described(t testing.TB, method, base, path, body string) {
	t.Helper()
	u, err := url.Parse(base)
	if err != nil {
		t.Fatal(err)
	}
	target := u.Path + path
	if strings.HasPrefix(path, "/arbe-thread-") {
		target = "/api/stream" + path
	} else if _, below, is := strings.Cut(target, "/api/stream/"); is {
		target = "/api/stream/" + below
	}
	for _, route := range []string{"/healthz", "/api/threads"} { // an edge function has them below its own path
		if i := strings.Index(target, route); i > 0 && !strings.HasPrefix(target, "/api/stream/") {
			target = target[i:]
		}
	}
	if strings.HasPrefix(target, "/v1/stream/") || strings.HasPrefix(path, "/odd/") ||
		strings.Contains(target, "/api/stream/odd/") {
		return
	}
	x := wire.Exchange{Method: method, Target: target, Body: body, Status: a.status, Header: a.header, Answer: a.body}
	if err := wire.CheckExchange(x); err != nil {
		t.Errorf("not as docs/openapi.yaml has it: %v", err)
	}
}
