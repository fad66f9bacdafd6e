package jetstream

import (
	"context"
	"errors"
	"fmt"

	"arbe.0sk.ar/runner/host/log/engine"
)

// fullRoom is how many bytes a limit of the cluster has to leave for it not to count as full.
const fullRoom = 1 << 20

// probeStream is appended to, and deleted again, to learn whether a cluster that was full takes appends again.
const probeStream = "\x01probe"

// Check sees that each shard has a leader and a majority behind it, that it keeps what it is given, by the limits
// that it has now, and that there is room. Limits that can't be seen, as that of a server's disk, count from the
// first append that they refuse.
func (n *Engine) Check(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
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
	if room := n.room(); room < leastRoom {
		return fmt.Errorf("messages may have %d bytes only (max_payload, max_msg_size): %d are needed",
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
		return nil // of a server by itself
	}
	if info.Cluster.Leader == "" {
		return fmt.Errorf("stream %s has no leader", stream)
	}
	away := 0
	for _, r := range info.Cluster.Replicas {
		if r.Offline {
			away++
		}
	}
	if all := len(info.Cluster.Replicas) + 1; 2*away >= all {
		return fmt.Errorf("stream %s: %d of %d servers are away", stream, away, all)
	}
	return nil
}

// checkRoom returns ErrFull where a stream has come to a limit of its own.
func checkRoom(stream string, info *streamInfo) error {
	c, state := info.Config, info.State
	if c.MaxBytes > 0 && state.Bytes+fullRoom > uint64(c.MaxBytes) {
		return fmt.Errorf("%w: stream %s has %d of %d bytes (max_bytes)", engine.ErrFull, stream, state.Bytes, c.MaxBytes)
	}
	if c.MaxMsgs > 0 && state.Msgs >= uint64(c.MaxMsgs) {
		return fmt.Errorf("%w: stream %s has %d of %d messages (max_msgs)", engine.ErrFull, stream, state.Msgs, c.MaxMsgs)
	}
	return nil
}

// checkAccount returns ErrFull where the account has come to its limit.
func (n *Engine) checkAccount(ctx context.Context) error {
	var account struct {
		apiReply
		Store  int64 `json:"storage"`
		Limits struct {
			Store int64 `json:"max_storage"`
		} `json:"limits"`
	}
	if err := n.ask(ctx, "INFO", struct{}{}, &account); err != nil {
		return fmt.Errorf("limits of the account: %w", err)
	}
	if most := account.Limits.Store; most > 0 && account.Store+fullRoom > most {
		return fmt.Errorf("%w: the account has %d of %d bytes", engine.ErrFull, account.Store, most)
	}
	return nil
}

// probe appends to a stream that nobody else uses, but for other servers' probes, and deletes it.
func (n *Engine) probe(ctx context.Context) error {
	h, err := n.Head(ctx, probeStream)
	if err != nil {
		return err
	}
	if _, err = n.Append(ctx, probeStream, engine.Append{After: h.Last}); err != nil && !errors.Is(err, engine.ErrConflict) {
		return err
	}
	return n.Delete(ctx, probeStream)
}
