package jetstream

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"

	"arbe.0sk.ar/runner/internal/format"
)

// shard is one of the JetStream streams that have the log's streams as subjects.
type shard struct {
	stream string       // its name
	prefix string       // of its subjects
	opened uint64       // last seq when the engine was opened
	most   atomic.Int64 // bytes of a message; 0 for the server's limit
	lease  lease
}

// Keys of a shard's metadata.
const (
	shardsKey = "arbe.shards" // number of shards
	formatKey = "arbe.format" // number of the format of all that is in it; none before it was written
)

// shardFormat is the number of the format that this program writes.
const shardFormat = 1

func (n *Engine) shardName(i int) string {
	return strings.ToUpper(n.config.Prefix) + "-" + strconv.Itoa(i)
}

func (n *Engine) shardPrefix(i int) string { return n.config.Prefix + "." + strconv.Itoa(i) + "." }

// streamInfo is JetStream's answer to STREAM.INFO, STREAM.CREATE and STREAM.UPDATE.
type streamInfo struct {
	apiReply
	natsjs.StreamInfo
	Total int `json:"total"` // number of subjects, if the request asked for them
}

// openShards finds the shards or creates them, and checks that they do not lose acknowledged appends.
func (n *Engine) openShards(ctx context.Context) error {
	infos, err := n.existing(ctx)
	if err != nil {
		return err
	}
	if err := checkFormat(infos); err != nil {
		return err
	}
	count, err := n.countShards(infos)
	if err != nil {
		return err
	}
	if n.config.Replicas < 3 && infos[n.shardName(0)] == nil && !n.config.AllowUnsafe {
		return &UnsafeError{[]string{fmt.Sprintf("new ones would have %d of 3 replicas", n.config.Replicas)}}
	}
	// The first shard is created last: if it exists, all do. Another server may create them at the same time.
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
			return fmt.Errorf("stream %s has no atomic batches (allow_atomic) or no direct reads (allow_direct): "+
				"it needs both, and servers of version 2.12 or later", info.Config.Name)
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

// existing returns the shards that exist, by name.
func (n *Engine) existing(ctx context.Context) (map[string]*streamInfo, error) {
	infos := map[string]*streamInfo{}
	for offset := 0; ; {
		var names struct {
			apiReply
			Total   int      `json:"total"`
			Streams []string `json:"streams"`
		}
		request := map[string]any{"subject": n.config.Prefix + ".>", "offset": offset}
		if err := n.ask(ctx, "STREAM.NAMES", request, &names); err != nil {
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

// countShards returns how many shards there are, or are to be created. Missing shards are an error, unless an Open was
// interrupted or is still creating them.
func (n *Engine) countShards(infos map[string]*streamInfo) (int, error) {
	if len(infos) == 0 {
		return n.config.Shards, nil
	}
	count, used := 0, false
	for name, info := range infos {
		total, ok := n.totalShards(name, info)
		if !ok {
			return 0, fmt.Errorf("stream %s has subjects of %s.>, but is not a shard: choose another prefix",
				name, n.config.Prefix)
		}
		if count != 0 && total != count {
			return 0,
				fmt.Errorf("shards of %s have different numbers of shards in their metadata: %s has %d, another %d",
					n.config.Prefix, name, total, count)
		}
		count, used = total, used || info.State.LastSeq > 0
	}
	var missing []string
	for i := range count {
		if infos[n.shardName(i)] == nil {
			missing = append(missing, n.shardName(i))
		}
	}
	if len(missing) > 0 && (used || infos[n.shardName(0)] != nil) {
		return 0, fmt.Errorf("of %d streams, these are missing: %s", count, strings.Join(missing, ", "))
	}
	return count, nil
}

// totalShards returns the number of shards in a shard's metadata; false for a stream that is not a shard.
func (n *Engine) totalShards(name string, info *streamInfo) (total int, ok bool) {
	total, err := strconv.Atoi(info.Config.Metadata[shardsKey])
	if err != nil || total < 1 {
		return 0, false
	}
	for i := range total {
		if name == n.shardName(i) {
			return total, slices.Equal(info.Config.Subjects, []string{n.shardPrefix(i) + ">"})
		}
	}
	return 0, false
}

// checkFormat returns format.ErrLater where a later program has written a shard. A shard without a format is of 1.
func checkFormat(infos map[string]*streamInfo) error {
	for _, name := range slices.Sorted(maps.Keys(infos)) {
		value, marked := infos[name].Config.Metadata[formatKey]
		if !marked {
			continue
		}
		has, err := strconv.Atoi(value)
		if err != nil {
			return fmt.Errorf("format of stream %s: %w", name, err)
		}
		if err := format.Check("stream "+name, has, shardFormat); err != nil {
			return err
		}
	}
	return nil
}

// makeShard creates a shard. It succeeds if another server has just created the same one.
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
		Duplicates:         100 * time.Millisecond, // the shortest possible: frames need no deduplication by NATS
		AllowDirect:        true,
		AllowAtomicPublish: true,
		Metadata: map[string]string{
			shardsKey: strconv.Itoa(count), formatKey: strconv.Itoa(shardFormat),
		},
	}
	info := new(streamInfo)
	if err := n.ask(ctx, "STREAM.CREATE."+config.Name, config, info); err != nil {
		return nil, fmt.Errorf("create stream %s with %d replicas: %w", config.Name, config.Replicas, err)
	}
	return info, nil
}
