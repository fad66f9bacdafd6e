package proxy_test

import (
	"strings"
	"testing"

	"arbe.0sk.ar/runner/host/proxy"
)

func TestParseUpstream(t *testing.T) {
	for address, want := range map[string]string{
		"http://127.0.0.1:8787":               "http://127.0.0.1:8787/api/stream",
		"https://thread.example/":             "https://thread.example/api/stream",
		"https://thread.example/api/stream":   "https://thread.example/api/stream",
		"https://thread.example/a%2Fb/":       "https://thread.example/a%2Fb/api/stream",
		"":                                    "",
		"thread.example":                      "",
		"ftp://thread.example":                "",
		"http://":                             "",
		"https://user:secret@thread.example/": "",
		"https://user:secret@thread:example/": "",
		"https://thread.example/?x=secret":    "",
		"https://thread.example/a/../b":       "",
	} {
		u, err := proxy.ParseUpstream(address)
		if want == "" {
			if err == nil || strings.Contains(err.Error(), ":secret") {
				t.Errorf("%q: %v, %v", address, u, err)
			}
		} else if err != nil || u.String() != want {
			t.Errorf("%q: %v, %v, want %s", address, u, err, want)
		}
	}
}
