package page

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/url"

	"arbe.0sk.ar/runner/host/access"
	"arbe.0sk.ar/runner/host/log"
	"arbe.0sk.ar/runner/host/view"
	"arbe.0sk.ar/runner/thread"
)

// liveItem is an item that is new, or that replaces the one with its ID.
type liveItem struct {
	ID       string `json:"id"`
	Sub      string `json:"sub,omitempty"`
	Task     string `json:"task,omitempty"`  // of the subagent, where the item has it
	Steps    string `json:"steps,omitempty"` // the bot whose step it is
	HTML     string `json:"html"`
	Replaces bool   `json:"replaces,omitempty"`
	After    uint64 `json:"after"` // where a live answer continues
}

// liveItem renders an item of the append with a seq, which may have more items.
func (t *tail) liveItem(ctx context.Context, c view.Change, seq uint64) (liveItem, error) {
	one := item{Item: c.Item, Thread: t.id, beside: t.beside(ctx, c.Item)}
	if one.Input.Waits() && !t.builder.Runs {
		one.Input = nil
	}
	var b bytes.Buffer
	if err := templates.ExecuteTemplate(&b, "item", one); err != nil {
		return liveItem{}, err
	}
	return liveItem{
		one.ID, one.Sub(), view.Visible(one.Task()), view.Visible(one.Steps()), b.String(), c.Replaces, seq - 1,
	}, nil
}

// liveHead is the part of a thread's page above the items.
type liveHead struct {
	HTML      string   `json:"html"`                // what stays above them
	Pulse     string   `json:"pulse"`               // what the agent does
	Answering []string `json:"answering,omitempty"` // ids of the reactions of bots that are open
	After     uint64   `json:"after"`
}

// liveHead renders the thread's row, with the pulse of an open run.
func (r *reader) liveHead(ctx context.Context, is *moment, after uint64) (liveHead, error) {
	v, err := r.summary(ctx, r.id)
	if err != nil {
		return liveHead{}, err
	}
	var b bytes.Buffer
	if err := templates.ExecuteTemplate(&b, "head", r.head(ctx, v)); err != nil {
		return liveHead{}, err
	}
	pulse := is.pulse
	if v.Status != thread.StatusRunning {
		pulse = ""
	}
	return liveHead{b.String(), pulse, idsOf(is.answering), after}, nil
}

// mostBehind is how many items a live answer begins with. A browser that is further behind, as after a night's sleep,
// does better to load the page again.
const mostBehind = 2000

var errFar = errors.New("the browser is too far behind")

// threadLive serves what is appended to a thread behind a place, as the only topic of an answer.
func (p *page) threadLive(w http.ResponseWriter, r *http.Request) error {
	id := r.PathValue("thread")
	s, err := p.viewer(w, r, id)
	if err != nil {
		return err
	}
	t, err := p.threadTopic(s, id, r.URL.Query())
	if err != nil {
		return err
	}
	if _, err := p.stat(r.Context(), id); err != nil {
		return err
	}
	t.n = soleTopic
	p.serveLive(w, r, s, t)
	return nil
}

// threadTopic returns the topic of what is appended to a thread behind the place "after" of a query, as items: those
// that are there, then ready, then what comes; or far, for a place too far behind. gone is of a thread that was
// deleted, and for a place behind the thread's end: the log was restored from an older backup. "tasks" has the ids of
// the tasks that the browser shows.
func (p *page) threadTopic(s access.Session, id string, query url.Values) (*topic, error) {
	after, err := placeOf(query, "after")
	if err != nil {
		return nil, err
	}
	tasks := wanted(query.Get("tasks"))
	return &topic{id: id, follow: func(ctx context.Context, t *topic) error {
		if err := p.check(ctx, s, id); err != nil {
			return err
		}
		from, err := p.reader(ctx, s, id)
		if errors.Is(err, log.ErrGone) || errors.Is(err, log.ErrAbsent) {
			return t.end("gone")
		}
		if err != nil {
			return err
		}
		defer from.Free()
		v := &viewer{reader: from, after: after, tail: from.stream.Tail(), topic: t, tasks: tasks}
		if err = log.ErrGone; after <= v.tail {
			v.room, v.member = p.enter(from)
			v.room.want(tasks...)
			defer p.leave(v.room, v.member)
			err = v.follow(ctx)
		}
		switch {
		case errors.Is(err, log.ErrAbsent), errors.Is(err, log.ErrGone):
			return t.end("gone")
		case errors.Is(err, errFar):
			return t.end("far")
		}
		return err
	}}, nil
}

// end sends the last event of a topic.
func (t *topic) end(name string) error {
	t.send(name, struct{}{})
	return errEnded
}

// viewer sends what a thread gets to one browser.
type viewer struct {
	*reader          // charged while it renders alone
	after   uint64   // the browser has the thread up to here
	tail    uint64   // where the thread ended when the browser came
	headed  bool     // and its head
	ready   bool     // and ready was sent
	tasks   []string // ids of the threads of tasks that the browser shows, and that have not ended
	topic   *topic
	room    *room
	member  *member
}

// follow sends what the browser lacks, then ready, then what comes. It returns nil when the answer has to end.
func (v *viewer) follow(ctx context.Context) error {
	for {
		c, at, changed, end := v.member.take()
		err := v.alone(ctx, at) // where it has just come, or has missed chunks
		if c != nil {
			if err == nil {
				err = v.chunk(ctx, c)
			}
			v.room.done(c)
		} else if err == nil {
			if err = end; err == nil {
				err = v.settle(ctx)
			}
		}
		if err != nil {
			return err
		}
		if !v.topic.flush() || !wait(ctx, changed) {
			return nil
		}
	}
}

// chunk sends a chunk of the room. A page that was loaded before the room had the chunk begins behind it, or in it.
func (v *viewer) chunk(ctx context.Context, c *chunk) error {
	if v.after != c.from {
		v.headed = false
		return v.alone(ctx, c.to)
	}
	v.topic.write(c.data)
	v.after = c.to
	return v.topic.failed()
}

// alone sends what follows the browser's place up to another one, without the room. For a browser that has just come it
// returns errFar where that is too much.
func (v *viewer) alone(ctx context.Context, upTo uint64) error {
	if v.after >= upTo {
		return nil
	}
	var err error
	if v.stream, err = v.stat(ctx, v.id); err != nil {
		return err
	}
	if v.stream.Born != v.room.key.born || upTo > v.stream.Tail() {
		return log.ErrGone
	}
	t, err := newTail(ctx, *v.reader, v.after, 0)
	if err != nil {
		return err
	}
	n := 0
	err = t.each(ctx, upTo, func(c view.Change, seq uint64) error {
		if n++; n > mostBehind && !v.ready {
			return errFar
		}
		one, err := t.liveItem(ctx, c, seq)
		if err == nil {
			v.topic.send("item", one)
			err = v.topic.failed()
		}
		return err
	})
	v.after, v.headed = upTo, false
	return err
}

// settle sends the head, what bots are answering, and ready, to a browser that has all there is. The room may have to
// render it first.
func (v *viewer) settle(ctx context.Context) error {
	is := v.room.now.Load()
	if v.headed || is == nil || v.after < v.tail {
		return nil
	}
	err := writeAnswers(nil, is.answering, v.whose(ctx, v.id).names, func(a liveAnswer) { v.topic.send("answer", a) })
	if err != nil {
		return err
	}
	head, err := v.liveHead(ctx, is, v.after)
	if err != nil {
		return err
	}
	v.topic.send("head", head)
	for _, id := range v.tasks { // they may have changed since the page was rendered
		one, err := v.liveTask(ctx, id)
		if err != nil {
			return err
		}
		if one != nil {
			v.topic.send("task", one)
		}
	}
	v.headed = true
	if !v.ready {
		v.topic.send("ready", map[string]int64{"now": now().UnixMilli()})
		v.ready = true
	}
	return nil
}
