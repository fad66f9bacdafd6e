package page

import (
	"bytes"
	"context"
	"strings"

	"arbe.0sk.ar/runner/host/index"
	"arbe.0sk.ar/runner/thread"
)

// liveTask is the state of a task, in place of the ones that the browser shows.
type liveTask struct {
	ID   string `json:"id"`
	HTML string `json:"html"`
}

// liveTask renders the state of a task that was delegated on the thread; nil for another thread.
func (r *reader) liveTask(ctx context.Context, id string) (*liveTask, error) {
	if r.Room == nil || r.shared {
		return nil, nil
	}
	is := r.task(ctx, id)
	if is == nil {
		return nil, nil
	}
	var b bytes.Buffer
	err := templates.ExecuteTemplate(&b, "task-state", is)
	return &liveTask{id, b.String()}, err
}

// wanted returns the ids in a request for the states of tasks, as many as a room follows.
func wanted(list string) (ids []string) {
	for id := range strings.SplitSeq(list, ",") {
		if thread.ValidThread(id) && len(ids) < index.MostWanted {
			ids = append(ids, id)
		}
	}
	return ids
}

// want makes the room follow the states of tasks.
func (r *room) want(ids ...string) {
	for _, id := range ids {
		if r.tasks != nil && id != "" {
			r.tasks.Want(id)
		}
	}
}

// tell publishes the states of the tasks that have changed.
func (r *room) tell(ctx context.Context, t *tail) error {
	changes, _, err := r.tasks.Take(ctx, index.MostWanted) // there are no more
	if err != nil {
		return err
	}
	var b bytes.Buffer
	for _, c := range changes {
		one, err := t.liveTask(ctx, c.ID)
		if err != nil {
			return err
		}
		if one == nil {
			continue
		}
		if err := writeEvent(&b, "task", one); err != nil {
			return err
		}
	}
	if b.Len() == 0 {
		return nil
	}
	return r.publish(ctx, b.Bytes(), t.after)
}
