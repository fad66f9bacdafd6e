package jetstream_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"arbe.0sk.ar/runner/host/log/engine"
	"arbe.0sk.ar/runner/host/log/jetstream"
	"arbe.0sk.ar/runner/internal/test/enginetest"
	"arbe.0sk.ar/runner/internal/test/natsserver"
)

// TestCluster kills a server of a cluster while two engines append to the same streams, of which it leads some, and
// starts it again. In make faults the two others are stopped before that, one after the other. Every acknowledged
// append is there once, in its writer's order.
func TestCluster(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
	engines := []*jetstream.Engine{open(t, c.config(0)), open(t, c.config(1))}
	h := watch(t, engines[1])
	const streams = 3
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var all sync.WaitGroup
	var acks [2 * streams]atomic.Int64
	// The two writers of a stream keep pace: small appends without pause leave a large one no time.
	var turns [2 * streams]chan struct{}
	for w := range turns {
		turns[w] = make(chan struct{}, 1000)
		for range 3 {
			turns[w] <- struct{}{}
		}
	}
	for w := range acks {
		all.Go(func() {
			e, stream := engines[w%2], fmt.Sprint("s", w/2)
			for i := 0; ; i++ {
				select {
				case <-turns[w]:
				case <-ctx.Done():
					return
				}
				text := fmt.Sprintf("%d.%d", w, i)
				if i%32 == 5 {
					text += strings.Repeat(" ", 1100<<10) // of several messages
				}
				for { // until it is acknowledged, as a client does
					_, err := enginetest.Persist(t.Context(), e, stream, text)
					if err == nil {
						break
					}
					if t.Context().Err() != nil {
						return
					}
					t.Logf("writer %d: %v", w, err)
				}
				acks[w].Add(1)
				turns[w^1] <- struct{}{}
			}
		})
	}
	progress := func() {
		var before [len(acks)]int64
		for w := range acks {
			before[w] = acks[w].Load()
		}
		enginetest.Until(t, func() bool {
			for w := range acks {
				if acks[w].Load() < before[w]+5 {
					return false
				}
			}
			return true
		})
	}
	begin := time.Now()
	progress()
	conn := enginetest.Must(nats.Connect(
		c.config(0).URL, nats.Timeout(time.Minute), nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond),
	))(t)
	defer conn.Close()
	js := enginetest.Must(natsjs.New(conn, natsjs.WithDefaultTimeout(time.Second)))(t)
	for i := range c.opts {
		if i < len(c.opts)-1 && os.Getenv("ARBE_NATS_FAULTS") == "" {
			continue
		}
		c.lead(js, 0, i)
		c.replace(i, progress)
		enginetest.Until(t, func() bool { return c.whole(js) })
		progress()
		t.Logf("server %d was away and is back, after %s", i, time.Since(begin))
	}
	stop()
	all.Wait()

	fresh := open(t, c.config(2))
	if err := fresh.Check(t.Context()); err != nil {
		t.Error(err)
	}
	total := 0
	for s := range streams {
		stream := fmt.Sprint("s", s)
		next := map[int]int{}
		for _, r := range enginetest.ReadAll(t, fresh, stream, 1<<20) {
			var w, i int
			if _, err := fmt.Sscanf(string(r.Data), "%d.%d", &w, &i); err != nil {
				t.Fatal(err)
			}
			if i != next[w] {
				t.Errorf("%s: append %d of writer %d is where %d should be", stream, i, w, next[w])
			}
			next[w] = i + 1
		}
		for _, w := range []int{2 * s, 2*s + 1} {
			if acks := int(acks[w].Load()); next[w] != acks {
				t.Errorf("%s: %d of %d acknowledged appends of writer %d are there", stream, next[w], acks, w)
			}
			total += next[w]
		}
		enginetest.Until(t, func() bool { return h.of(stream) >= next[2*s]+next[2*s+1] })
	}
	t.Logf("%d appends", total)

	// Check reports a new limit by which a shard drops messages.
	limits := enginetest.Must(js.Stream(t.Context(), "ARBE-1"))(t).CachedInfo().Config
	limits.MaxAge = time.Hour
	enginetest.Must(js.UpdateStream(t.Context(), limits))(t)
	var unsafe *jetstream.UnsafeError
	if err := fresh.Check(t.Context()); !errors.As(err, &unsafe) || !strings.Contains(err.Error(), "max_age") {
		t.Errorf("a stream that drops what is old: %v", err)
	}
	limits.MaxAge = 0
	enginetest.Must(js.UpdateStream(t.Context(), limits))(t)
	if err := fresh.Check(t.Context()); err != nil {
		t.Error(err)
	}

	// Without a majority an append fails, within a bounded time.
	last := enginetest.Head(t, fresh, "s0")
	natsserver.Stop(c.servers[1])
	c.killed.kill()
	short, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	if _, err := fresh.Append(short, "s0", engine.Append{After: last.Last}); err == nil ||
		errors.Is(err, engine.ErrFull) {
		t.Errorf("an append without a majority: %v", err)
	}
	if err := fresh.Check(short); err == nil {
		t.Error("all is well without a majority")
	}
}
