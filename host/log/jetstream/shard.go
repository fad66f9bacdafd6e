package jetstream

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"
)

// shard is one of the JetStream streams that ours live in.
type shard struct {
	stream string       // its name
	prefix string       // of its subjects
	opened uint64       // its last seq when the engine was opened
	most   atomic.Int64 // bytes of a message; 0 for no limit but the server's
	lease  lease
}

// shardsKey is where a shard's metadata says how many shards there are.
const shardsKey = "arbe.shards"

func (n *Engine) shardName(i int) string {
	return strings.ToUpper(n.config.Prefix) + "-" + strconv.Itoa(i)
}

func (n *Engine) shardPrefix(i int) string { return n.config.Prefix + "." + strconv.Itoa(i) + "." }

// streamInfo is what JetStream knows of a stream.
type streamInfo struct {
	apiReply
	natsjs.StreamInfo
	Total int `json:"total"` // of subjects, where they are asked for
}

// openShards finds the shards, or makes them where there are none, and sees that they keep what they are given.
func (n *Engine) openShards(ctx context.Context) error {
	infos, err := n.existing(ctx)
	if err != nil {
		return err
	}
	count, err := n.countShards(infos)
	if err != nil {
		return err
	}
	if n.config.Replicas < 3 && infos[n.shardName(0)] == nil && !n.config.AllowUnsafe {
		return &UnsafeError{[]string{fmt.Sprintf("there are none yet, and %d of 3 replicas were asked for", n.config.Replicas)}}
	}
	// The first shard is made last: where it is there, all are. Another server may be making them, too, which comes to the same.
	for i := count - 1; i >= 0; i-- {
		if infos[n.shardName(i)] == nil {
			if infos[n.shardName(i)], err = n.makeShard(ctx, i, count); err != nil {
				return err
			}
		}
	}
	for i := range count {
		info := infos[n.shardName(i)]
		if !info.Config.AllowAtomicPublish || !info.Config.AllowDirect {
			return fmt.Errorf("stream %s takes no atomic batches (allow_atomic) or no direct reads (allow_direct): it needs both, and a server of version 2.12 or later", info.Config.Name)
		}
		s := &shard{
			stream: info.Config.Name,
			prefix: n.shardPrefix(i),
			opened: info.State.LastSeq,
			lease:  lease{turn: make(chan struct{}, 1)},
		}
		s.most.Store(max(int64(info.Config.MaxMsgSize), 0))
		n.shards = append(n.shards, s)
	}
	return n.checkSafe(infos)
}

// existing finds the shards that are there, by name.
func (n *Engine) existing(ctx context.Context) (map[string]*streamInfo, error) {
	infos := map[string]*streamInfo{}
	for offset := 0; ; {
		var names struct {
			apiReply
			Total   int      `json:"total"`
			Streams []string `json:"streams"`
		}
		question := map[string]any{"subject": n.config.Prefix + ".>", "offset": offset}
		if err := n.ask(ctx, "STREAM.NAMES", question, &names); err != nil {
			return nil, fmt.Errorf("list the streams: %w", err)
		}
		for _, name := range names.Streams {
			info, err := n.info(ctx, name)
			if err != nil {
				return nil, err
			}
			infos[name] = info
		}
		offset += len(names.Streams)
		if len(names.Streams) == 0 || offset >= names.Total {
			return infos, nil
		}
	}
}

func (n *Engine) info(ctx context.Context, stream string) (*streamInfo, error) {
	info := new(streamInfo)
	if err := n.ask(ctx, "STREAM.INFO."+stream, struct{}{}, info); err != nil {
		return nil, fmt.Errorf("stream %s: %w", stream, err)
	}
	return info, nil
}

// countShards returns how many shards there are or shall be. That some are missing is good only where they are just being made.
func (n *Engine) countShards(infos map[string]*streamInfo) (int, error) {
	if len(infos) == 0 {
		return n.config.Shards, nil
	}
	count, used := 0, false
	for name, info := range infos {
		says, err := strconv.Atoi(info.Config.Metadata[shardsKey])
		i, err2 := strconv.Atoi(strings.TrimPrefix(name, n.shardName(0)[:len(n.shardName(0))-1]))
		if err := errors.Join(err, err2); err != nil || says < 1 || i < 0 || i >= says || name != n.shardName(i) || !slices.Equal(info.Config.Subjects, []string{n.shardPrefix(i) + ">"}) {
			return 0, fmt.Errorf("stream %s has subjects of %s.>, but was not made for it: choose another prefix", name, n.config.Prefix)
		}
		if count != 0 && says != count {
			return 0, fmt.Errorf("streams of %s disagree on how many there are: %s says %d, another %d", n.config.Prefix, name, says, count)
		}
		count, used = says, used || info.State.LastSeq > 0
	}
	var missing []string
	for i := range count {
		if infos[n.shardName(i)] == nil {
			missing = append(missing, n.shardName(i))
		}
	}
	if len(missing) > 0 && (used || infos[n.shardName(0)] != nil) {
		return 0, fmt.Errorf("of %d streams there are missing: %s", count, strings.Join(missing, ", "))
	}
	return count, nil
}

// makeShard makes a shard, or finds it just made.
func (n *Engine) makeShard(ctx context.Context, i, count int) (*streamInfo, error) {
	config := natsjs.StreamConfig{
		Name:               n.shardName(i),
		Description:        "Thread streams of arbe",
		Subjects:           []string{n.shardPrefix(i) + ">"},
		Storage:            natsjs.FileStorage,
		Retention:          natsjs.LimitsPolicy,
		Discard:            natsjs.DiscardNew,
		MaxMsgs:            -1,
		MaxBytes:           -1,
		MaxMsgsPerSubject:  -1,
		MaxMsgSize:         -1,
		MaxConsumers:       -1,
		Replicas:           n.config.Replicas,
		Duplicates:         100 * time.Millisecond, // the shortest there is: we see to that by ourselves
		AllowDirect:        true,
		AllowAtomicPublish: true,
		Metadata:           map[string]string{shardsKey: strconv.Itoa(count)},
	}
	info := new(streamInfo)
	if err := n.ask(ctx, "STREAM.CREATE."+config.Name, config, info); err != nil {
		return nil, fmt.Errorf("make stream %s with %d replicas: %w", config.Name, config.Replicas, err)
	}
	return info, nil
}
