package jetstream

import (
	"context"
	"errors"
	"fmt"
	"time"

	"arbe.0sk.ar/runner/host/log/engine"
	"arbe.0sk.ar/runner/internal/pause"
)

// A leader with heartbeats of a majority within leaseRecent was the only leader until then, and stays so for at least
// leaseRecent+leaseKept: a replica waits 4 s for its leader's heartbeat, which comes every second, before it votes for
// another (nats-server 2.15, minElectionTimeoutDefault and hbIntervalDefault in raft.go). A read from such a leader
// within that time returns all that the cluster has acknowledged.
const (
	leaseRecent = 2 * time.Second
	leaseKept   = time.Second // a confirmation is valid for reads that begin within it
)

// lease is the time at which a shard's leader last had a majority.
type lease struct {
	turn chan struct{} // lock of at: has a value while it is held
	at   time.Time
}

// confirm returns nil if the shard's leader, which has just answered, has a majority.
func (n *Engine) confirm(ctx context.Context, s *shard) error {
	within, cancel := context.WithTimeout(ctx, n.timeouts.try(time.Now(), 0))
	defer cancel()
	select {
	case s.lease.turn <- struct{}{}:
		defer func() { <-s.lease.turn }()
	case <-within.Done():
		return fmt.Errorf("read from %s: %w", s.stream, errors.Join(engine.ErrStale, ctx.Err()))
	}
	for wait := firstWait; ; wait = min(2*wait, lastWait) {
		if time.Since(s.lease.at) < leaseKept {
			return nil
		}
		began := time.Now()
		info, err := n.info(within, s.stream)
		if err == nil && hasMajority(info) {
			s.lease.at = began
			return nil
		}
		if !pause.For(within, wait) {
			return fmt.Errorf("read from %s: %w", s.stream, errors.Join(engine.ErrStale, err, ctx.Err()))
		}
	}
}

// hasMajority reports whether a leader had contact with a majority of the replicas, itself included, within
// leaseRecent.
func hasMajority(info *streamInfo) bool {
	if info.Cluster == nil || info.Config.Replicas < 2 {
		return true // a single server
	}
	active := 1
	for _, r := range info.Cluster.Replicas {
		if r.Active > 0 && r.Active < leaseRecent { // 0: never
			active++
		}
	}
	return 2*active > info.Config.Replicas
}
