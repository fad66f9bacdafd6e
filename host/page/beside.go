package page

import (
	"cmp"
	"context"
	"errors"

	"arbe.0sk.ar/runner/host/index"
	"arbe.0sk.ar/runner/host/log"
	"arbe.0sk.ar/runner/host/view"
	"arbe.0sk.ar/runner/thread"
)

// beside has the names and states that items show and that their entries lack. The entries have ids alone, so that a
// thread never has the name or the state of another one, which not all of its readers may see.
type beside struct {
	names  names
	others others
	closed bool // the viewer may open no other thread
}

// others are the other threads that items name, by their ids: those from which bots have posted, and those of delegated
// tasks, as they are now.
//
// Who has a share sees none: that thread alone was shared. All other viewers of a thread are the operator and members
// of its house, and other threads are of the same house, so what is shown does not depend on the viewer.
type others map[string]*row

// beside returns what some items of the reader's thread show beside their entries.
func (r *reader) beside(ctx context.Context, items ...view.Item) beside {
	b := beside{names: r.whose(ctx, r.id).names, closed: r.shared}
	if b.closed || r.Room == nil {
		return b
	}
	limited, cancel := context.WithTimeout(ctx, whoWait) // for all of them
	defer cancel()
	b.others = others{}
	for _, i := range items {
		if from := i.From; b.others[from] == nil && thread.ValidThread(from) {
			b.others[from] = r.origin(limited, from)
		}
		if task := i.Call.Task(); b.others[task] == nil && thread.ValidThread(task) {
			b.others[task] = r.task(limited, task)
		}
	}
	return b
}

// origin returns a thread from which a bot has posted; nil for one of another house, and where that is not known.
func (r *reader) origin(ctx context.Context, id string) *row {
	there := r.whose(ctx, id)
	if there.Thread.House == "" || there.Thread.House != r.whose(ctx, r.id).Thread.House {
		return nil
	}
	v, err := r.summary(ctx, id)
	if err != nil {
		v = thread.Summary{ID: id} // its row alone is known
	}
	v.Title = cmp.Or(there.Thread.Name, v.Title)
	return newRow(v, now())
}

// task returns the thread of a task that was delegated on the reader's thread; nil for a thread whose row has another
// parent, for one that was deleted, and where it is not known.
func (r *reader) task(ctx context.Context, id string) *row {
	if r.whose(ctx, id).Thread.Parent != r.id {
		return nil
	}
	v, err := r.summary(ctx, id)
	if errors.Is(err, index.ErrAbsent) {
		if _, err = r.stat(ctx, id); err == nil || errors.Is(err, log.ErrAbsent) { // it had no entry yet
			v, err = thread.Summary{ID: id, Status: thread.StatusIdle}, nil
		}
	}
	if err != nil {
		return nil
	}
	return taskRow(v)
}

// taskRow returns the row of a task's thread.
func taskRow(v thread.Summary) *row {
	r := newRow(v, now())
	if r.State == string(view.Idle) {
		r.Label = "waiting to start"
	}
	return r
}
