package dispatch_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/jackc/pgx/v5"

	"arbe.0sk.ar/runner/internal/test/botchaos"
	"arbe.0sk.ar/runner/thread"
	"arbe.0sk.ar/runner/thread/client"
)

// hands gives the bots of all houses what their tools need: an environment of local boxes for the threads that are
// made so far, and in each house a thread for their posts, on which nobody answers.
func (w *world) hands() *botchaos.Hands {
	w.t.Helper()
	w.commands = filepath.Join(w.t.TempDir(), "lines")
	for id, bots := range houses {
		w.exec("insert into environments (id, house_id, name, runtime, config) values ($1, $1, $1, 'local', '{}')", id)
		w.exec("update threads set environment_id = $1 where house_id = $1", id)
		w.exec(`insert into threads (id, stream_id, house_id, name, config)
			values ($1, $1, $2, $1, '{"dispatch": {"off": true}}')`, board(id), id)
		for _, b := range bots {
			w.arbe("", "member", "set", b.Name, "--house", id, "--tool", botchaos.Chat)
		}
	}
	return &botchaos.Hands{File: w.commands, Board: board}
}

// board is the thread for the posts of a house's bots.
func board(house string) string { return "board-" + house }

// made gives each talk the effects of its bots' calls.
func (w *world) made(talks []*talk) {
	w.t.Helper()
	by := map[string]*talk{} // by the name of what a call makes
	for _, tk := range talks {
		tk.Made = []botchaos.Effect{}
		for _, e := range tk.Entries {
			if thread.TypeOf(e.Payload) == thread.TypeRound {
				for _, name := range botchaos.Name.FindAllString(string(e.Payload), -1) {
					by[name] = tk
				}
			}
		}
	}
	for _, e := range w.effects() {
		if tk := by[e.Name]; tk != nil {
			tk.Made = append(tk.Made, e)
		} else {
			w.t.Errorf("an effect of %s (%s, key %s) is of no reply", e.Tool, e.Name, e.Key)
		}
	}
}

// effects returns the threads and tasks that bots have made, their posts, and the lines that their commands have
// written.
func (w *world) effects() (all []botchaos.Effect) {
	w.t.Helper()
	c, err := pgx.Connect(w.t.Context(), w.db)
	if err != nil {
		w.t.Fatal(err)
	}
	defer c.Close(context.WithoutCancel(w.t.Context()))
	found, err := c.Query(w.t.Context(), `select id, coalesce(task->>'prompt', name), task is not null from threads
		where name like 'made-%' or task is not null`)
	if err != nil {
		w.t.Fatal(err)
	}
	var key, name string
	var task bool
	if _, err = pgx.ForEachRow(found, []any{&key, &name, &task}, func() error {
		tool := botchaos.Thread
		if task {
			tool = botchaos.Task
		}
		all = append(all, botchaos.Effect{Tool: tool, Key: key, Name: name})
		return nil
	}); err != nil {
		w.t.Fatal(err)
	}
	if w.commands == "" {
		return all
	}
	lines, err := os.ReadFile(w.commands)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		w.t.Fatal(err)
	}
	for line := range strings.Lines(string(lines)) {
		all = append(all, botchaos.Effect{Tool: botchaos.Command, Name: strings.TrimSpace(line)})
	}
	for house := range houses {
		if _, err := w.client(w.servers[0], board(house)).Read(w.t.Context(), "0", false, func(e thread.Entry) error {
			if thread.TypeOf(e.Payload) == thread.TypeChat {
				name := botchaos.Name.FindString(string(e.Payload))
				all = append(all, botchaos.Effect{Tool: botchaos.Chat, Key: e.ID, Name: name})
			}
			return nil
		}); err != nil && !client.NoThread(err) {
			w.t.Fatal(err)
		}
	}
	return all
}
