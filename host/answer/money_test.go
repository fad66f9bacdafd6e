package answer_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	"arbe.0sk.ar/runner/host/answer"
	"arbe.0sk.ar/runner/host/dispatch"
	"arbe.0sk.ar/runner/host/rows"
)

// till is a budget that has one request.
type till struct {
	lab
	spend   rows.Spend
	err     error
	settled []int64
}

func (t *till) Reserve(_ context.Context, s rows.Spend) (rows.Spend, error) {
	t.spend = s
	return s, t.err
}

func (t *till) Settle(_ context.Context, _ rows.Spend, micros int64) error {
	t.settled = append(t.settled, micros)
	return nil
}

// A request is paid by the house of its thread and the bot, on their budgets. One that they have no money for is
// refused for good, and one whose rows are away is not.
func TestReserve(t *testing.T) {
	t.Parallel()
	room := rows.Room{House: rows.House{ID: "h1"}, Bots: []rows.RoomBot{
		{Agent: rows.Agent{ID: "alma"}}, {Agent: rows.Agent{ID: "piet"}, Member: rows.MemberConfig{Budget: new(2.5)}},
	}}
	away := errors.New("away")
	for _, tt := range []struct {
		bot        string
		house      *float64
		err        error
		ofHouse    int64
		ofBot      int64
		unpaid     bool
		wantsError bool
	}{
		{bot: "alma", ofHouse: 50_000_000, ofBot: 10_000_000},
		{bot: "piet", house: new(0.), ofHouse: 0, ofBot: 2_500_000},
		{
			bot: "alma", ofHouse: 50_000_000, ofBot: 10_000_000, wantsError: true, unpaid: true,
			err: &rows.Refusal{Kind: rows.ErrBudget, Text: "no money"},
		},
		{bot: "alma", ofHouse: 50_000_000, ofBot: 10_000_000, wantsError: true, err: away},
	} {
		room.HouseConfig.Dispatch.Budget = tt.house
		all := &till{lab: lab{room: room}, err: tt.err}
		d := &answer.Dispatcher{
			Rows: func(context.Context) (answer.Rows, error) { return all, nil }, Log: slog.New(slog.DiscardHandler),
		}
		settle, err := answer.ReserveOf(d, t.Context(), dispatch.Spend{
			Thread: "t1", Bot: tt.bot, Micros: 7, First: true,
		})
		want := rows.Spend{
			House: "h1", Bot: tt.bot, Micros: 7, First: true, HouseBudget: tt.ofHouse, BotBudget: tt.ofBot,
		}
		unpaid, is := errors.AsType[*dispatch.Unpaid](err)
		if all.spend != want || (err != nil) != tt.wantsError || is != tt.unpaid {
			t.Errorf("%+v, want %+v: %v", all.spend, want, err)
		}
		if is && unpaid.Message != "no money" {
			t.Errorf("got %s", unpaid.Message)
		}
		if err != nil {
			continue
		}
		if settle(t.Context(), 5); len(all.settled) != 1 || all.settled[0] != 5 {
			t.Errorf("settled %v", all.settled)
		}
	}
}
