package answer

import (
	"context"
	"fmt"
	"time"

	"arbe.0sk.ar/runner/host/dispatch"
	"arbe.0sk.ar/runner/internal/pause"
	"arbe.0sk.ar/runner/thread"
	"arbe.0sk.ar/runner/thread/client"
)

// How long an append waits for a server that is away: then another host, which may reach it, continues.
const (
	appendFor  = 10 * time.Minute
	appendWait = time.Second // between two calls, which try several times each
)

// thread implements dispatch.Host.Threads.
func (d *Dispatcher) thread(id string) dispatch.Thread { return Threads(d.Client)(id) }

// Threads returns the threads of a server, by their ids.
func Threads(clients func(id string) (*client.Client, error)) func(id string) dispatch.Thread {
	return func(id string) dispatch.Thread {
		cl, err := clients(id)
		return &served{cl, err}
	}
}

// served is a thread on a server.
type served struct {
	client *client.Client
	err    error // why there is no client
}

// Read implements dispatch.Thread. The server's clock comes with its answer in whole seconds, and with each entry in
// milliseconds: the later one counts.
func (s *served) Read(ctx context.Context, from string, f func(thread.Entry)) (string, time.Time, error) {
	if s.err != nil {
		return from, time.Time{}, s.err
	}
	var last time.Time
	page, err := s.client.Without(thread.TypeDelta).Read(ctx, from, false, func(e thread.Entry) error {
		last = e.Received()
		f(e)
		return nil
	})
	now := page.Now
	switch {
	case client.Gone(err):
		return from, now, dispatch.ErrGone
	case client.NoThread(err): // a row whose thread has no entry yet
		return from, time.Now(), nil
	case err != nil:
		return from, now, err
	case now.IsZero():
		now = time.Now() // of a server that does not tell its own
	}
	if last.After(now) {
		now = last
	}
	return page.Next, now, nil
}

// Append implements dispatch.Thread.
func (s *served) Append(ctx context.Context, entries ...thread.Entry) error {
	if s.err != nil {
		return s.err
	}
	for began := time.Now(); ; {
		_, err := s.client.AppendAtomic(ctx, entries)
		switch {
		case err == nil:
			return nil
		case client.Taken(err):
			return dispatch.ErrTaken
		case client.Gone(err):
			return dispatch.ErrGone
		case client.BadEntries(err):
			return fmt.Errorf("%w: %w", dispatch.ErrRefused, err)
		case client.Final(err):
			return err
		case time.Since(began) >= appendFor || !pause.For(ctx, appendWait):
			return err
		}
	}
}
