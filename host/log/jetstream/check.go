package jetstream

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"

	"arbe.0sk.ar/runner/host/log/engine"
)

// fullRoom is the number of bytes below a limit of the cluster at which it counts as full.
const fullRoom = 1 << 20

// probeStream is the stream that probe appends to.
const probeStream = "\x01probe"

// Check reports a shard without a leader or a majority, one whose present config can lose acknowledged appends, and one
// that is full. A client can't see every limit, for example a server's disk: such a limit counts from the first append
// that it refuses.
func (n *Engine) Check(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, n.timeouts.request(time.Now()))
	defer cancel()
	infos := map[string]*streamInfo{}
	for _, s := range n.shards {
		info, err := n.info(ctx, s.stream)
		if err != nil {
			return err
		}
		if err := checkMajority(s.stream, info); err != nil {
			return err
		}
		if err := checkRoom(s.stream, info); err != nil {
			return err
		}
		s.most.Store(max(int64(info.Config.MaxMsgSize), 0))
		infos[s.stream] = info
	}
	if err := checkFormat(infos); err != nil { // a later server may have converted them meanwhile
		return err
	}
	if room := n.room(); room < leastRoom {
		return fmt.Errorf("messages have at most %d bytes (max_payload, max_msg_size): want at least %d",
			room+headerRoom, leastRoom+headerRoom)
	}
	if problems := n.problems(infos); len(problems) > 0 && !n.config.AllowUnsafe {
		return &UnsafeError{problems}
	}
	if err := n.checkAccount(ctx); err != nil {
		return err
	}
	if n.refused.Load() {
		return n.probe(ctx)
	}
	return nil
}

func checkMajority(stream string, info *streamInfo) error {
	if info.Cluster == nil {
		return nil // a single server
	}
	if info.Cluster.Leader == "" {
		return fmt.Errorf("stream %s has no leader", stream)
	}
	offline := 0
	for _, r := range info.Cluster.Replicas {
		if r.Offline {
			offline++
		}
	}
	if all := len(info.Cluster.Replicas) + 1; 2*offline >= all {
		return fmt.Errorf("stream %s: %d of %d servers are offline", stream, offline, all)
	}
	return nil
}

// checkRoom returns ErrFull if a shard is at one of its limits.
func checkRoom(stream string, info *streamInfo) error {
	c, state := info.Config, info.State
	if c.MaxBytes > 0 && state.Bytes+fullRoom > uint64(c.MaxBytes) {
		return fmt.Errorf("%w: stream %s has %d of %d bytes (max_bytes)", engine.ErrFull, stream, state.Bytes,
			c.MaxBytes)
	}
	if c.MaxMsgs > 0 && state.Msgs >= uint64(c.MaxMsgs) {
		return fmt.Errorf("%w: stream %s has %d of %d messages (max_msgs)", engine.ErrFull, stream, state.Msgs,
			c.MaxMsgs)
	}
	return nil
}

// checkAccount returns ErrFull if the account is at its limit.
func (n *Engine) checkAccount(ctx context.Context) error {
	var account struct {
		apiReply
		Store  int64 `json:"storage"`
		Limits struct {
			Store int64 `json:"max_storage"`
		} `json:"limits"`
	}
	if err := n.ask(ctx, "INFO", struct{}{}, &account); err != nil {
		return fmt.Errorf("read the account's limits: %w", err)
	}
	if most := account.Limits.Store; most > 0 && account.Store+fullRoom > most {
		return fmt.Errorf("%w: the account has %d of %d bytes", engine.ErrFull, account.Store, most)
	}
	return nil
}

// probe appends to probeStream and deletes it, to learn whether a cluster that was full accepts appends again. Other
// servers may probe at the same time.
func (n *Engine) probe(ctx context.Context) error {
	h, err := n.Head(ctx, probeStream)
	if err != nil {
		return err
	}
	_, err = n.Append(ctx, probeStream, engine.Append{After: h.Last})
	if err != nil && !errors.Is(err, engine.ErrConflict) {
		return err
	}
	return n.Delete(ctx, probeStream)
}

// UnsafeError is the error of shards that can lose acknowledged appends.
type UnsafeError struct {
	Problems []string // each with the streams that have it, and the change to make
}

func (e *UnsafeError) Error() string {
	return "the NATS streams can lose acknowledged appends: " + strings.Join(e.Problems, "; ")
}

// checkSafe checks the config that a client can see. How the servers sync their disks is not part of it: checkSafe logs
// what to look at there.
func (n *Engine) checkSafe(infos map[string]*streamInfo) error {
	problems := n.problems(infos)
	if len(problems) > 0 && !n.config.AllowUnsafe {
		return &UnsafeError{problems}
	}
	for _, p := range problems {
		n.log.Warn("NATS can lose acknowledged appends", "problem", p)
	}
	n.log.Warn(`NATS clients can't see how servers sync: set "sync_interval: always" in each server's jetstream block, ` +
		`or a power loss of several servers can lose acknowledged appends`)
	return nil
}

// problems lists the ways in which the shards can lose appends, each with the streams that have it.
func (n *Engine) problems(infos map[string]*streamInfo) []string {
	found := map[string][]string{}
	for _, s := range n.shards {
		for _, p := range unsafe(infos[s.stream].Config) {
			found[p] = append(found[p], s.stream)
		}
	}
	var problems []string
	for _, p := range slices.Sorted(maps.Keys(found)) {
		at := found[p][0]
		if more := len(found[p]) - 1; more > 0 {
			at += fmt.Sprintf(" and %d more", more)
		}
		problems = append(problems, at+" "+p)
	}
	return problems
}

// unsafe lists how a stream with this config can lose messages. persist_mode is not among them: the server refuses
// async for a stream with atomic batches, which openShards requires.
func unsafe(c natsjs.StreamConfig) []string {
	var problems []string
	add := func(is bool, problem string) {
		if is {
			problems = append(problems, problem)
		}
	}
	old := c.Discard != natsjs.DiscardNew
	add(c.Replicas < 3, fmt.Sprintf("has %d of 3 replicas (change num_replicas)", c.Replicas))
	add(c.Storage != natsjs.FileStorage, "is stored in memory (create it again with file storage)")
	add(c.Retention != natsjs.LimitsPolicy,
		"deletes messages that consumers have read (create it again with limits retention)")
	add(c.MaxAge > 0, "deletes old messages (change max_age to 0)")
	add(c.MaxMsgs > 0 && old, "deletes old messages beyond a number (change discard to new, or max_msgs to -1)")
	add(c.MaxBytes > 0 && old, "deletes old messages beyond a size (change discard to new, or max_bytes to -1)")
	add(c.MaxMsgsPerSubject > 0 && (old || !c.DiscardNewPerSubject),
		"deletes old messages of a subject (change max_msgs_per_subject to -1)")
	add(c.NoAck, "acknowledges nothing (change no_ack to false)")
	return problems
}
