package page

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"html/template"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"arbe.0sk.ar/runner/host/access"
	"arbe.0sk.ar/runner/host/index"
	"arbe.0sk.ar/runner/host/log"
	"arbe.0sk.ar/runner/host/log/engine"
	"arbe.0sk.ar/runner/host/log/pebble"
	"arbe.0sk.ar/runner/host/memory"
	"arbe.0sk.ar/runner/host/page/markup"
	"arbe.0sk.ar/runner/thread"
)

// house is a page over a log on disk.
type house struct {
	*page
	t      *testing.T
	engine *faulty
	text   string        // of each chat, behind its id
	share  string        // the code by which browsers come; "" for a login
	logged *bytes.Buffer // guarded by mu
	mu     sync.Mutex
}

// faulty is an engine that panics once.
type faulty struct {
	log.Engine
	panics atomic.Bool
}

// Head implements engine.Engine.
func (f *faulty) Head(ctx context.Context, name string) (engine.Head, error) {
	if f.panics.CompareAndSwap(true, false) {
		panic("a broken engine")
	}
	return f.Engine.Head(ctx, name)
}

// Write implements io.Writer, for the page's log.
func (h *house) Write(b []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.logged.Write(b)
}

func newHouse(t *testing.T) *house {
	t.Helper()
	quiet := slog.New(slog.DiscardHandler)
	on, err := pebble.Open(t.TempDir(), quiet)
	if err != nil {
		t.Fatal(err)
	}
	h := &house{t: t, engine: &faulty{Engine: on}, logged: &bytes.Buffer{}}
	l := log.New(h.engine)
	x, err := index.Open(t.TempDir(), "i1", log.New(on), quiet) // its passes panic never
	if err != nil {
		t.Fatal(err)
	}
	l.Changed = x.Changed
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- x.Run(ctx) }()
	for !x.Ready() { // else there is no list
		select {
		case err := <-ended:
			t.Fatal(err)
		case <-time.After(time.Millisecond):
		}
	}
	h.page = newPage(Config{
		Log: l, Threads: x, Secrets: [][]byte{[]byte("a secret of 32 bytes and more ....")}, Local: true,
		Closing: ctx, Budget: memory.NewBudget(64 << 20), Logger: slog.New(slog.NewTextHandler(h, nil)),
	})
	t.Cleanup(func() {
		cancel()
		if err := errors.Join(<-ended, x.Close(), l.Close()); err != nil {
			t.Error(err)
		}
	})
	return h
}

// append appends chats with these ids, in one append, and returns the thread's end.
func (h *house) append(id string, chats ...string) uint64 {
	h.t.Helper()
	var all []thread.Entry
	for _, chat := range chats {
		all = append(all, thread.Entry{
			ID: chat, TS: thread.Stamp(time.Now()),
			Payload: thread.Marshal(map[string]any{"type": "chat", "text": chat + h.text}),
		})
	}
	done, err := h.Log.Append(h.t.Context(), id, all)
	if err != nil {
		h.t.Fatal(err)
	}
	return done.Next
}

// browser receives a live answer.
type browser struct {
	header http.Header
	leave  context.CancelFunc
	ended  chan struct{} // closed when the answer has ended

	mu   sync.Mutex
	more *sync.Cond
	body bytes.Buffer
	shut bool // it takes nothing
	over bool
}

// open opens a live answer behind a place.
func (h *house) open(id string, after uint64) *browser {
	h.t.Helper()
	return h.follow(fmt.Sprintf("/t/%s/live?after=%d", id, after))
}

// cookie returns the cookie of a browser.
func (h *house) cookie() *http.Cookie {
	h.t.Helper()
	name, s := "arbe", access.NewSession(now())
	if h.share != "" {
		share, err := h.store.ShareOf(h.t.Context(), now(), h.share)
		if err != nil {
			h.t.Fatal(err)
		}
		name, s = "arbe-share", share.NewSession(now())
	}
	return &http.Cookie{Name: name, Value: access.Seal(h.Secrets[0], s)}
}

// follow opens a live answer.
func (h *house) follow(path string) *browser {
	h.t.Helper()
	r := httptest.NewRequest("GET", path, nil)
	r.AddCookie(h.cookie())
	r.Host = "localhost"
	ctx, cancel := context.WithCancel(h.t.Context())
	b := &browser{header: http.Header{}, leave: cancel, ended: make(chan struct{})}
	b.more = sync.NewCond(&b.mu)
	go func() {
		defer close(b.ended)
		h.handler().ServeHTTP(b, r.WithContext(ctx))
		b.mu.Lock()
		b.over = true
		b.more.Broadcast()
		b.mu.Unlock()
	}()
	return b
}

// Header implements http.ResponseWriter.
func (b *browser) Header() http.Header { return b.header }

// WriteHeader implements http.ResponseWriter.
func (b *browser) WriteHeader(int) {}

// FlushError is called by http.ResponseController.
func (b *browser) FlushError() error { return nil }

// Write implements http.ResponseWriter.
func (b *browser) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for b.shut {
		b.more.Wait()
	}
	b.more.Broadcast()
	return b.body.Write(p)
}

// shutTo makes the browser take nothing, or everything again.
func (b *browser) shutTo(shut bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.shut = shut
	b.more.Broadcast()
}

// await waits until the browser has a text, and reports whether it has got it before the answer's end.
func (b *browser) await(text string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for from := 0; !bytes.Contains(b.body.Bytes()[from:], []byte(text)); b.more.Wait() {
		if b.over {
			return false
		}
		from = max(b.body.Len()-len(text), 0)
	}
	return true
}

// text returns what the browser has.
func (b *browser) text() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.body.String()
}

// events returns the names of the events that the browser has, of items their ids in place of it.
func (b *browser) events() (all []string) {
	for event := range strings.SplitSeq(b.text(), "\n\n") {
		name, rest, _ := strings.Cut(strings.TrimPrefix(event, "event: "), "\ndata: {")
		if _, id, ok := strings.Cut(rest, `"id":"`); ok && name == "item" {
			name, _, _ = strings.Cut(id, `"`)
		}
		if name != "" && !strings.HasPrefix(name, ":") {
			all = append(all, name)
		}
	}
	return all
}

// items returns the ids of the items that the browser has.
func (b *browser) items() []string {
	return slices.DeleteFunc(b.events(), func(s string) bool { return !strings.HasPrefix(s, "c") })
}

// end ends the answer.
func (b *browser) end() {
	b.leave()
	<-b.ended
}

// checkEmpty checks that nothing is left of the rooms.
func (h *house) checkEmpty() {
	h.t.Helper()
	h.rooms.mu.Lock()
	defer h.rooms.mu.Unlock()
	if len(h.rooms.open) != 0 || h.Budget.Held() != 0 {
		h.t.Errorf("%d rooms, %d bytes held", len(h.rooms.open), h.Budget.Held())
	}
}

func ids(from, to int) (all []string) {
	for i := from; i < to; i++ {
		all = append(all, fmt.Sprint("c", i))
	}
	return all
}

// What a thread gets is rendered once, whether one browser shows the thread or 200.
func TestRoomRendersOnce(t *testing.T) {
	var rendered atomic.Int64
	templates.Funcs(template.FuncMap{"written": func(s string) template.HTML {
		rendered.Add(1)
		return markup.Written(s)
	}})
	defer templates.Funcs(template.FuncMap{"written": markup.Written})
	h := newHouse(t)
	const n = 40
	work := map[int]int64{}
	for _, viewers := range []int{1, 200} {
		id := fmt.Sprint("t", viewers)
		after := h.append(id, "first")
		var all []*browser
		for range viewers {
			b := h.open(id, after)
			if !b.await("event: ready") {
				t.Fatal("the answer has ended")
			}
			all = append(all, b)
		}
		before := rendered.Load()
		for i := range n {
			h.append(id, fmt.Sprint("c", i))
		}
		for _, b := range all {
			if !b.await(fmt.Sprintf(`"id":"c%d"`, n-1)) {
				t.Fatal("the answer has ended")
			}
			if got := b.items(); !slices.Equal(got, ids(0, n)) {
				t.Errorf("got %v", got)
			}
		}
		work[viewers] = rendered.Load() - before
		for _, b := range all {
			b.end()
		}
	}
	if work[1] != n || work[200] != n {
		t.Errorf("%d and %d renderings for 1 and 200 viewers of %d entries", work[1], work[200], n)
	}
	h.checkEmpty()
}

// Browsers that come at any place and go at any time get each item behind their place once, in order.
func TestRoomJoin(t *testing.T) {
	h := newHouse(t)
	const n = 600
	h.append("t", "first")
	var mu sync.Mutex
	places := []struct {
		after uint64
		next  int
	}{{1, 0}}
	wrote := make(chan struct{})
	go func() {
		defer close(wrote)
		random := rand.New(rand.NewPCG(1, 1))
		for i := 0; i < n; {
			to := min(n, i+1+random.IntN(20))
			after := h.append("t", ids(i, to)...)
			mu.Lock()
			places = append(places, struct {
				after uint64
				next  int
			}{after, to})
			mu.Unlock()
			i = to
		}
	}()
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			random := rand.New(rand.NewPCG(2, uint64(i)))
			for done := false; !done; {
				select {
				case <-wrote:
					done = true // one more: it gets the end
				default:
				}
				mu.Lock()
				from := places[len(places)-1-random.IntN(min(len(places), 10))]
				mu.Unlock()
				b := h.open("t", from.after)
				until := min(n-1, from.next+random.IntN(200))
				if done {
					until = n - 1
				}
				if from.next < n && !b.await(fmt.Sprintf(`"id":"c%d"`, until)) {
					t.Error("the answer has ended")
				}
				b.end()
				got := b.items()
				if want := ids(from.next, from.next+len(got)); !slices.Equal(got, want) {
					t.Errorf("behind c%d: got %v", from.next-1, got)
				}
			}
		})
	}
	all.Wait()
	<-wrote
	h.checkEmpty()
}

// A browser that takes nothing for a while misses nothing, and does not keep another one from what comes. It holds one
// chunk and the ring at most.
func TestRoomSlow(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.text = strings.Repeat(" text", 500)
	after := h.append("t", "first")
	slow, fast := h.open("t", after), h.open("t", after)
	for _, b := range []*browser{slow, fast} {
		if !b.await("event: ready") {
			t.Fatal("the answer has ended")
		}
	}
	slow.shutTo(true)
	const n = 1000 // 3 MB
	for i := 0; i < n; i += 20 {
		h.append("t", ids(i, i+20)...)
		if !fast.await(fmt.Sprintf(`"id":"c%d"`, i+19)) {
			t.Fatal("the answer has ended")
		}
		if held := h.Budget.Held(); held > 2*ringBytes {
			t.Fatalf("%d held", held)
		}
	}
	slow.shutTo(false)
	for _, b := range []*browser{slow, fast} {
		if !b.await(fmt.Sprintf(`"id":"c%d"`, n-1)) {
			t.Fatal("the answer has ended")
		}
		if got := b.items(); !slices.Equal(got, ids(0, n)) {
			t.Errorf("%d items, want %d", len(got), n)
		}
		b.end()
	}
	h.checkEmpty()
}

// A browser that is too far behind gets an event with that; one that is not gets what it lacks before ready.
func TestRoomBehind(t *testing.T) {
	h := newHouse(t)
	after := h.append("t", "first")
	at := h.open("t", after)
	if !at.await("event: ready") {
		t.Fatal("the answer has ended")
	}
	for i := 0; i < mostBehind; i += 500 {
		h.append("t", ids(i, i+500)...)
	}
	last := fmt.Sprintf(`"id":"c%d"`, mostBehind-1)
	if !at.await(last) {
		t.Fatal("the answer has ended")
	}
	b := h.open("t", after)
	if !b.await("event: ready") {
		t.Fatal("the answer has ended")
	}
	if got := b.events(); !slices.Equal(got, append(ids(0, mostBehind), "head", "ready")) {
		t.Errorf("%d events", len(got))
	}
	h.append("t", "cx")
	if !at.await(`"id":"cx"`) {
		t.Fatal("the answer has ended")
	}
	far := h.open("t", after)
	<-far.ended
	if got := far.events(); got[len(got)-1] != "far" || slices.Contains(got, "ready") {
		t.Errorf("got %v", got[max(0, len(got)-3):])
	}
	for _, b := range []*browser{at, b} {
		if !b.await(`"id":"cx"`) {
			t.Error("the answer has ended")
		}
		b.end()
	}
	h.checkEmpty()
}

// A thread that is deleted is gone for all its viewers, and a place behind its end is, too.
func TestRoomGone(t *testing.T) {
	h := newHouse(t)
	after := h.append("t", "first")
	var all []*browser
	for range 3 {
		b := h.open("t", after)
		if !b.await("event: ready") {
			t.Fatal("the answer has ended")
		}
		all = append(all, b)
	}
	if err := h.Log.Delete(t.Context(), thread.StreamName("t")); err != nil {
		t.Fatal(err)
	}
	for _, b := range all {
		<-b.ended
		if got := b.events(); got[len(got)-1] != "gone" {
			t.Errorf("got %v", got)
		}
	}
	b := h.open("u", h.append("u", "c0")+1)
	<-b.ended
	if got := b.events(); !slices.Equal(got, []string{"gone"}) {
		t.Errorf("got %v", got)
	}
	h.checkEmpty()
}

// A panic ends the answers to a thread's viewers, not the server, and is logged. They come again to another room.
func TestRoomPanics(t *testing.T) {
	h := newHouse(t)
	after := h.append("t", "first")
	b, other := h.open("t", after), h.open("t", after)
	for _, b := range []*browser{b, other} {
		if !b.await("event: ready") {
			t.Fatal("the answer has ended")
		}
	}
	h.engine.panics.Store(true)
	h.append("t", "c0")
	<-b.ended
	<-other.ended
	h.mu.Lock()
	if got := h.logged.String(); !strings.Contains(got, "a broken engine") || strings.Count(got, "interrupted") != 1 {
		t.Errorf("logged %s", got)
	}
	h.mu.Unlock()
	b = h.open("t", after)
	if !b.await("event: ready") || !slices.Equal(b.events(), []string{"c0", "head", "ready"}) {
		t.Errorf("got %v", b.events())
	}
	b.end()
	h.checkEmpty()
}
