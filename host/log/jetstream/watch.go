package jetstream

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"arbe.0sk.ar/runner/internal/pause"
)

const (
	watchBeat  = time.Second       // between two heartbeats of an idle consumer
	watchQuiet = 5 * watchBeat / 2 // silence after which a consumer is taken for gone
	watchRoom  = 4096              // messages that may wait for f
)

// Watch calls f for every append since Open, this engine's own as well, with one consumer for each shard. After a time
// without the cluster it continues where it was, and misses no append but those to a stream that was deleted before the
// consumer read them. It does not report deletions. Calls of f do not overlap.
func (n *Engine) Watch(ctx context.Context, f func(stream string)) error {
	var all sync.WaitGroup
	var one sync.Mutex // held during f
	alone := func(stream string) {
		one.Lock()
		defer one.Unlock()
		f(stream)
	}
	failed := make([]error, len(n.shards))
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for i, s := range n.shards {
		all.Go(func() {
			if failed[i] = n.watchShard(ctx, s, alone); failed[i] != nil {
				cancel()
			}
		})
	}
	all.Wait()
	return errors.Join(failed...)
}

// watchShard follows a shard until ctx is done. It fails only if the engine is closed.
func (n *Engine) watchShard(ctx context.Context, s *shard, f func(stream string)) error {
	next, wait := s.opened+1, firstWait
	var logged time.Time
	for {
		before := next
		err := n.follow(ctx, s, &next, f)
		if ctx.Err() != nil {
			return nil
		}
		if errors.Is(err, nats.ErrConnectionClosed) {
			return fmt.Errorf("watch %s: %w", s.stream, err)
		}
		if next > before {
			wait = firstWait
		}
		if time.Since(logged) > time.Minute {
			n.log.Warn("restarting the watch of a NATS stream", "stream", s.stream, "error", err)
			logged = time.Now()
		}
		if !pause.For(ctx, wait) {
			return nil
		}
		wait = min(2*wait, lastWait)
	}
}

var errGap = errors.New("missing messages")

// follow reads a shard from seq *next on until it fails. Its consumer expires when nobody reads it.
func (n *Engine) follow(ctx context.Context, s *shard, next *uint64, f func(stream string)) (err error) {
	messages := make(chan *nats.Msg, watchRoom) // the client drops what has no room, and errGap follows
	inbox := n.conn.NewInbox()
	sub, err := n.conn.ChanSubscribe(inbox, messages)
	if err != nil {
		return err
	}
	name := nuid.Next()
	defer func() {
		e := sub.Unsubscribe()
		if e == nil {
			e = n.conn.Publish(jsAPI+"CONSUMER.DELETE."+s.stream+"."+name, nil) // otherwise it expires
		}
		if err == nil && ctx.Err() == nil {
			err = e
		}
	}()
	if err := n.consumer(ctx, s, name, inbox, *next); err != nil {
		return err
	}
	quiet := time.NewTimer(watchQuiet)
	defer quiet.Stop()
	for seen := uint64(0); ; {
		select {
		case <-ctx.Done():
			return nil
		case <-n.ended:
			return nats.ErrConnectionClosed
		case <-quiet.C:
			return fmt.Errorf("consumer silent for %s", watchQuiet)
		case m := <-messages:
			quiet.Reset(watchQuiet)
			if m.Header.Get("Status") != "" {
				err = n.beat(m, seen)
			} else {
				err = n.report(s, m, &seen, next, f)
			}
			if err != nil {
				return err
			}
		}
	}
}

// consumer creates a consumer that sends a shard's messages to inbox, without their payloads.
func (n *Engine) consumer(ctx context.Context, s *shard, name, inbox string, next uint64) error {
	request := map[string]any{"stream_name": s.stream, "config": natsjs.ConsumerConfig{
		Name:              name,
		DeliverSubject:    inbox,
		DeliverPolicy:     natsjs.DeliverByStartSequencePolicy,
		OptStartSeq:       next,
		AckPolicy:         natsjs.AckNonePolicy,
		MaxDeliver:        1,
		HeadersOnly:       true,
		FlowControl:       true,
		IdleHeartbeat:     watchBeat,
		InactiveThreshold: 10 * time.Second,
		MemoryStorage:     true,
		Replicas:          1,
	}}
	var answer apiReply
	if err := n.ask(ctx, "CONSUMER.CREATE."+s.stream+"."+name, request, &answer); err != nil {
		return fmt.Errorf("create a consumer of %s: %w", s.stream, err)
	}
	return nil
}

// beat handles a consumer's heartbeats and flow control.
func (n *Engine) beat(m *nats.Msg, seen uint64) error {
	if m.Header.Get("Status") != "100" {
		return fmt.Errorf("consumer: %s %s", m.Header.Get("Status"), m.Header.Get("Description"))
	}
	if m.Reply != "" { // flow control
		return m.Respond(nil)
	}
	if stalled := m.Header.Get("Nats-Consumer-Stalled"); stalled != "" {
		if err := n.conn.Publish(stalled, nil); err != nil {
			return err
		}
	}
	if last, err := strconv.ParseUint(m.Header.Get("Nats-Last-Consumer"), 10, 64); err == nil && last > seen {
		return errGap
	}
	return nil
}

// report calls f if the message ends an append. The message must be number seen+1 of its consumer.
func (n *Engine) report(s *shard, m *nats.Msg, seen, next *uint64, f func(stream string)) error {
	meta, err := m.Metadata()
	if err != nil {
		return err
	}
	if meta.Sequence.Consumer != *seen+1 {
		return errGap
	}
	*seen++
	if m.Header.Get("Nats-Batch-Id") == "" || m.Header.Get("Nats-Batch-Commit") != "" { // the end of an append
		name, err := tokenName(strings.TrimPrefix(m.Subject, s.prefix))
		if err != nil {
			n.log.Warn("unknown message in a NATS stream", "stream", s.stream, "error", err)
		} else {
			f(name)
		}
	}
	*next = meta.Sequence.Stream + 1
	return nil
}
