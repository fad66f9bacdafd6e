package jetstream

import (
	"context"
	"errors"
	"fmt"
	"time"

	"arbe.0sk.ar/runner/host/log/engine"
)

// A leader that has heard from a majority within leaseHeard was the only one until then, and for leaseHeard+leaseKept
// longer at least: a replica waits 4 s for its leader's heartbeat, which comes every second, before it votes for
// another (nats-server 2.15, minElectionTimeoutDefault and hbIntervalDefault in raft.go). So what such a leader was
// asked for within that time is what the cluster has.
const (
	leaseHeard = 2 * time.Second
	leaseKept  = time.Second // an answer stands for reads that begin so much later
	leaseTry   = 2 * time.Second
)

// lease is when a shard's leader was last known to have a majority behind it.
type lease struct {
	turn chan struct{} // holds a value while until is in use
	at   time.Time
}

// confirm returns nil where the shard's leader, which has just answered, has a majority behind it.
func (n *Engine) confirm(ctx context.Context, s *shard) error {
	within, cancel := context.WithTimeout(ctx, leaseTry)
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
		if !pause(within, wait) {
			return fmt.Errorf("read from %s: %w", s.stream, errors.Join(engine.ErrStale, err, ctx.Err()))
		}
	}
}

// hasMajority reports whether a leader has heard from a majority of its replicas, itself included, lately.
func hasMajority(info *streamInfo) bool {
	if info.Cluster == nil || info.Config.Replicas < 2 {
		return true // of a server by itself
	}
	heard := 1
	for _, r := range info.Cluster.Replicas {
		if r.Active > 0 && r.Active < leaseHeard { // 0: never
			heard++
		}
	}
	return 2*heard > info.Config.Replicas
}
