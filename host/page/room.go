package page

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"

	"arbe.0sk.ar/runner/host/index"
	"arbe.0sk.ar/runner/host/log"
	"arbe.0sk.ar/runner/host/view"
)

// chunkBytes ends a chunk with the append that reaches it.
const chunkBytes = 64 << 10

// room renders a thread's entries, once for all viewers at this server. It begins at the thread's end with the first
// viewer, and ends with the last one, or when the thread is deleted or can't be read: then its viewers come again.
//
// All viewers get the same chunks, so an item and the row above them must not depend on the viewer. Those who have a
// share have a room of their own. The forms, which they do not have, are on the page.
type room struct {
	*ring
	page  *page
	key   roomKey
	users int                    // guarded by rooms
	now   atomic.Pointer[moment] // nil before the room has begun
	tasks *index.Reader          // of the threads of the tasks that are shown; nil for a share
	stop  context.CancelFunc
	ended chan struct{} // closed when run has returned
}

// moment has what a thread's page shows below the items. It never changes.
type moment struct {
	pulse     string
	answering []view.Answering
}

// roomKey distinguishes a thread from one of the same id that was deleted.
type roomKey struct {
	thread, born string
	shared       bool // its viewers have a share
}

// rooms are the rooms of a page.
type rooms struct {
	mu   sync.Mutex
	open map[roomKey]*room
}

// enter returns the room of a reader's thread, and a member of it. The caller calls leave.
func (p *page) enter(from *reader) (*room, *member) {
	p.rooms.mu.Lock()
	defer p.rooms.mu.Unlock()
	v := from.stream
	key := roomKey{from.id, v.Born, from.shared}
	r := p.rooms.open[key]
	if r == nil {
		ctx, stop := context.WithCancel(p.Closing)
		r = &room{
			ring: newRing(v.Tail(), p.Budget.Lease("page rooms")), page: p, key: key, stop: stop,
			ended: make(chan struct{}),
		}
		if p.Threads != nil && !key.shared {
			r.tasks = p.Threads.WatchSome()
		}
		p.rooms.open[key] = r
		go r.run(ctx, v)
	}
	r.users++
	return r, r.join()
}

// leave ends a member. The last one ends the room, and waits until it has ended.
func (p *page) leave(r *room, m *member) {
	m.leave()
	p.rooms.mu.Lock()
	r.users--
	last := r.users == 0
	if last {
		p.rooms.remove(r)
	}
	p.rooms.mu.Unlock()
	if last {
		r.stop()
		<-r.ended
		r.lease.Free()
	}
}

// remove takes a room off the list, so that the next viewer makes another one. mu is held.
func (all *rooms) remove(r *room) {
	if all.open[r.key] == r {
		delete(all.open, r.key)
	}
}

// errInterrupted ends the answers to a room's viewers. The room has logged why.
var errInterrupted = errors.New("the room has ended")

// run renders until ctx is done or an error ends the room.
func (r *room) run(ctx context.Context, v log.Stream) {
	defer close(r.ended)
	if r.tasks != nil {
		defer r.tasks.Close()
	}
	err := r.follow(ctx, v)
	if !errors.Is(err, log.ErrAbsent) && !errors.Is(err, log.ErrGone) {
		if ctx.Err() == nil {
			r.page.Logger.Warn("live thread interrupted", "thread", r.key.thread, "error", err)
		}
		err = errInterrupted
	}
	r.page.rooms.mu.Lock()
	r.page.rooms.remove(r)
	r.page.rooms.mu.Unlock()
	r.end(err)
}

// follow renders what the thread gets behind the end that it has in v. It returns why it has ended. A panic is an error
// of the thread's viewers, as one in a request is.
func (r *room) follow(ctx context.Context, v log.Stream) (err error) {
	defer func() {
		if reason := recover(); reason != nil {
			r.page.Logger.Error("rendering panicked",
				"thread", r.key.thread, "panic", reason, "stack", string(debug.Stack()))
			err = fmt.Errorf("panic: %v", reason)
		}
	}()
	f := r.page.Log.Follow(v.Name)
	defer f.Close()
	from := reader{r.page, r.page.Budget.Lease("page room " + v.Name), r.key.thread, v, r.key.shared}
	defer from.Free()
	t, err := newTail(ctx, from, v.Tail(), ringBytes)
	if err != nil {
		return err
	}
	r.beat(t)
	r.wake()
	var tasks <-chan struct{}
	if r.tasks != nil {
		tasks = r.tasks.News()
	}
	for err == nil {
		var grown <-chan struct{}
		if t.stream, grown, err = f.Stat(ctx); err == nil {
			err = r.render(ctx, t)
		}
		if err == nil {
			select {
			case <-grown:
			case <-tasks:
				err = r.tell(ctx, t)
			case <-ctx.Done():
				err = ctx.Err()
			}
		}
	}
	return err
}

// beat sets the moment.
func (r *room) beat(t *tail) {
	r.now.Store(&moment{pulse(&t.watch, t.builder.Running()), t.builder.Answering()})
}

// render renders up to the end of the thread. A chunk has whole appends, and the last one the head.
func (r *room) render(ctx context.Context, t *tail) error {
	end := t.stream.Tail()
	switch {
	case t.stream.Born != r.key.born || t.after > end:
		return log.ErrGone // another thread has the id
	case t.after == end:
		return nil
	}
	var b bytes.Buffer
	cut := func(to uint64) error {
		data := bytes.Clone(b.Bytes())
		b.Reset()
		return r.publish(ctx, data, to)
	}
	last := t.after
	err := t.each(ctx, end, func(c view.Change, seq uint64) error {
		if seq > last && b.Len() >= chunkBytes {
			if err := cut(last); err != nil {
				return err
			}
		}
		last = seq
		if b.Len() > ringBytes {
			return nil // too large to be kept
		}
		r.want(c.Item.Call.Task()) // before its state is rendered
		one, err := t.liveItem(ctx, c, seq)
		if err == nil {
			err = writeEvent(&b, "item", one)
		}
		return err
	})
	if err != nil {
		return err
	}
	was := r.now.Load().answering
	r.beat(t)
	is, of := r.now.Load(), r.page.whose(ctx, r.key.thread).names
	var failed error // a buffer's write never fails
	err = writeAnswers(was, is.answering, of, func(a liveAnswer) { failed = writeEvent(&b, "answer", a) })
	if err := errors.Join(err, failed); err != nil {
		return err
	}
	head, err := t.liveHead(ctx, is, t.after)
	if err != nil {
		return err
	}
	if err := writeEvent(&b, "head", head); err != nil {
		return err
	}
	return cut(t.after)
}
