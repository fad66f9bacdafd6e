package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"arbe.0sk.ar/runner/internal/test/fakethread"
	"arbe.0sk.ar/runner/thread"
	"arbe.0sk.ar/runner/thread/client"
)

// kinds are the servers that a client meets.
var kinds = map[string]func(*fakethread.Server){
	"one that gives pieces":      func(*fakethread.Server) {},
	"one that ignores limits":    func(s *fakethread.Server) { s.Whole() },
	"one that refuses limits":    func(s *fakethread.Server) { s.RefusesPieces() },
	"one that has no offsets":    func(s *fakethread.Server) { s.Old() },
	"one with pieces of its own": func(s *fakethread.Server) { s.Whole().Paged(7) },
}

// directly is a transport that calls a server without a connection, in the time of a test's bubble. A panic of the
// server breaks the answer off.
type directly struct{ *fakethread.Server }

func (d directly) RoundTrip(r *http.Request) (*http.Response, error) {
	rec := httptest.NewRecorder()
	broken := func() (broken bool) {
		defer func() { broken = recover() != nil }()
		if r.Body == nil {
			r.Body = http.NoBody
		}
		d.ServeHTTP(rec, r)
		return false
	}()
	resp := rec.Result()
	if broken {
		if rec.Body.Len() == 0 {
			return nil, errors.New("connection refused")
		}
		resp.Body = io.NopCloser(io.MultiReader(resp.Body, reset{}))
	}
	return resp, nil
}

type reset struct{}

func (reset) Read([]byte) (int, error) { return 0, errors.New("connection reset") }

func direct(s *fakethread.Server) *client.Client {
	c := s.Client()
	c.HTTP = &http.Client{Transport: directly{s}}
	return c
}

// long returns n chats with texts of so many bytes.
func long(n, bytes int) []thread.Entry {
	list := chats(n)
	for i := range list {
		list[i].Payload = thread.Marshal(thread.Chat{Type: thread.TypeChat, Text: strings.Repeat("x", bytes)})
	}
	return list
}

// Every connection breaks off after 64 KiB, and each entry arrives once.
func TestReadCutEverywhere(t *testing.T) {
	for name, read := range map[string]func(context.Context, *client.Client, func(thread.Entry) error) error{
		"Read": func(ctx context.Context, c *client.Client, f func(thread.Entry) error) error {
			_, err := c.Read(ctx, "0", false, f)
			return err
		},
		"ReadAll": func(ctx context.Context, c *client.Client, f func(thread.Entry) error) error {
			return c.ReadAll(ctx, time.Minute, f)
		},
		"Follow": func(ctx context.Context, c *client.Client, f func(thread.Entry) error) error {
			return c.Follow(ctx, "0", f, func() bool { return true })
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := fakethread.New(t, func(c fakethread.Call) fakethread.Fault {
				if c.Method == http.MethodGet {
					return fakethread.Fault{Cut: 64 << 10}
				}
				return fakethread.Fault{}
			})
			all := long(1500, 1500)
			for _, e := range all {
				server.Put(e)
			}
			synctest.Test(t, func(t *testing.T) {
				var got []thread.Entry
				err := read(t.Context(), direct(server),
					func(e thread.Entry) error { got = append(got, e); return nil })
				if err != nil || ids(got) != ids(all) {
					t.Fatalf("read %d of %d entries, %v", len(got), len(all), err)
				}
			})
			if size := 1600 * len(all); server.Sent() > 3*size {
				t.Errorf("%d bytes sent for a thread of some %d", server.Sent(), size)
			}
		})
	}
}

// One connection breaks off, at each 64 KiB of the thread in turn. Each entry arrives once, also from a server without
// pieces.
func TestLargeReadCutOnce(t *testing.T) {
	all := long(12, 100<<10)
	for name, kind := range kinds {
		t.Run(name, func(t *testing.T) {
			for at := 64 << 10; at < len(all)*100<<10; at += 64 << 10 {
				server := fakethread.New(t, func(c fakethread.Call) fakethread.Fault {
					if c.N == 1 {
						return fakethread.Fault{Cut: at}
					}
					return fakethread.Fault{}
				})
				kind(server)
				for _, e := range all {
					server.Put(e)
				}
				synctest.Test(t, func(t *testing.T) {
					var got []thread.Entry
					err := direct(server).ReadAll(t.Context(), time.Minute, func(e thread.Entry) error {
						got = append(got, e)
						return nil
					})
					if err != nil || ids(got) != ids(all) {
						t.Fatalf("cut at %d: read %s, %v", at, ids(got), err)
					}
				})
			}
		})
	}
}

// A connection that always breaks off within the same entry is no progress: the read fails.
func TestReadCutWithinAnEntry(t *testing.T) {
	server := fakethread.New(t, func(fakethread.Call) fakethread.Fault { return fakethread.Fault{Cut: 64 << 10} })
	for _, e := range long(3, 100<<10) {
		server.Put(e)
	}
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		err := direct(server).ReadAll(t.Context(), 30*time.Second, func(thread.Entry) error { return nil })
		if took := time.Since(began); err == nil || took < 25*time.Second || took > time.Minute {
			t.Errorf("after %v: %v", took, err)
		}
	})
}

// The same where the thread is read backwards.
func TestReadBackServerRestarts(t *testing.T) {
	for away, good := range map[time.Duration]bool{20 * time.Second: true, 2 * time.Minute: false} {
		var back time.Time
		server := fakethread.New(t, func(c fakethread.Call) fakethread.Fault {
			if c.N == 2 {
				back = time.Now().Add(away)
			}
			return fakethread.Fault{Drop: c.N > 1 && time.Now().Before(back)}
		})
		all := chats(2500)
		for _, e := range all {
			server.Put(e)
		}
		synctest.Test(t, func(t *testing.T) {
			var got []thread.Entry
			began := time.Now()
			_, err := direct(server).ReadBack(t.Context(), "now", func(e thread.Entry) error {
				got = append(got, e)
				return nil
			})
			slices.Reverse(got)
			if (err == nil) != good || good && ids(got) != ids(all) || time.Since(began) > time.Minute {
				t.Errorf("away for %v: %d entries after %v, %v", away, len(got), time.Since(began), err)
			}
		})
	}
}

// The server is away between two pieces for less than half a minute.
func TestReadServerRestarts(t *testing.T) {
	var back time.Time
	server := fakethread.New(t, func(c fakethread.Call) fakethread.Fault {
		if c.N == 2 {
			back = time.Now().Add(20 * time.Second)
		}
		return fakethread.Fault{Drop: c.N > 1 && time.Now().Before(back)}
	})
	all := chats(2500)
	for _, e := range all {
		server.Put(e)
	}
	synctest.Test(t, func(t *testing.T) {
		var got []thread.Entry
		page, err := direct(server).Read(t.Context(), "0", false, func(e thread.Entry) error {
			got = append(got, e)
			return nil
		})
		if err != nil || ids(got) != ids(all) || !page.UpToDate {
			t.Errorf("read %d entries, %v", len(got), err)
		}
	})
}

// Entries that were passed on are deleted before their piece is read again: none of the others is left out.
func TestReadCompacted(t *testing.T) {
	var server *fakethread.Server
	server = fakethread.New(t, func(c fakethread.Call) fakethread.Fault {
		if c.N == 2 {
			server.Compact(func(e thread.Entry) bool { return e.ID == chats(2)[0].ID || e.ID == chats(2)[1].ID })
		}
		return fakethread.Fault{Cut: 10_000 * (2 - c.N)}
	})
	all := long(20, 1500)
	for _, e := range all {
		server.Put(e)
	}
	var got []thread.Entry
	_, err := server.Client().Read(t.Context(), "0", false,
		func(e thread.Entry) error { got = append(got, e); return nil })
	if err != nil || ids(got) != ids(all) {
		t.Errorf("read %s, %v", ids(got), err)
	}
}

// signals returns a thread of signals with chats between them.
func signals(n int) (all, some []thread.Entry) {
	for i, e := range long(10*n, 1000) {
		if i%10 == 0 {
			e.Payload = thread.Marshal(thread.Signal{Type: "signal.test", RunID: "r"})
			some = append(some, e)
		}
		all = append(all, e)
	}
	return all, some
}

// Only the selected entries are passed on, and only they are sent by a server that can select.
func TestReadOnlyTypes(t *testing.T) {
	all, some := signals(30)
	for name, kind := range kinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := fakethread.New(t, nil)
			kind(server)
			for _, e := range all {
				server.Put(e)
			}
			c := server.Client()
			for how, s := range map[string]client.Selection{
				"only": c.Only("signal."), "without": c.Without(thread.TypeChat),
				"both": c.Only("signal.test", thread.TypeChat).Without("signal.other", thread.TypeChat),
			} {
				var got, followed []thread.Entry
				sent := server.Sent()
				_, err := s.Read(t.Context(), "0", false,
					func(e thread.Entry) error { got = append(got, e); return nil })
				if err != nil || ids(got) != ids(some) {
					t.Errorf("%s: read %s, %v", how, ids(got), err)
				}
				sent = server.Sent() - sent
				if strings.HasSuffix(name, "gives pieces") && sent > 200*len(some) {
					t.Errorf("%s: %d bytes sent for %d signals", how, sent, len(some))
				}
				err = s.Follow(t.Context(), "0",
					func(e thread.Entry) error { followed = append(followed, e); return nil },
					func() bool { return true })
				if err != nil || ids(followed) != ids(some) {
					t.Errorf("%s: followed %s, %v", how, ids(followed), err)
				}
			}
		})
	}
}

func TestEntry(t *testing.T) {
	for name, kind := range kinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := fakethread.New(t, nil)
			kind(server)
			c := server.Client()
			if _, _, err := c.Entry(t.Context(), "c1"); !client.NotFound(err) {
				t.Errorf("of a thread that was never written: %v", err)
			}
			for n, e := range chats(30) {
				server.Put(e)
				if n != 0 && n != 29 {
					continue
				}
				got, ok, err := c.Entry(t.Context(), e.ID)
				if err != nil || !ok || got.ID != e.ID || string(got.Payload) != string(e.Payload) {
					t.Errorf("entry %d: %+v, %v, %v", n, got, ok, err)
				}
				if got, ok, err := c.Entry(t.Context(), "another"); err != nil || ok || got.ID != "" {
					t.Errorf("an entry that is not there: %+v, %v, %v", got, ok, err)
				}
			}
		})
	}
}

func TestReadBack(t *testing.T) {
	all, some := signals(250)
	for name, kind := range kinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := fakethread.New(t, nil)
			kind(server)
			for _, e := range all {
				server.Put(e)
			}
			can := strings.HasSuffix(name, "gives pieces")
			for _, tt := range []struct {
				from interface {
					ReadBack(ctx context.Context, before string, f func(thread.Entry) error) (string, error)
				}
				want []thread.Entry
			}{{server.Client(), all}, {server.Client().Only("signal."), some}} {
				n := len(tt.want)
				next, err := tt.from.ReadBack(t.Context(), "now", func(e thread.Entry) error {
					if n--; e.ID != tt.want[n].ID {
						t.Fatalf("got %s, want %s", e.ID, tt.want[n].ID)
					}
					return nil
				})
				if err != nil || can != (next == "2500") || can != (n == 0) {
					t.Errorf("%d entries are left, next %q, %v", n, next, err)
				}
			}
			stop := errors.New("enough")
			n := 0
			next, err := server.Client().ReadBack(t.Context(), "1500", func(thread.Entry) error { n++; return stop })
			if can && (next != "1500" || !errors.Is(err, stop) || n != 1) || !can && (next != "" || n != 0) {
				t.Errorf("%d entries, next %q, %v", n, next, err)
			}
		})
	}
}

// A follower of a thread that was deleted, or restored from an older backup, and then grew past the follower's place,
// learns that.
func TestFollowAnotherThread(t *testing.T) {
	for _, keep := range []int{0, 3} {
		t.Run(fmt.Sprintf("%d entries kept", keep), func(t *testing.T) {
			handler := fakethread.New(t, nil).NoLive()
			synctest.Test(t, func(t *testing.T) {
				away := time.Time{}
				c, _ := tripClient(func(r *http.Request) (*http.Response, error) {
					if time.Now().Before(away) {
						return nil, errors.New("connection refused")
					}
					return directly{handler}.RoundTrip(r)
				})
				c.Token = client.StaticToken(handler.Token)
				for _, e := range chats(5) {
					handler.Put(e)
				}
				n, polls := 0, 0
				err := c.Follow(t.Context(), "0", func(thread.Entry) error { n++; return nil }, func() bool {
					if polls++; polls == 2 {
						handler.Restore(keep)
						for i, e := range chats(20) {
							if e.ID = fmt.Sprintf("new%d", i); i > 8 {
								handler.Put(e)
							}
						}
						away = time.Now().Add(time.Minute)
					}
					return false
				})
				if !errors.Is(err, client.ErrRewound) || n != 5 {
					t.Errorf("after %d entries: %v", n, err)
				}
			})
		})
	}
}

// slow is an answer's body over a slow link, which breaks off.
type slow struct {
	io.Reader
	pace, life time.Duration // of each 1 KiB; of the connection
}

func (s *slow) Read(b []byte) (int, error) {
	if s.life -= s.pace; s.life < 0 {
		return 0, errors.New("connection reset")
	}
	time.Sleep(s.pace) // the bubble's time
	return s.Reader.Read(b[:min(len(b), 1<<10)])
}

// A thread whose download takes more than ten minutes over a slow link, which breaks off every two minutes, is read in
// whole, and not much of it twice.
func TestReadSlowLink(t *testing.T) {
	server := fakethread.New(t, nil)
	all := long(600, 10<<10)
	for _, e := range all {
		server.Put(e)
	}
	synctest.Test(t, func(t *testing.T) {
		c, _ := tripClient(func(r *http.Request) (*http.Response, error) {
			resp, err := directly{server}.RoundTrip(r)
			if err == nil {
				resp.Body = io.NopCloser(&slow{resp.Body, 100 * time.Millisecond, 2 * time.Minute})
			}
			return resp, err
		})
		c.Token = client.StaticToken(server.Token)
		var got []thread.Entry
		began := time.Now()
		err := c.ReadAll(t.Context(), 30*time.Second, func(e thread.Entry) error { got = append(got, e); return nil })
		if err != nil || ids(got) != ids(all) {
			t.Errorf("read %d of %d entries, %v", len(got), len(all), err)
		}
		if took := time.Since(began); took < 10*time.Minute || took > 15*time.Minute {
			t.Errorf("took %v", took)
		}
	})
}

// A thread that is restored to an earlier state, or deleted, between two pieces ends the read with a clear error.
func TestReadRewound(t *testing.T) {
	for keep, want := range map[int]func(error) bool{
		100: func(err error) bool { return errors.Is(err, client.ErrRewound) },
		0:   client.NotFound,
	} {
		t.Run(fmt.Sprintf("%d entries kept", keep), func(t *testing.T) {
			var server *fakethread.Server
			server = fakethread.New(t, func(c fakethread.Call) fakethread.Fault {
				if c.N == 2 {
					server.Restore(keep)
				}
				return fakethread.Fault{}
			})
			for _, e := range chats(1500) {
				server.Put(e)
			}
			n := 0
			_, err := server.Client().Read(t.Context(), "0", false, func(thread.Entry) error { n++; return nil })
			if !want(err) || n != 1000 {
				t.Errorf("after %d entries: %v", n, err)
			}
		})
	}
}
