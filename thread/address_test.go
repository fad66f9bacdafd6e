package thread_test

import (
	"testing"

	"arbe.0sk.ar/runner/thread"
)

// The base of each form of an address. That of a base is the base itself.
func TestAddresses(t *testing.T) {
	for address, want := range map[string]string{
		"https://host":                         "https://host/api/stream",
		"https://host/":                        "https://host/api/stream",
		"https://host/a/api/stream/":           "https://host/a/api/stream",
		"unix:///run/arbe.sock":                "unix:///run/arbe.sock:/api/stream",
		"unix:///run/arbe.sock/":               "unix:///run/arbe.sock:/api/stream",
		"unix:///run/arbe.sock/api/stream":     "unix:///run/arbe.sock:/api/stream",
		"unix:///run/arbe.sock:/api/stream":    "unix:///run/arbe.sock:/api/stream",
		"http://127.0.0.1:8787/api/stream?a=b": "http://127.0.0.1:8787/api/stream?a=b/api/stream", // refused elsewhere
	} {
		if got := thread.BaseURL(address); got != want {
			t.Errorf("%s: got %s, want %s", address, got, want)
		}
	}
	for address, want := range map[string]string{
		"unix:///run/arbe.sock": "/run/arbe.sock", "unix:///run/arbe.sock:/api/stream": "/run/arbe.sock",
		"unix://run/arbe.sock": "", "http://host": "", "unix:/run/a": "",
	} {
		if got, is := thread.SocketOf(address); is != (want != "") || is && got != want {
			t.Errorf("%s: got %q, %v", address, got, is)
		}
	}
}
