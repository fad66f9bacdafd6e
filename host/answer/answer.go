// Package answer has the bots of houses answer on a server's threads: it gives package dispatch the threads, the rows,
// the models with the keys of houses, and the threads that have grown.
//
// It decides nothing that is on a thread. What a Dispatcher has read is not kept beyond its end but for one cache: up
// to which offset a thread has nothing open. A thread that has grown since, or of which the cache is lost, is read
// again from its log.
//
// What a model has written, and the result of a tool, leaves for a thread without the values of secrets: the
// provider's key, and what the thread's environment injects.
//
// It stands beside dispatch since that knows no network, and it gets rows and models by interfaces: cmd/arbe alone
// links the database and the libraries of providers.
package answer

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"arbe.0sk.ar/runner/host/dispatch"
	"arbe.0sk.ar/runner/host/rows"
	"arbe.0sk.ar/runner/thread/client"
)

// Rows are the rows of the host: all houses.
type Rows interface {
	// Room returns a thread with its house. It returns rows.ErrAbsent for a thread without a row.
	Room(ctx context.Context, thread string) (rows.Room, error)
	// Unanswered returns those of some threads whose house has bots answer, and of which it is not known that nothing
	// is open up to this offset.
	Unanswered(ctx context.Context, some []rows.ThreadAt) (ids []string, err error)
	// Answered notes that nothing is open on a thread up to an offset.
	Answered(ctx context.Context, at rows.ThreadAt) error
	Budget
}

// Budget has what answers cost.
type Budget interface {
	// Reserve sets aside the highest cost of a request to a model. It returns rows.ErrBudget.
	Reserve(ctx context.Context, s rows.Spend) (rows.Spend, error)
	// Settle replaces what Reserve has returned by the real cost. It is called once.
	Settle(ctx context.Context, s rows.Spend, micros int64) error
}

// Dispatcher answers on the threads of one server. Set all fields that are not optional before Run.
type Dispatcher struct {
	Instance string                                        // random
	Client   func(threadID string) (*client.Client, error) // for writing any thread
	List     client.List                                   // of all threads
	Rows     func(ctx context.Context) (Rows, error)       // opens the rows, which may be away
	Hook     *Hook                                         // of the server, where it is of this process; else nil
	Models   Models                                        // by provider
	// Secret returns the value of a house's secret, or rows.ErrAbsent.
	Secret func(ctx context.Context, house, name string) (string, error)
	// Secrets returns the values of the secrets that an environment injects.
	Secrets func(ctx context.Context, environment string) (map[string]string, error)
	// Resume launches a run for chats of a driven thread, as dispatch.Host has it; nil for none.
	Resume    func(ctx context.Context, threadID string, r dispatch.Resume) error
	Tools     []dispatch.Tool // optional
	Reactions int             // at the same time, at the most
	Launches  int             // of runs, too
	Log       *slog.Logger
}

// Run answers until ctx is done, and returns nil then. It releases its reactions, which other hosts take over at once.
func (d *Dispatcher) Run(ctx context.Context) error {
	grew := make(chan string)
	look := make(chan struct{}, 1)
	lost := func() {
		select {
		case look <- struct{}{}:
		default:
		}
	}
	lost()
	together, ctx := errgroup.WithContext(ctx)
	together.Go(func() error { return d.watch(ctx, grew, lost) })
	together.Go(func() error { return d.lookAgain(ctx, look, grew) })
	together.Go(func() error {
		d.host().Run(ctx, grew)
		return nil
	})
	return together.Wait()
}

// Once answers what is open now, and returns when a look at all threads finds nothing more. While ctx is not done it
// waits for rows and a log that are away.
func (d *Dispatcher) Once(ctx context.Context) error {
	seen := map[rows.ThreadAt]bool{}
	for {
		grew := make(chan string)
		var working sync.WaitGroup
		working.Go(func() { d.host().Run(ctx, grew) })
		fresh := false
		err := d.look(ctx, func(at rows.ThreadAt) {
			if !seen[at] {
				seen[at], fresh = true, true
				pass(ctx, grew, at.ID)
			}
		})
		close(grew)
		working.Wait()
		if err != nil || !fresh {
			return err
		}
	}
}

// host returns what works on the threads.
func (d *Dispatcher) host() *dispatch.Host {
	return &dispatch.Host{
		Instance: d.Instance, Threads: d.thread, Room: d.room, Model: d.model, Tools: d.tools(),
		Reserve: d.reserve, Settled: d.settled, Resume: d.Resume, Reactions: d.Reactions, Launches: d.Launches,
		Log: d.Log,
	}
}

// room implements dispatch.Host.Room.
func (d *Dispatcher) room(ctx context.Context, id string) (r dispatch.Room, since time.Time, ok bool, err error) {
	row, err := d.row(ctx, id)
	if errors.Is(err, rows.ErrAbsent) || err == nil && row.Since.IsZero() {
		return r, since, false, nil
	}
	return dispatch.RoomOf(row), row.Since, err == nil, err
}

// row returns the row of a thread.
func (d *Dispatcher) row(ctx context.Context, id string) (rows.Room, error) {
	all, err := d.Rows(ctx)
	if err != nil {
		return rows.Room{}, err
	}
	return all.Room(ctx, id)
}

// settled notes that nothing is open on a thread. Where that fails the thread is read again, at the next look.
func (d *Dispatcher) settled(ctx context.Context, id, upto string) {
	all, err := d.Rows(ctx)
	if err == nil {
		err = all.Answered(ctx, rows.ThreadAt{ID: id, Offset: upto})
	}
	if err != nil {
		d.Log.Debug("a thread without open work is not noted", "thread", id, "error", err)
	}
}
