package main

import (
	"bytes"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"arbe.0sk.ar/runner/runner"
	"arbe.0sk.ar/runner/thread"
)

// unreachable is a network without a way to anywhere.
type unreachable struct{}

func (unreachable) RoundTrip(*http.Request) (*http.Response, error) {
	return nil, errors.New("no route to host")
}

// A password in the server's address reaches neither log nor error, and is taken out of what the agent prints.
func TestPasswordInTheAddress(t *testing.T) {
	for address, secret := range map[string]string{
		"http://someone:pass-word-1@127.0.0.1:1/":             "pass-word-1",
		"http://someone:pass%20word-1@127.0.0.1:1/api/stream": "pass word-1",
		"http://a-token-for-it@127.0.0.1:1":                   "a-token-for-it",
	} {
		environ := []string{"ARBE_THREAD_ID=t1", "ARBE_STREAM_URL=" + address, "ARBE_STREAM_TOKEN=a-token", "HOME=/"}
		s, err := readSettings(func(name string) string { return runner.Getenv(environ, name) }, environ, false)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := s.redact.Text("it is "+secret), "it is [redacted:ARBE_STREAM_URL_PASSWORD]"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		var log bytes.Buffer
		c := s.client(slog.New(slog.NewTextHandler(&log, nil)))
		c.HTTP = &http.Client{Transport: unreachable{}}
		entry := thread.Entry{ID: "e", TS: "2026-01-01T00:00:00.000Z", Payload: []byte(`{"type":"chat"}`)}
		if err = c.Heartbeat(t.Context(), entry); err == nil {
			t.Fatal("a post to no server")
		}
		if want := "url=http://127.0.0.1:1/api/stream "; !strings.Contains(log.String(), want) {
			t.Errorf("%q is not in %s", want, log.String())
		}
		for _, word := range []string{secret, "pass", "someone"} {
			if text := log.String() + err.Error(); strings.Contains(text, word) {
				t.Errorf("%q is in %s", word, text)
			}
		}
	}
}
