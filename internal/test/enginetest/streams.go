package enginetest

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"arbe.0sk.ar/runner/host/log"
	"arbe.0sk.ar/runner/host/log/engine"
)

func (s suite) names(t *testing.T) {
	names := []string{
		"/a b/é.*>", "a", "A", "a.b", "a.*", "a.>", ">", "*", "~a", "~", "$SYS", " ", "\n", "\xff\xfe", "arbe-thread-x",
		"arbe-thread-x/y", "/arbe-thread-x", "/",
		"arbe-thread-", "x", "/x", strings.Repeat("x", engine.MaxName), strings.Repeat("/é", engine.MaxName/3), "~YQ",
		"YQ",
	}
	s.reopening(t, func(t *testing.T, open func() log.Engine) {
		e := open()
		for _, name := range names {
			Add(t, e, name, "in "+name)
		}
		e = open()
		for _, name := range names {
			if got := Texts(ReadAll(t, e, name, 1000)); !cmp.Equal(got, []string{"in " + name}) {
				t.Errorf("stream %.20q has %.30q", name, got)
			}
		}
		var got []string
		if err := e.Streams(t.Context(), func(name string, _ engine.Head) error {
			got = append(got, name)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		want := slices.Clone(names)
		slices.Sort(got)
		slices.Sort(want)
		if d := cmp.Diff(got, want); d != "" {
			t.Error(d)
		}
	})
}

func (s suite) streams(t *testing.T) {
	const count = 2300
	s.once(t, func(t *testing.T, e log.Engine) {
		want := make([]engine.Head, count)
		var all sync.WaitGroup
		for w := range 8 {
			all.Go(func() {
				for i := w; i < count; i += 8 {
					a := engine.Append{
						Records: []engine.Record{{At: Now, Data: []byte("x")}},
						State:   []byte(fmt.Sprint(i)),
					}
					var err error
					if want[i], err = e.Append(t.Context(), fmt.Sprint("s", i), a); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		all.Wait()
		if _, err := e.Append(t.Context(), "stateless", engine.Append{}); err != nil {
			t.Error(err)
		}
		got := map[string]engine.Head{}
		if err := e.Streams(t.Context(), func(name string, h engine.Head) error {
			if _, is := got[name]; is {
				t.Errorf("%s twice", name)
			}
			got[name] = h
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if len(got) != count {
			t.Errorf("%d streams", len(got))
		}
		for i, h := range want {
			if d := cmp.Diff(got[fmt.Sprint("s", i)], h); d != "" {
				t.Fatal(d)
			}
		}
		stop := errors.New("stop")
		if err := e.Streams(t.Context(), func(string, engine.Head) error { return stop }); !errors.Is(err, stop) {
			t.Errorf("got %v", err)
		}
	})
}

func (s suite) watchEnds(t *testing.T) {
	s.once(t, func(t *testing.T, e log.Engine) {
		w, ok := e.(watcher)
		if !ok {
			return // nobody else appends to this engine
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- w.Watch(ctx, func(string) {}) }()
		Add(t, e, "s", "x")
		cancel()
		if err := <-done; err != nil {
			t.Errorf("got %v", err)
		}
	})
}

func (s suite) manyStreams(t *testing.T) {
	s.once(t, func(t *testing.T, e log.Engine) {
		var all sync.WaitGroup
		for w := range 16 {
			all.Go(func() {
				name := fmt.Sprint("s", w)
				for i := range 20 {
					if _, err := Persist(t.Context(), e, name, fmt.Sprint(i)); err != nil {
						t.Error(err)
						return
					}
				}
				h, err := e.Head(t.Context(), name)
				if err != nil {
					t.Error(err)
				}
				rs, err := e.Read(t.Context(), name, 0, h.Last, 1<<20)
				if err != nil || len(rs) != 20 {
					t.Errorf("%s: %d records, %v", name, len(rs), err)
				}
			})
		}
		all.Wait()
		if err := e.Check(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// cancelled makes calls whose context is done. They succeed, or fail with the context's error; an append may have
// happened.
func (s suite) cancelled(t *testing.T) {
	s.once(t, func(t *testing.T, e log.Engine) {
		h := Add(t, e, "s", "x")
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err1 := e.Append(ctx, "s", engine.Append{After: h.Last})
		_, err2 := e.Head(ctx, "s")
		_, err3 := e.Read(ctx, "s", 0, h.Last, 100)
		_, _, err4 := e.Lookup(ctx, "s", "y")
		for i, err := range []error{err1, err2, err3, err4} {
			if err != nil && !errors.Is(err, context.Canceled) {
				t.Errorf("call %d: %v", i, err)
			}
		}
		Add(t, e, "s", "y")
	})
}

func (s suite) goroutines(t *testing.T) {
	s.reopening(t, func(t *testing.T, open func() log.Engine) {
		e := open()
		Add(t, e, "s", "x")
		if err := e.Check(t.Context()); err != nil {
			t.Error(err)
		}
		before := runtime.NumGoroutine()
		for range 3 {
			ctx, cancel := context.WithCancel(t.Context())
			var all sync.WaitGroup
			if w, ok := e.(watcher); ok {
				all.Go(func() {
					if err := w.Watch(ctx, func(string) {}); err != nil {
						t.Error(err)
					}
				})
			}
			ReadAll(t, e, "s", 100)
			cancel()
			all.Wait()
			e = open()
			Add(t, e, "s", "x")
		}
		// The server's end of a connection takes a moment.
		Until(t, func() bool { return runtime.NumGoroutine() <= before })
	})
}
