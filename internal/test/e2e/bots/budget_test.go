package bots_test

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"arbe.0sk.ar/runner/internal/pause"
	"arbe.0sk.ar/runner/internal/test/model"
	"arbe.0sk.ar/runner/internal/test/scene"
	"arbe.0sk.ar/runner/thread"
)

// Three hosts answer on a budget of $5 a day, by a model whose replies cost up to $1: of 12 chats at the same time five
// are answered, for $0.90 each. The others are refused, and people see why.
func TestBudget(t *testing.T) {
	t.Parallel()
	const near = 3 * time.Minute // the day (UTC) of the budget must not end meanwhile
	if now := time.Now().UTC(); !now.Add(near).Truncate(24 * time.Hour).Equal(now.Truncate(24 * time.Hour)) {
		pause.For(t.Context(), time.Until(now.Add(near).Truncate(24*time.Hour)))
	}
	h := newHouse(t, model.Reply{Text: "hello ann", InputTokens: 100, OutputTokens: 900, Times: -1})
	h.arbe("", "house", "set", "h1", "--budget", "5", "--cap", "outputTokens=1000",
		"--price", "anthropic/scripted=0/1000")
	h.serve()
	for range 3 {
		h.dispatch()
	}
	var ids []string
	for range 12 {
		id := h.thread()
		h.say(id, "@piet hello")
		ids = append(ids, id)
	}
	answered := 0
	for _, id := range ids {
		var ends []thread.ReactionFinished
		scene.Until(t, "an end", func() bool {
			ends = h.ends(id)
			return len(ends) > 0
		})
		switch end := ends[0]; {
		case len(ends) > 1:
			t.Errorf("%+v", ends)
		case end.Outcome == thread.ReactionAnswered && end.Cost != nil && *end.Cost == .9:
			answered++
		case end.Outcome != thread.ReactionRefused || end.Message != "today's budget of the house is used up":
			t.Errorf("%+v", end)
		}
	}
	if n := len(h.model.Requests()); answered != 5 || n != 5 {
		t.Errorf("%d answers by %d requests", answered, n)
	}
	got := h.arbe("", "house", "budget", "--json", "h1")
	if n := strings.Count(got, `"spent":4.5,"reserved":0,`); n != 2 || strings.Count(got, "\n") != 1 ||
		strings.Count(got, `"refused":7}`) != 2 {
		t.Errorf("got %s", got)
	}
}

// A server measures what houses spend, for scrapes that may have it. While the database is away, it is left out, and
// the scrape is answered.
func TestFullSpentMeasured(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.sql(`insert into spend (house_id, day, spent, reserved, refused)
		select 'h1', (now() at time zone 'UTC')::date + d, 1234567, 300, 2 from generate_series(0, 1) as d`)
	h.serve()
	address, err := os.ReadFile(filepath.Join(h.data, "address"))
	if err != nil {
		t.Fatal(err)
	}
	token := h.arbe("", "token", "mint", "--scope", "threads")
	scrape := func(authorization string) (of []string) {
		url := strings.TrimSpace(string(address)) + "/metrics"
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", authorization)
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		b, err := io.ReadAll(answer.Body)
		if err != nil || answer.StatusCode != http.StatusOK {
			t.Fatalf("%s: %v", answer.Status, err)
		}
		for line := range strings.Lines(string(b)) {
			if strings.HasPrefix(line, "arbe_house_") {
				of = append(of, strings.TrimSpace(line))
			}
		}
		return of
	}
	there := func() bool { return len(scrape("Bearer "+token)) > 0 }
	scene.Until(t, "measurements of the house", there)
	want := []string{
		`arbe_house_budget_dollars{house="h1"} 50`, `arbe_house_refused_requests{house="h1"} 2`,
		`arbe_house_reserved_dollars{house="h1"} 0.0003`, `arbe_house_spent_dollars{house="h1"} 1.234567`,
	}
	if got := scrape("Bearer " + token); !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
	if got := scrape(""); got != nil {
		t.Errorf("without a token: %q", got)
	}
	if err := h.pg.Kill(); err != nil {
		t.Fatal(err)
	}
	scene.Until(t, "a scrape without them", func() bool { return !there() })
	if err := h.pg.Restart(); err != nil {
		t.Fatal(err)
	}
	scene.Until(t, "measurements of the house again", there)
}
