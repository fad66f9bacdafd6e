package metrics

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"arbe.0sk.ar/runner/host/rows"
)

// spend has m measure what houses have spent, as it was read once.
func spend(t *testing.T, m *Set, all ...rows.Spent) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	err := m.OfMoney(func(context.Context) ([]rows.Spent, error) {
		cancel()
		return all, nil
	})(ctx)
	if err != nil {
		t.Fatal(err)
	}
}

// The measurements of money are those of the last read. Where the rows can't be read, or not in time, there are none;
// no scrape waits for them, and no other measurement is missing.
func TestMoney(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, n := New("v1", nil, ""), 0
		run := m.OfMoney(func(ctx context.Context) ([]rows.Spent, error) {
			switch n++; n {
			case 1:
				return []rows.Spent{
					{House: "h1", Spent: 1_200_000, Reserved: 315_000, Budget: 20_000_000, Answers: 14, Refused: 2},
					{House: "h2", Budget: 50_000_000},
				}, nil
			case 3:
				return nil, errors.New("the database is away")
			case 4:
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return []rows.Spent{{House: "h1", Spent: 2_000_000, Budget: 20_000_000}}, nil
		})
		want := func(lines ...string) {
			t.Helper()
			synctest.Wait()
			got := scraped(t, m, "arbe_house_")
			if slices.Sort(lines); !slices.Equal(got, lines) {
				t.Error(cmp.Diff(got, lines))
			}
			if len(scraped(t, m, "arbe_append_entries_total")) == 0 {
				t.Error("other measurements are missing")
			}
		}
		again := []string{
			`arbe_house_budget_dollars{house="h1"} 20`, `arbe_house_refused_requests{house="h1"} 0`,
			`arbe_house_reserved_dollars{house="h1"} 0`, `arbe_house_spent_dollars{house="h1"} 2`,
		}
		want()
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- run(ctx) }()
		want(`arbe_house_budget_dollars{house="h1"} 20`, `arbe_house_budget_dollars{house="h2"} 50`,
			`arbe_house_refused_requests{house="h1"} 2`, `arbe_house_refused_requests{house="h2"} 0`,
			`arbe_house_reserved_dollars{house="h1"} 0.315`, `arbe_house_reserved_dollars{house="h2"} 0`,
			`arbe_house_spent_dollars{house="h1"} 1.2`, `arbe_house_spent_dollars{house="h2"} 0`)
		time.Sleep(moneyEvery)
		want(again...)
		time.Sleep(moneyEvery) // the rows are away
		want()
		time.Sleep(moneyEvery + moneyWait) // they hang
		want()
		time.Sleep(moneyEvery)
		want(again...)
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// What houses spend is for requests that may read all of them.
func TestMoneyHidden(t *testing.T) {
	m := New("v1", nil, "")
	spend(t, m, rows.Spent{House: "h1", Spent: 1})
	w := httptest.NewRecorder()
	none := func(*http.Request) bool { return false }
	m.Handler(none, http.NotFound).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if text := w.Body.String(); strings.Contains(text, "h1") || !strings.Contains(text, "arbe_append_entries_total") {
		t.Errorf("got %d %s", w.Code, text)
	}
}
