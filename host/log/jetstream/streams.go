package jetstream

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"arbe.0sk.ar/runner/host/log/engine"
	"arbe.0sk.ar/runner/internal/pause"
)

// headsAtOnce is how many last messages one request reads. nats-server sends at most 1024.
const headsAtOnce = 500

// Streams goes from shard to shard, and reads each as it is when its turn comes, or later.
func (n *Engine) Streams(ctx context.Context, f func(stream string, h engine.Head) error) error {
	for _, s := range n.shards {
		subjects, last, err := n.subjects(ctx, s)
		if err != nil {
			return err
		}
		for some := range slices.Chunk(subjects, headsAtOnce) {
			messages, err := n.lasts(ctx, s, some, last)
			if err != nil {
				return err
			}
			for _, m := range messages {
				at, state, err := decodeHead(m)
				if err != nil {
					return err
				}
				name, err := tokenName(strings.TrimPrefix(m.Subject, s.prefix))
				if err != nil {
					return fmt.Errorf("stream %s: %w", s.stream, err)
				}
				if h := at.head(state); h.Exists() {
					if err := f(name, h); err != nil {
						return err
					}
				}
			}
		}
	}
	return nil
}

// subjects lists the subjects of a shard, and returns its last seq at that time.
func (n *Engine) subjects(ctx context.Context, s *shard) (subjects []string, last uint64, err error) {
	found := map[string]struct{}{}
	for offset := 0; ; {
		info := new(streamInfo)
		request := map[string]any{"subjects_filter": ">", "offset": offset}
		if err := n.ask(ctx, "STREAM.INFO."+s.stream, request, info); err != nil {
			return nil, 0, fmt.Errorf("list the subjects of %s: %w", s.stream, err)
		}
		if offset == 0 {
			last = info.State.LastSeq
		}
		for subject := range info.State.Subjects {
			found[subject] = struct{}{}
		}
		offset += len(info.State.Subjects)
		if len(info.State.Subjects) == 0 || offset >= info.Total {
			return slices.Sorted(maps.Keys(found)), last, nil
		}
	}
}

// lasts returns the last messages of these subjects, from a replica that has seq last. A subject may have none by now.
func (n *Engine) lasts(ctx context.Context, s *shard, subjects []string, last uint64) ([]message, error) {
	var found []message
	for lag := 0; len(subjects) > 0; {
		messages, upTo, err := n.getMany(ctx, s, getRequest{Lasts: subjects, Batch: len(subjects), MaxBytes: mostPage})
		if err != nil {
			return nil, err
		}
		if upTo < last || len(messages) == 0 { // this replica lags behind, or has none of them
			if lag++; lag < 5 && pause.For(ctx, firstWait<<lag) {
				continue
			}
			subject := subjects[0] // one by one from the leader
			subjects = subjects[1:]
			m, ok, err := n.get(ctx, s, getRequest{Last: subject})
			if err != nil {
				return nil, err
			}
			if ok {
				found = append(found, m)
			}
			continue
		}
		// A subject without a message in the answer did not fit, or is deleted.
		found = append(found, messages...)
		got := map[string]bool{}
		for _, m := range messages {
			got[m.Subject] = true
		}
		subjects = slices.DeleteFunc(slices.Clone(subjects), func(subject string) bool { return got[subject] })
	}
	return found, nil
}
