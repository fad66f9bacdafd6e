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
)

const (
	watchBeat  = time.Second       // a consumer says that often that there is nothing new
	watchQuiet = 5 * watchBeat / 2 // without a word for that long, it is gone
	watchRoom  = 4096              // messages that wait for f
)

// Watch tells of every append since the engine was opened, own ones, too, with one consumer per shard. Where the cluster is out of reach for a while, it
// goes on from where it was, and leaves nothing out. That a stream was deleted is not told. f is called by one goroutine at a time.
func (n *Engine) Watch(ctx context.Context, f func(stream string)) error {
	var all sync.WaitGroup
	var one sync.Mutex // f is called by one shard at a time
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

// watchShard follows a shard until ctx is done. Only an engine that was closed ends it otherwise.
func (n *Engine) watchShard(ctx context.Context, s *shard, f func(stream string)) error {
	next, wait := s.opened+1, firstWait
	var since time.Time // of trouble that was logged
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
		if time.Since(since) > time.Minute { // said once in a while: it goes on for as long as a cluster is away
			n.log.Warn("watching a NATS stream begins anew", "stream", s.stream, "error", err)
			since = time.Now()
		}
		if !pause(ctx, wait) {
			return nil
		}
		wait = min(2*wait, lastWait)
	}
}

var errGap = errors.New("messages are missing")

// follow reads a shard from seq *next on, by a consumer that ends by itself when nobody listens to it. It returns when that has failed.
func (n *Engine) follow(ctx context.Context, s *shard, next *uint64, f func(stream string)) (err error) {
	messages := make(chan *nats.Msg, watchRoom) // what finds no room in it is dropped, and missed
	inbox := n.conn.NewInbox()
	sub, err := n.conn.ChanSubscribe(inbox, messages)
	if err != nil {
		return err
	}
	name := nuid.Next()
	defer func() {
		e := sub.Unsubscribe()
		if e == nil {
			e = n.conn.Publish(jsAPI+"CONSUMER.DELETE."+s.stream+"."+name, nil) // without it, the server finds out by itself after a while
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
			return fmt.Errorf("nothing heard for %s", watchQuiet)
		case m := <-messages:
			quiet.Reset(watchQuiet)
			if m.Header.Get("Status") != "" {
				err = n.beat(m, seen)
			} else {
				err = n.tell(s, m, &seen, next, f)
			}
			if err != nil {
				return err
			}
		}
	}
}

// consumer makes one that sends a shard's messages to inbox, without their payloads.
func (n *Engine) consumer(ctx context.Context, s *shard, name, inbox string, next uint64) error {
	question := map[string]any{"stream_name": s.stream, "config": natsjs.ConsumerConfig{
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
	if err := n.ask(ctx, "CONSUMER.CREATE."+s.stream+"."+name, question, &answer); err != nil {
		return fmt.Errorf("make a consumer of %s: %w", s.stream, err)
	}
	return nil
}

// beat handles what a consumer says beside messages.
func (n *Engine) beat(m *nats.Msg, seen uint64) error {
	if m.Header.Get("Status") != "100" {
		return fmt.Errorf("consumer: %s %s", m.Header.Get("Status"), m.Header.Get("Description"))
	}
	if m.Reply != "" { // it wants to know that we keep up
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

// tell tells f of a message, which is the seen+1st of its consumer.
func (n *Engine) tell(s *shard, m *nats.Msg, seen, next *uint64, f func(stream string)) error {
	meta, err := m.Metadata()
	if err != nil {
		return err
	}
	if meta.Sequence.Consumer != *seen+1 {
		return errGap
	}
	*seen++
	if m.Header.Get("Nats-Batch-Id") == "" || m.Header.Get("Nats-Batch-Commit") != "" { // it ends an append
		name, err := tokenName(strings.TrimPrefix(m.Subject, s.prefix))
		if err != nil {
			n.log.Warn("a message that is none of ours", "stream", s.stream, "error", err)
		} else {
			f(name)
		}
	}
	*next = meta.Sequence.Stream + 1
	return nil
}
