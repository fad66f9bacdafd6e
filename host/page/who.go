package page

import (
	"context"
	"errors"
	"sync"
	"time"

	"arbe.0sk.ar/runner/host/rows"
	"arbe.0sk.ar/runner/host/view"
)

// names are the names of the members of a thread's house, by their ids.
type names map[string]string

// author returns the name of an entry's author: the author's id where the house has no such member.
func (n names) author(id string) string {
	if name := n[id]; name != "" {
		return name
	}
	return id
}

// bot returns what a reader calls a bot, which the house may have no more.
func (n names) bot(id string) string { return view.BotName(id, n[id]) }

// Times and bounds of the rooms that are kept.
const (
	whoLife = 10 * time.Second // what was read serves so long
	whoWait = 2 * time.Second  // for the rows: the page is shown without them, too
	mostWho = 1000
)

// who has the threads' houses, as they were read last.
type who struct {
	mu    sync.Mutex // guards rooms
	rooms map[string]whose
}

// whose is a thread's house as it was read.
type whose struct {
	rows.Room
	names names
	read  time.Time
}

// whose returns a thread's house; the zero value for a thread without one, and where it was never read. It is some
// seconds old, or older while the rows can't be read.
func (p *page) whose(ctx context.Context, id string) whose {
	if p.Room == nil {
		return whose{}
	}
	p.who.mu.Lock()
	was := p.who.rooms[id]
	p.who.mu.Unlock()
	if !was.read.IsZero() && time.Since(was.read) < whoLife {
		return was
	}
	limited, cancel := context.WithTimeout(ctx, whoWait)
	defer cancel()
	r, err := p.Room(limited, id)
	switch {
	case err == nil:
		was = whose{Room: r, names: names{}}
		for _, a := range r.Humans {
			was.names[a.ID] = a.Name
		}
		for _, b := range r.Bots {
			was.names[b.ID] = b.Name
		}
	case errors.Is(err, rows.ErrAbsent):
		was = whose{}
	case rows.IsUnserved(err): // the store has logged it
	case ctx.Err() != nil:
		return was
	default: // names are no reason not to show a thread
		p.Logger.Warn("house of a thread not read", "thread", id, "error", err)
	}
	was.read = time.Now()
	p.who.mu.Lock()
	defer p.who.mu.Unlock()
	if p.who.rooms == nil || len(p.who.rooms) >= mostWho {
		p.who.rooms = map[string]whose{}
	}
	p.who.rooms[id] = was
	return was
}
