package jetstream_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"arbe.0sk.ar/runner/host/log/engine"
	"arbe.0sk.ar/runner/host/log/jetstream"
	"arbe.0sk.ar/runner/internal/test/enginetest"
	"arbe.0sk.ar/runner/internal/test/natsserver"
	"arbe.0sk.ar/runner/internal/test/port"
)

// partitioned is a cluster of three servers whose routes can be cut.
type partitioned struct {
	servers [3]*server.Server
	routes  [3][3]*proxy // from, to
}

func startPartitioned(t testing.TB) *partitioned {
	p := &partitioned{}
	var ports [3]int
	for i := range ports {
		ports[i] = enginetest.Must(net.ResolveTCPAddr("tcp", port.Reserve(t)))(t).Port
	}
	for i := range p.servers {
		var routes []*url.URL
		for j := range p.servers {
			if i != j {
				p.routes[i][j] = startProxyTo(t, fmt.Sprintf("127.0.0.1:%d", ports[j]))
				routes = append(routes, enginetest.Must(url.Parse(p.routes[i][j].url()))(t))
			}
		}
		opts := clustered(fmt.Sprint("n", i), t.TempDir(), server.RANDOM_PORT, ports[i], routes)
		// The servers advertise no address past the proxies.
		opts.Cluster.Advertise, opts.Cluster.NoAdvertise = "127.0.0.1:1", true
		p.servers[i] = enginetest.Must(natsserver.Run(opts))(t)
		t.Cleanup(func() { natsserver.Stop(p.servers[i]) })
	}
	enginetest.Until(t, func() bool {
		e, err := jetstream.Open(t.Context(), p.config(t, 0))
		return err == nil && e.Close() == nil
	})
	return p
}

// config connects an engine to one server only.
func (p *partitioned) config(t testing.TB, i int) jetstream.Config {
	return jetstream.Config{URL: p.servers[i].ClientURL(), Shards: 1, Logger: enginetest.Logger(t)}
}

// cut separates a server from the others, until join.
func (p *partitioned) cut(i int) {
	p.each(i, (*proxy).shut)
}

func (p *partitioned) join(i int) { p.each(i, (*proxy).open) }

func (p *partitioned) each(i int, do func(*proxy)) {
	for j := range p.servers {
		if j != i {
			do(p.routes[i][j])
			do(p.routes[j][i])
		}
	}
}

// TestPartition separates a leader from the others. It never returns an older head than the new leader has
// acknowledged: reads from it fail until it is back. ARBE_NATS_PARTITIONS is the number of partitions to try.
func TestPartition(t *testing.T) {
	t.Parallel()
	n := 1
	if v := os.Getenv("ARBE_NATS_PARTITIONS"); v != "" {
		n = enginetest.Must(strconv.Atoi(v))(t)
	}
	p := startPartitioned(t)
	engines := [3]*jetstream.Engine{}
	for i := range engines {
		engines[i] = open(t, p.config(t, i))
	}
	enginetest.Add(t, engines[0], "s", "first")
	for round := range n {
		leader := -1
		enginetest.Until(t, func() bool { // all replicas are current
			conn, err := nats.Connect(p.servers[0].ClientURL())
			if err != nil {
				return false
			}
			defer conn.Close()
			js := enginetest.Must(natsjs.New(conn, natsjs.WithDefaultTimeout(time.Second)))(t)
			s, err := js.Stream(t.Context(), "ARBE-0")
			if err != nil {
				return false
			}
			at := s.CachedInfo().Cluster
			for _, r := range at.Replicas {
				if !r.Current || r.Offline {
					return false
				}
			}
			_, err = fmt.Sscanf(at.Leader, "n%d", &leader)
			return err == nil && len(at.Replicas) == 2
		})
		old, other := engines[leader], engines[(leader+1)%3]
		before := enginetest.Head(t, old, "s").Last

		// One engine appends on the side of the majority, the other reads from the separated leader.
		var acked atomic.Uint64
		acked.Store(before)
		ctx, stop := context.WithCancel(t.Context())
		written := make(chan error, 1)
		p.cut(leader)
		cut := time.Now()
		go func() {
			for i := 0; i < 5; {
				h, err := enginetest.Persist(ctx, other, "s", fmt.Sprintf("%d.%d", round, i))
				if err == nil {
					acked.Store(h.Last)
					i++
				} else if ctx.Err() != nil {
					break
				}
			}
			written <- ctx.Err()
		}()
		asked, refused, first := 0, 0, time.Duration(0)
		pace := time.NewTicker(2 * time.Millisecond) // leaves the processor to the servers
		for done := false; !done; asked++ {
			<-pace.C
			select {
			case err := <-written:
				if err != nil {
					t.Fatal(err)
				}
				done = true
			default:
			}
			least := acked.Load()
			if least > before && first == 0 {
				first = time.Since(cut)
			}
			h, err := old.Head(t.Context(), "s")
			switch {
			case errors.Is(err, engine.ErrStale):
				refused++
			case err != nil:
				refused++ // the old leader has stepped down
			case h.Last < least:
				t.Errorf("round %d: the server that is cut off gives %d, %d was acknowledged", round, h.Last, least)
				done = true
			}
		}
		pace.Stop()
		t.Logf("round %d: another leader acknowledged after %s; of %d reads %d were refused", round, first, asked,
			refused)
		if refused == 0 {
			t.Errorf("round %d: no read was refused", round)
		}
		stop()
		p.join(leader)
		enginetest.Until(t, func() bool {
			h, err := old.Head(t.Context(), "s")
			return err == nil && h.Last >= acked.Load()
		})
	}
}
