package server_test

import (
	"context"
	"testing"

	"arbe.0sk.ar/runner/host/log"
	"arbe.0sk.ar/runner/host/log/engine"
)

// stale is an engine whose leader may have been replaced.
type stale struct{ log.Engine }

func (stale) Head(context.Context, string) (engine.Head, error) {
	return engine.Head{}, engine.ErrStale
}

// While the log can't know whether it has all entries, each read gets 503, with no offset that looks like the tail.
func TestStaleReads(t *testing.T) {
	s := on(t, func(e log.Engine) log.Engine { return stale{e} }, t.Context())
	token := writer(t, "t1")
	for _, path := range []string{path1, "/v1/stream/arbe-thread-t1"} {
		for _, query := range []string{
			"?offset=-1", "?offset=00000000000000000099", "?offset=now&live=long-poll",
			"?offset=now&live=sse",
		} {
			a := s.do("GET", path+query, token, "")
			if a.status != 503 || a.code != "stale" || a.header.Get("Retry-After") != "1" ||
				a.header.Get("Stream-Up-To-Date") != "" {
				t.Errorf("%s%s: %+v", path, query, a)
			}
		}
	}
}
