package provision

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"arbe.0sk.ar/runner/host/rows"
)

// ErrStopped is the cause of a launch's context that ends for another host to continue the launch. Such a launch posts
// no failure.
var ErrStopped = errors.New("the launch is left to another host")

// ErrBusy is returned for a task whose thread has another run: the task waits for that one's end.
var ErrBusy = errors.New("another run has the thread")

// Queue is the tasks that are not launched yet. Its methods may be called at the same time.
type Queue interface {
	// Take gives at most limit due tasks to this host until the lease ends. Of many hosts one gets a task.
	Take(ctx context.Context, lease time.Duration, limit int) ([]rows.Task, error)
	// Renew prolongs the lease of a task. It returns rows.ErrLost.
	Renew(ctx context.Context, thread string, lease time.Duration) error
	// PutBack gives a task back; any host may take it after some time. With free the attempt does not count. It returns
	// rows.ErrLost.
	PutBack(ctx context.Context, thread string, after time.Duration, free bool) error
	// Done ends a task. It returns rows.ErrLost.
	Done(ctx context.Context, thread string) error
}

// Tasks announces, launches and refuses tasks. *Host implements it. Its methods may be called at the same time, for
// different tasks, and may be repeated.
type Tasks interface {
	// Announce posts the task on its parent's thread, once.
	Announce(ctx context.Context, o rows.Task) error
	// Launch launches the task. It returns nil also where the run is on the thread already and needs no more of a host,
	// and ErrBusy where another run is in its way. again reports that a failure is temporary: another call may succeed.
	// Launch posts any other failure itself, but for one after its context has ended by ErrStopped: the next call
	// continues that launch, too.
	Launch(ctx context.Context, o rows.Task) (again bool, err error)
	// Refuse posts on the task's thread that it is not launched, and why, where Launch has not. It returns ErrBusy as
	// Launch does.
	Refuse(ctx context.Context, o rows.Task, cause error) error
}

// Provisioner launches the tasks of a queue. All durations and numbers have defaults.
type Provisioner struct {
	Queue Queue
	Host  Tasks
	Log   *slog.Logger

	// Held returns tasks that wait because their house runs as many as it may, and Hold posts that on a task's thread,
	// once. nil: it is not posted.
	Held func(ctx context.Context) ([]rows.HeldTask, error)
	Hold func(ctx context.Context, t rows.HeldTask) error

	Most  int           // launches at the same time. Default 4
	Every time.Duration // between two looks into the queue. Default 500 ms
	Lease time.Duration // of a task. Default 20 s: shorter than the silence after which a run counts as lost
	Tries int           // attempts to launch a task. Default 10
}

func (p Provisioner) withDefaults() Provisioner {
	p.Most = cmp.Or(p.Most, 4)
	p.Every = cmp.Or(p.Every, 500*time.Millisecond)
	p.Lease = cmp.Or(p.Lease, 20*time.Second)
	p.Tries = cmp.Or(p.Tries, 10)
	return p
}

// Run launches tasks until ctx is done, and returns nil then. Launches under way end, and other hosts continue them.
// While the queue can't be read, it tries again.
func (p Provisioner) Run(ctx context.Context) error {
	p = p.withDefaults()
	var launches sync.WaitGroup
	defer launches.Wait()
	places, freed := make(chan struct{}, p.Most), make(chan struct{}, 1)
	launches.Go(func() { p.watchHeld(ctx) })
	tick := time.NewTicker(p.Every)
	defer tick.Stop()
	var failing time.Time // zero: the queue can be read
	for ctx.Err() == nil {
		orders, err := p.Queue.Take(ctx, p.Lease, p.Most-len(places))
		switch {
		case ctx.Err() != nil:
		case err != nil && failing.IsZero():
			failing = time.Now()
			p.Log.Warn("tasks not read", "error", err)
		case err == nil && !failing.IsZero():
			p.Log.Info("tasks read again", "after", time.Since(failing).Round(time.Millisecond))
			failing = time.Time{}
		}
		for _, o := range orders {
			places <- struct{}{}
			launches.Go(func() {
				p.do(ctx, o)
				<-places
				select {
				case freed <- struct{}{}:
				default:
				}
			})
		}
		p.rest(ctx, tick, places, freed)
	}
	return nil
}

// rest waits until there may be a task and there is a place for it.
func (p Provisioner) rest(ctx context.Context, tick *time.Ticker, places, freed chan struct{}) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-freed:
			return
		case <-tick.C:
			if len(places) < p.Most {
				return
			}
		}
	}
}

// Once launches the tasks that are due, and returns when none is left. Tasks that are put back are left, and so are
// those that wait for their house.
func (p Provisioner) Once(ctx context.Context) error {
	p = p.withDefaults()
	for ctx.Err() == nil {
		orders, err := p.Queue.Take(ctx, p.Lease, p.Most)
		if err != nil {
			return err
		}
		if len(orders) == 0 {
			p.hold(ctx, map[string]bool{})
			return nil
		}
		var launches sync.WaitGroup
		for _, o := range orders {
			launches.Go(func() { p.do(ctx, o) })
		}
		launches.Wait()
	}
	return nil
}

// closeTimeout bounds the calls that end a task of a host that stops.
const closeTimeout = 10 * time.Second

// do launches a task that this host has. It ends with ctx.
func (p Provisioner) do(stop context.Context, o rows.Task) {
	log := p.Log.With("thread", o.Thread, "run", o.Run())
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(stop))
	defer cancel(nil)
	defer context.AfterFunc(stop, func() { cancel(ErrStopped) })()
	var renewing sync.WaitGroup
	renewing.Go(func() { p.renew(ctx, cancel, o) })
	again, err := p.attempt(ctx, o)
	stopped := errors.Is(context.Cause(ctx), ErrStopped)
	cancel(nil)
	renewing.Wait()

	last, cancelLast := context.WithTimeout(context.WithoutCancel(stop), closeTimeout)
	defer cancelLast()
	var closing error
	switch {
	case err == nil:
		log.Info("task launched", "attempt", o.Attempts)
		closing = p.Queue.Done(last, o.Thread)
	case stopped:
		log.Info("task put back: this host stops")
		closing = p.Queue.PutBack(last, o.Thread, 0, true)
	case errors.Is(err, ErrBusy):
		log.Info("task waits: its thread has another run", "reason", err, "after", busyBackoff)
		closing = p.Queue.PutBack(last, o.Thread, busyBackoff, true)
	case again:
		after := backoff(o.Attempts)
		log.Warn("task not launched: it is tried again", "error", err, "attempt", o.Attempts, "after", after)
		closing = p.Queue.PutBack(last, o.Thread, after, false)
	default:
		log.Warn("task not launched", "error", err, "attempt", o.Attempts)
		closing = p.Queue.Done(last, o.Thread)
	}
	if closing != nil && !errors.Is(closing, rows.ErrLost) {
		log.Warn("the task's row is not changed: it is taken again after its lease", "error", closing)
	}
}

// attempt announces and launches a task. A task whose attempts are used up is refused on its thread. again reports that
// a further attempt may succeed.
func (p Provisioner) attempt(ctx context.Context, o rows.Task) (again bool, err error) {
	if o.Parent != "" {
		if err = p.Host.Announce(ctx, o); err != nil {
			err, again = fmt.Errorf("announce the task on thread %s: %w", o.Parent, err), true
		}
	}
	if o.Attempts > p.Tries { // its last host has died, again
		return p.refuse(ctx, o, fmt.Errorf("the launch was begun %d times, and no host has ended it", o.Attempts-1))
	}
	if err == nil {
		again, err = p.Host.Launch(ctx, o)
	}
	if again && !errors.Is(err, ErrBusy) && ctx.Err() == nil && o.Attempts == p.Tries {
		return p.refuse(ctx, o, fmt.Errorf("%w (tried %d times)", err, o.Attempts))
	}
	return again, err
}

// refuse posts why a task is not launched. Where that fails it is tried again.
func (p Provisioner) refuse(ctx context.Context, o rows.Task, cause error) (again bool, err error) {
	if err = p.Host.Refuse(ctx, o, cause); err != nil {
		return true, errors.Join(cause, err)
	}
	return false, cause
}

// renew renews the lease of a task. It ends the launch where the lease is lost, or may be.
func (p Provisioner) renew(ctx context.Context, end context.CancelCauseFunc, o rows.Task) {
	tick := time.NewTicker(p.Lease / 4)
	defer tick.Stop()
	for until := time.Now().Add(p.Lease); ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		limited, cancel := context.WithTimeout(ctx, p.Lease/4)
		began := time.Now()
		err := p.Queue.Renew(limited, o.Thread, p.Lease)
		cancel()
		switch {
		case err == nil:
			until = began.Add(p.Lease)
		case errors.Is(err, rows.ErrLost), time.Until(until) < p.Lease/4:
			end(ErrStopped)
			return
		}
	}
}

// Times between two attempts.
const (
	leastBackoff = 2 * time.Second
	mostBackoff  = time.Minute
	busyBackoff  = 10 * time.Second // of one that waits for another run; it does not count as an attempt
)

// backoff returns the time until a task is tried again, after its nth attempt.
func backoff(n int) time.Duration {
	return min(leastBackoff<<min(max(n-1, 0), 10), mostBackoff)
}
