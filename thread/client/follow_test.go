package client_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"arbe.0sk.ar/runner/internal/test/fakethread"
	"arbe.0sk.ar/runner/thread"
	"arbe.0sk.ar/runner/thread/client"
)

// Each entry is passed on once, whatever the server makes of those who follow.
func TestFollow(t *testing.T) {
	for name, kind := range map[string]func(*fakethread.Server){
		"a server that holds answers back": func(*fakethread.Server) {},
		"one that does not":                func(s *fakethread.Server) { s.NoLive() },
		"one that gives pieces":            func(s *fakethread.Server) { s.Paged(2) },
		"one that does both":               func(s *fakethread.Server) { s.Paged(2); s.NoLive() },
		"an older one":                     func(s *fakethread.Server) { s.Old() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := fakethread.New(t, nil)
			kind(server)
			all := chats(12)
			for _, e := range all[:5] {
				server.Put(e)
			}
			var got []thread.Entry
			err := server.Client().Follow(t.Context(), "0", func(e thread.Entry) error {
				if got = append(got, e); len(got) == len(all) {
					return client.ErrStop
				}
				if len(got) >= 5 {
					server.Put(all[len(got)])
				}
				return nil
			}, nil)
			if err != nil || ids(got) != ids(all) {
				t.Errorf("followed %s, %v", ids(got), err)
			}
		})
	}
}

// A follower whose offset the thread no longer has returns an error, with live reads and with polls.
func TestFollowRewound(t *testing.T) {
	for _, deaf := range []bool{false, true} {
		t.Run(fmt.Sprintf("polled %v", deaf), func(t *testing.T) {
			t.Parallel()
			server := fakethread.New(t, nil)
			if deaf {
				server.NoLive()
			}
			for _, e := range chats(5) {
				server.Put(e)
			}
			n := 0
			err := server.Client().Follow(t.Context(), "0", func(thread.Entry) error {
				n++
				return nil
			}, func() bool {
				if n == 5 {
					server.Restore(2)
				}
				return false
			})
			if !errors.Is(err, client.ErrRewound) || n != 5 {
				t.Errorf("after %d entries: %v", n, err)
			}
		})
	}
}

// An answer that is no weather ends a Follow at once. Weather does not, for however long.
func TestFollowErrors(t *testing.T) {
	for _, tt := range []struct {
		status int
		ends   bool
	}{
		{401, true},
		{403, true},
		{400, true},
		{410, true},
		{301, true},
		{404, false},
		{429, false},
		{500, false},
		{503, false},
	} {
		t.Run(fmt.Sprint(tt.status), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var calls atomic.Int64
				c, _ := tripClient(func(*http.Request) (*http.Response, error) {
					calls.Add(1)
					return answer(tt.status), nil
				})
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				began := time.Now()
				err := c.Follow(ctx, "0", func(thread.Entry) error { return nil }, nil)
				ended := time.Since(began) < time.Minute
				if ended != tt.ends || (statusOf(err) == tt.status) != tt.ends {
					t.Errorf("after %v: %v", time.Since(began), err)
				}
				if most := int64(time.Hour/time.Second) + 10; calls.Load() > most {
					t.Errorf("%d calls in an hour", calls.Load())
				}
			})
		})
	}
}

func statusOf(err error) int {
	var se *client.StatusError
	if errors.As(err, &se) {
		return se.Status
	}
	return 0
}
