package provision

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"arbe.0sk.ar/runner/host/launch"
	"arbe.0sk.ar/runner/host/rows"
	"arbe.0sk.ar/runner/thread"
)

// house is the rows of a house h with the bots old and new of pi and other of codex.
type house struct {
	threads map[string]rows.Thread
	place   rows.Place     // of each thread
	bot     rows.BotConfig // of each bot
	taken   bool           // another launch makes each row first
	away    error
	made    []rows.NewThread

	limit    int // of the runs, which others use up; 0 for none
	admitted []string
}

func (h *house) open(context.Context) (Rows, error) { return h, h.away }

func (h *house) Thread(_ context.Context, id string) (rows.Thread, error) {
	t, is := h.threads[id]
	if !is {
		return t, rows.Refuse(rows.ErrAbsent, "thread")
	}
	return t, nil
}

func (h *house) CreateThread(_ context.Context, n rows.NewThread) (rows.Thread, error) {
	t := rows.Thread{ID: n.ID, House: n.House, Agent: n.Agent}
	if h.taken {
		t.Agent = "other"
		h.threads[n.ID] = t
		return rows.Thread{}, rows.Refuse(rows.ErrTaken, "the thread's id")
	}
	h.made, h.threads[n.ID] = append(h.made, n), t
	return t, nil
}

func (h *house) Admit(_ context.Context, _, run string) error {
	if h.limit > 0 {
		return &rows.HeldError{Runs: h.limit}
	}
	h.admitted = append(h.admitted, run)
	return nil
}

func (h *house) Dismiss(_ context.Context, _, run string) error {
	h.admitted = slices.DeleteFunc(h.admitted, func(r string) bool { return r == run })
	return nil
}

func (h *house) Agent(_ context.Context, id string) (rows.Agent, error) {
	runtime := "pi"
	if id == "other" {
		runtime = "codex"
	}
	return rows.Agent{ID: id, Runtime: runtime}, nil
}

func (h *house) Drivers(_ context.Context, house, harness string) ([]rows.Agent, error) {
	if house != "h" || harness != "pi" {
		return nil, nil
	}
	return []rows.Agent{{ID: "old"}, {ID: "new"}}, nil
}

func (h *house) Place(ctx context.Context, id, wanted string) (rows.Place, error) {
	t, err := h.Thread(ctx, id)
	p := h.place
	p.House = t.House
	p.Environment.ID = cmp.Or(wanted, p.Environment.ID)
	return p, err
}

// Where a launch goes, and the row that it makes.
func TestPlace(t *testing.T) {
	live := rows.Place{Environment: rows.Environment{ID: "e"}, Provider: "local"}
	archived := live
	archived.Environment.ArchivedAt = new(time.Time)
	used := archived
	used.Live = true
	away := errors.New("the database is away")
	for _, tt := range []struct {
		name    string
		row     rows.Thread // of the thread; none without an ID
		parent  string      // the house of the parent's row; "" for no row
		rows    house
		harness string // pi by default
		asked   Asked
		want    string // the environment; "" for a launch without rows
		made    rows.NewThread
		err     string
	}{
		{name: "a thread without a row, and no house"},
		{name: "a row that fits", row: rows.Thread{ID: "t", House: "h", Agent: "old"}, want: "e"},
		{
			name: "an environment is asked for", row: rows.Thread{ID: "t", House: "h", Agent: "old"},
			asked: Asked{House: "h", Agent: "old", Environment: "e2", Provider: "local"}, want: "e2",
		},
		{
			name: "another house", row: rows.Thread{ID: "t", House: "h2", Agent: "old"}, asked: Asked{House: "h"},
			err: "the thread is of the house h2",
		},
		{
			name: "a chat", row: rows.Thread{ID: "t", House: "h"},
			err: "the thread is a chat: no bot drives it",
		},
		{
			name: "another bot", row: rows.Thread{ID: "t", House: "h", Agent: "old"}, asked: Asked{Agent: "new"},
			err: "the thread is driven by old",
		},
		{
			name: "another harness", row: rows.Thread{ID: "t", House: "h", Agent: "other"},
			err: "the thread is driven by the bot other: use --harness codex",
		},
		{
			name: "another provider", row: rows.Thread{ID: "t", House: "h", Agent: "old"},
			asked: Asked{Provider: "daytona"}, err: "its sandbox is one of local, not of daytona",
		},
		{
			name: "an archived environment", row: rows.Thread{ID: "t", House: "h", Agent: "old"},
			rows: house{place: archived}, err: "the environment e: archived",
		},
		{
			name: "the archived environment of a live box", row: rows.Thread{ID: "t", House: "h", Agent: "old"},
			rows: house{place: used}, want: "e",
		},
		{
			name: "no environment", row: rows.Thread{ID: "t", House: "h", Agent: "old"},
			rows: house{place: rows.Place{Provider: "none"}},
			err:  "neither the thread nor its house has an environment: use --environment",
		},
		{
			name: "a new row, of the oldest bot", asked: Asked{House: "h", Environment: "e2"}, want: "e2",
			made: rows.NewThread{ID: "t", House: "h", Agent: "old", Environment: "e2"},
		},
		{
			name: "a new row, of a bot", asked: Asked{House: "h", Agent: "new"}, want: "e",
			made: rows.NewThread{ID: "t", House: "h", Agent: "new"},
		},
		{
			name: "a new row with a parent of the house", parent: "h", asked: Asked{House: "h"}, want: "e",
			made: rows.NewThread{ID: "t", House: "h", Agent: "old", Parent: "p"},
		},
		{
			name: "a new row with a parent of another house", parent: "h2", asked: Asked{House: "h"}, want: "e",
			made: rows.NewThread{ID: "t", House: "h", Agent: "old"},
		},
		{
			name: "a bot of another harness", asked: Asked{House: "h", Agent: "other"},
			err: "other is no bot of the house h that runs pi",
		},
		{
			name: "no bot of the harness", asked: Asked{House: "h"}, harness: "codex",
			err: "the house h has no bot that runs codex: add one",
		},
		{
			name: "another launch was first, with another bot", rows: house{taken: true}, asked: Asked{House: "h"},
			err: "the thread is driven by the bot other: use --harness codex",
		},
		{name: "a database that is away", rows: house{away: away}, err: "the database is away"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			all := tt.rows
			all.threads = map[string]rows.Thread{}
			if tt.row.ID != "" {
				all.threads["t"] = tt.row
			}
			if tt.parent != "" {
				all.threads["p"] = rows.Thread{ID: "p", House: tt.parent}
			}
			if all.place.Provider == "" {
				all.place = live
			}
			h := &Host{Rows: all.open}
			task := launch.Task{
				Thread: "t", Harness: cmp.Or(tt.harness, "pi"), Parent: &thread.Parent{ThreadID: "p"},
			}
			got, err := h.Place(t.Context(), &task, tt.asked)
			if tt.err != "" {
				want := "the rows of thread t: " + tt.err
				if tt.rows.away != nil {
					want = tt.err // it is of no thread
				}
				if err == nil || err.Error() != want {
					t.Errorf("got the error %v, want %s", err, want)
				}
				return
			}
			if err != nil || got.Environment.ID != tt.want || (got.House != "") != (tt.want != "") {
				t.Errorf("got %+v, %v", got, err)
			}
			if tt.want != "" && task.Environment != tt.asked.Environment {
				t.Errorf("the task's environment is %q", task.Environment)
			}
			var made rows.NewThread
			if len(all.made) > 0 {
				made = all.made[0]
			}
			if made.ID != tt.made.ID || made.Agent != tt.made.Agent || made.Parent != tt.made.Parent ||
				made.House != tt.made.House || made.Environment != tt.made.Environment {
				t.Errorf("made %+v, want %+v", made, tt.made)
			}
		})
	}
}

// Without a database a launch has no row.
func TestPlaceWithoutRows(t *testing.T) {
	p, err := (&Host{}).Place(t.Context(), &launch.Task{Thread: "t"}, Asked{House: "h"})
	if err != nil || p.House != "" {
		t.Errorf("got %+v, %v", p, err)
	}
}
