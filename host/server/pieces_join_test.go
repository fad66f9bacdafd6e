package server_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"arbe.0sk.ar/runner/host/log"
	"arbe.0sk.ar/runner/host/log/engine"
	"arbe.0sk.ar/runner/host/server"
	"arbe.0sk.ar/runner/thread"
)

// pageReader reads a thread in pieces of random sizes.
type pageReader struct {
	t     *testing.T
	base  string // with the thread's name
	token string
	types string
	rand  *rand.Rand
}

// query returns the query of a piece.
func (p *pageReader) query(place, at string) string {
	q := fmt.Sprintf("?%s=%s&limit=%d", place, at, 1+p.rand.IntN(7))
	if p.types != "" {
		q += "&types=" + p.types
	}
	return q
}

// on reads on from an offset to the tail, and returns the ids and the offset there.
func (p *pageReader) on(offset string) (got []string, next string) {
	p.t.Helper()
	for {
		a := call{method: "GET", path: p.query("offset", offset), token: p.token}.do(p.t, p.base)
		if a.status != 200 {
			p.t.Errorf("from %s: %d %s", offset, a.status, a.body)
			return got, offset
		}
		some := strings.Fields(ids(p.t, a.body))
		next = a.header.Get("Stream-Next-Offset")
		if next < offset && offset != "0" || next == offset && len(some) > 0 {
			p.t.Errorf("%d entries from %s to %s", len(some), offset, next)
			return got, next
		}
		if got, offset = append(got, some...), next; a.header.Get("Stream-Up-To-Date") == "true" {
			return got, next
		}
	}
}

// back reads back from the tail to the start.
func (p *pageReader) back() (got []string) {
	p.t.Helper()
	const start = "00000000000000000000"
	for before := "now"; before != start; {
		a := call{method: "GET", path: p.query("before", before), token: p.token}.do(p.t, p.base)
		if a.status != 200 {
			p.t.Errorf("before %s: %d %s", before, a.status, a.body)
			return got
		}
		prev := a.header.Get("Stream-Prev-Offset")
		if before != "now" && prev >= before {
			p.t.Errorf("before %s comes %s", before, prev)
			return got
		}
		got, before = append(strings.Fields(ids(p.t, a.body)), got...), prev
	}
	return got
}

// whole reads the thread at once.
func (p *pageReader) whole() []string {
	p.t.Helper()
	q := ""
	if p.types != "" {
		q = "?types=" + p.types
	}
	return strings.Fields(ids(p.t, call{method: "GET", path: q, token: p.token}.do(p.t, p.base).body))
}

// randomBatch is a post of one to five entries of a run.
func randomBatch(r *rand.Rand, n *int, beats *int) string {
	var all []string
	for range 1 + r.IntN(5) {
		switch *n++; r.IntN(4) {
		case 0:
			all = append(all, chat(fmt.Sprint("c", *n), strings.Repeat("x", r.IntN(3000))))
		case 1:
			all = append(all, typed(fmt.Sprint("p", *n), "pi.session"))
		default:
			if len(all) > 0 { // NATS removes a heartbeat only with its whole append
				continue
			}
			*beats++
			return fmt.Sprintf(`{"id":"r1.beat.%d","ts":"2026-01-01T00:00:00.000Z",`+
				`"payload":{"type":"signal.dispatch.heartbeat","runId":"r1","harness":"pi","beat":%d}}`, *beats, *beats)
		}
	}
	return "[" + strings.Join(all, ",") + "]"
}

// Pieces joined are the whole read, forwards and backwards, with types the filtered whole read: while others append,
// and while heartbeats are removed.
func TestPiecesJoin(t *testing.T) {
	for name, open := range engines {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var streams *log.Log
			base := serveOn(t, open(t), func(s *server.Server) { streams = s.Log }) + "/api/stream/arbe-thread-t1"
			token := writer(t, "t1")
			post := func(body string) {
				if a := (call{method: "POST", token: token, body: body}).do(t, base); a.status != 200 {
					t.Errorf("got %+v", a)
				}
			}
			readers := map[string]*pageReader{}
			for i, types := range []string{"", "signal.", "chat,pi.", "codex."} {
				readers[types] = &pageReader{t, base, token, types, rand.New(rand.NewPCG(7, uint64(i)))}
			}
			post(`{"id":"r1.running","ts":"2026-01-01T00:00:00.000Z","payload":` +
				`{"type":"signal.thread.status_changed","runId":"r1","harness":"pi","status":"running"}}`)

			// While a writer appends.
			done := make(chan struct{})
			joined, behind := map[string][]string{}, map[string][][]string{}
			var mu sync.Mutex
			var all sync.WaitGroup
			for types, p := range readers {
				all.Go(func() {
					var got []string
					var backs [][]string
					for offset, last := "0", false; !last; {
						select {
						case <-done:
							last = true
						default:
						}
						var some []string
						some, offset = p.on(offset)
						got, backs = append(got, some...), append(backs, p.back())
					}
					mu.Lock()
					defer mu.Unlock()
					joined[types], behind[types] = got, backs
				})
			}
			r, n, beats := rand.New(rand.NewPCG(1, 1)), 0, 0
			for range 120 {
				post(randomBatch(r, &n, &beats))
			}
			post(`{"id":"r1.end.0","ts":"2026-01-01T00:00:00.000Z","payload":` +
				`{"type":"signal.thread.status_changed","runId":"r1","harness":"pi","status":"completed"}}`)
			close(done)
			all.Wait()
			before := map[string][]string{}
			for types, p := range readers {
				want := p.whole()
				before[types] = want
				if types == "" && len(want) < 100 || types == "codex." && len(want) > 0 {
					t.Errorf("types %q: %d entries", types, len(want))
				}
				if !slices.Equal(joined[types], want) {
					t.Errorf("types %q: %d entries joined, want %d", types, len(joined[types]), len(want))
				}
				for _, got := range behind[types] {
					if len(got) > len(want) || !slices.Equal(got, want[:len(got)]) {
						t.Errorf("types %q: %d entries backwards are not the first ones", types, len(got))
					}
				}
				if last := behind[types][len(behind[types])-1]; !slices.Equal(last, want) {
					t.Errorf("types %q: %d entries backwards in the end, want %d", types, len(last), len(want))
				}
			}

			// While heartbeats are removed: none of those that stay is missing.
			removed := make(chan log.Pass, 1)
			go func() {
				pass, err := streams.Expire(t.Context(), time.Now().Add(time.Hour),
					log.Retention{Heartbeats: time.Minute})
				if err != nil {
					t.Error(err)
				}
				removed <- pass
			}()
			during := map[string][][]string{}
			for types, p := range readers {
				all.Go(func() {
					got, _ := p.on("0")
					back := p.back()
					mu.Lock()
					defer mu.Unlock()
					during[types] = [][]string{got, back}
				})
			}
			all.Wait()
			if pass := <-removed; pass.Heartbeats != beats-1 {
				t.Errorf("%d heartbeats were removed, want %d", pass.Heartbeats, beats-1)
			}
			if a := (call{method: "GET", path: "/entries/r1.beat.1", token: token}).do(t, base); a.code != "removed" {
				t.Errorf("a removed heartbeat: %+v", a)
			}
			for types, p := range readers {
				want := p.whole()
				for i, got := range during[types] {
					if !within(got, before[types]) || !within(want, got) {
						t.Errorf(
							"types %q, %d: %d of %d entries, and %d stay",
							types,
							i,
							len(got),
							len(before[types]),
							len(want),
						)
					}
				}
				got, _ := p.on("0")
				if back := p.back(); !slices.Equal(got, want) || !slices.Equal(back, want) {
					t.Errorf("types %q: %d and %d entries, want %d", types, len(got), len(back), len(want))
				}
			}
		})
	}
}

// within reports whether part is all in order, with some left out.
func within(part, all []string) bool {
	for _, id := range part {
		i := slices.Index(all, id)
		if i < 0 {
			return false
		}
		all = all[i+1:]
	}
	return true
}

// Pieces of forks of forks, joined, equal a whole read: the cuts are at any place, those within an append too.
func TestPiecesOfForks(t *testing.T) {
	for name, open := range engines {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := log.New(open(t))
			t.Cleanup(func() {
				if err := l.Close(); err != nil {
					t.Error(err)
				}
			})
			ctx, r := t.Context(), rand.New(rand.NewPCG(5, 6))
			source := ""
			for depth := range 3 {
				name := fmt.Sprint("fork", depth)
				if _, _, err := l.Create(ctx, name, log.Want{Type: "application/json", Source: source}); err != nil {
					t.Fatal(err)
				}
				for i := range 20 {
					body := fmt.Sprintf(`["%d.%d"`, depth, i)
					for k := range r.IntN(4) {
						body += fmt.Sprintf(`,"%d.%d.%d"`, depth, i, k)
					}
					if _, err := l.Post(ctx, name,
						log.Post{Type: "application/json", Body: []byte(body + "]")}); err != nil {
						t.Fatal(err)
					}
				}
				source = name
				v, err := l.Stat(ctx, name)
				if err != nil {
					t.Fatal(err)
				}
				whole, err := l.Read(ctx, v, 0, v.Tail(), 1<<20)
				if err != nil {
					t.Fatal(err)
				}
				for _, limit := range []int{1, 2, 7, 1000} {
					b := log.Bounds{Records: limit, Bytes: 1 << 20}
					var on, back []engine.Record
					for at := (log.Offset{}); at.Seq < v.Tail(); {
						p := log.Piece{Next: at}
						records, err := l.Read(ctx, v, at.Seq, v.Tail(), 1+r.IntN(50))
						if err != nil {
							t.Fatal(err)
						}
						p.Add(records, v.Tail(), b)
						on, at = append(on, p.Records...), p.Next
					}
					for at := (log.Offset{Seq: v.Tail()}); at != (log.Offset{}); {
						p := log.Piece{Prev: at}
						records, err := l.ReadBack(ctx, v, at.UpTo(), 1+r.IntN(limit), 1+r.IntN(50))
						if err != nil {
							t.Fatal(err)
						}
						p.AddBack(records, b)
						back, at = append(p.Records, back...), p.Prev
					}
					if !slices.EqualFunc(on, whole, sameRecord) || !slices.EqualFunc(back, whole, sameRecord) {
						t.Errorf("depth %d, limit %d: %d and %d records, want %d", depth, limit, len(on), len(back),
							len(whole))
					}
				}
			}
		})
	}
}

func sameRecord(a, b engine.Record) bool { return a.Seq == b.Seq && string(a.Data) == string(b.Data) }

// A thread that is deleted while it is read is 410. One that was restored from an older backup is 400 beyond_tail for
// every way to read, until the reader starts anew.
func TestPiecesOfAnotherThread(t *testing.T) {
	s := newServer(t)
	token := writer(t, "t1")
	const p = "/api/stream/arbe-thread-t1"
	post := func(from, to int) {
		t.Helper()
		for i := from; i < to; i++ {
			if a := s.do("POST", p, token, chat(fmt.Sprint("e", i), "x")); a.status != 200 {
				t.Fatalf("got %+v", a)
			}
		}
	}
	post(0, 5)
	s.close()
	old := t.TempDir()
	if err := os.CopyFS(old, os.DirFS(s.dir)); err != nil {
		t.Fatal(err)
	}
	s.open()
	post(5, 10)
	next := s.do("GET", p+"?offset=0&limit=8", token, "").header.Get("Stream-Next-Offset")

	s.close()
	fresh := s.dir
	s.dir = old
	s.open()
	for _, q := range []string{
		"offset", "limit=3&offset", "live=long-poll&offset", "live=sse&offset",
		"types=chat&offset", "limit=1&before",
	} {
		a := s.do("GET", p+"?"+q+"="+next, token, "")
		if a.status != 400 || a.code != "beyond_tail" ||
			a.header.Get("Stream-Next-Offset") != fmt.Sprintf("%020d", 5) {
			t.Errorf("%s: %+v", q, a)
		}
	}
	if a := s.do("GET", p+"?offset=0&limit=8", token, ""); ids(t, a.body) != "e0 e1 e2 e3 e4" {
		t.Errorf("anew: %+v", a)
	}

	s.close()
	s.dir = fresh
	s.open()
	if err := s.log.Delete(t.Context(), thread.StreamName("t1")); err != nil {
		t.Fatal(err)
	}
	for _, q := range []string{"?limit=3&offset=" + next, "?limit=3&before=" + next, "/entries/e1"} {
		if a := s.do("GET", p+q, token, ""); a.status != 410 || a.code != "gone" {
			t.Errorf("%s of a deleted thread: %+v", q, a)
		}
	}
}

// A piece has 8 MiB at most, also where its entries are one append that NATS keeps in many messages.
func TestLargePieceBytes(t *testing.T) {
	for name, open := range engines {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			base := serveOn(t, open(t), func(*server.Server) {}) + "/api/stream/arbe-thread-t1"
			token := writer(t, "t1")
			var posted, want []string
			for i := range 8 {
				id := fmt.Sprint("e", i)
				posted, want = append(posted, chat(id, strings.Repeat("x", 1<<20))), append(want, id)
			}
			posted, want = append(posted, chat("large", strings.Repeat("x", 7<<20))), append(want, "large")
			for _, body := range []string{"[" + strings.Join(posted, ",") + "]", chat("last", "x")} {
				if a := (call{method: "POST", token: token, body: body}).do(t, base); a.status != 200 {
					t.Fatalf("got %d %.200s", a.status, a.body)
				}
			}
			want = append(want, "last")
			var on, back []string
			check := func(a answer) []string {
				if a.status != 200 || len(a.body) > 8<<20 || len(a.body) == 0 {
					t.Fatalf("got %d and %d bytes", a.status, len(a.body))
				}
				return strings.Fields(ids(t, a.body))
			}
			for offset, more := "0", true; more; {
				a := call{method: "GET", path: "?limit=1000&offset=" + offset, token: token}.do(t, base)
				on, more = append(on, check(a)...), a.header.Get("Stream-Up-To-Date") == ""
				offset = a.header.Get("Stream-Next-Offset")
				whole := call{method: "GET", path: "?offset=" + offset, token: token}.do(t, base).body
				if n := strings.Count(whole, "\n"); len(on)+n != len(want) {
					t.Errorf("a whole read from %s: %d entries after %d", offset, n, len(on))
				}
			}
			for before := "now"; len(back) < len(want); {
				a := call{method: "GET", path: "?limit=1000&before=" + before, token: token}.do(t, base)
				back, before = append(check(a), back...), a.header.Get("Stream-Prev-Offset")
			}
			if !slices.Equal(on, want) || !slices.Equal(back, want) {
				t.Errorf("got %v and %v", on, back)
			}
			seq, _, _ := strings.Cut(
				call{method: "GET", path: "?limit=1", token: token}.do(t, base).header.Get("Stream-Next-Offset"),
				"_",
			)
			a := call{method: "GET", path: "?offset=" + seq + "_999999", token: token}.do(t, base)
			if a.status != 200 {
				t.Errorf("from an offset that no append has: %d %.200s", a.status, a.body)
			}
		})
	}
}

// A piece of rare types ends after 32 MiB of others, with the offset to read on from.
func TestLargePieceOfRareTypes(t *testing.T) {
	s := newServer(t)
	token := writer(t, "t1")
	const p = "/api/stream/arbe-thread-t1"
	post := func(body string) {
		t.Helper()
		if a := s.do("POST", p, token, body); a.status != 200 {
			t.Fatalf("got %d %.200s", a.status, a.body)
		}
	}
	post(typed("first", "signal.a.b"))
	for i := range 5 {
		post(chat(fmt.Sprint("e", i), strings.Repeat("x", 7<<20)))
	}
	post(typed("last", "signal.a.b"))
	for place, header := range map[string]string{"offset": "Stream-Next-Offset", "before": "Stream-Prev-Offset"} {
		at, got, requests := map[string]string{"offset": "0", "before": "now"}[place], "", 0
		for len(strings.Fields(got)) < 2 && requests < 10 {
			a := s.do("GET", p+"?types=signal.&limit=5&"+place+"="+at, token, "")
			if next := a.header.Get(header); a.status != 200 || next == at {
				t.Fatalf("%s=%s: %d, %s", place, at, a.status, next)
			}
			got, at, requests = got+" "+ids(t, a.body), a.header.Get(header), requests+1
		}
		if requests != 2 {
			t.Errorf("%s: %d requests for %q", place, requests, got)
		}
	}
}

// What another server of the cluster appended is found by its id at once.
func TestReceivedAtOnAnotherServer(t *testing.T) {
	open := natsCluster(t)
	first, second := log.New(open(t)), log.New(open(t))
	t.Cleanup(func() {
		if err := errors.Join(first.Close(), second.Close()); err != nil {
			t.Error(err)
		}
	})
	for i := range 3 {
		id := fmt.Sprint("e", i)
		if _, ok, err := second.ReceivedAt(t.Context(), "t1", id); ok || err != nil {
			t.Errorf("before: %v, %v", ok, err)
		}
		e, err := thread.ParseEntry([]byte(chat(id, "x")))
		if err == nil {
			_, err = first.Append(t.Context(), "t1", []thread.Entry{e})
		}
		if err != nil {
			t.Fatal(err)
		}
		if at, ok, err := second.ReceivedAt(t.Context(), "t1", id); !ok || err != nil || at.IsZero() {
			t.Errorf("after: %v, %v, %v", at, ok, err)
		}
	}
}
