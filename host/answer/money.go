package answer

import (
	"context"
	"errors"
	"time"

	"arbe.0sk.ar/runner/host/dispatch"
	"arbe.0sk.ar/runner/host/rows"
)

// settleFor bounds the settling of a request, which an answer waits for.
const settleFor = 10 * time.Second

// reserve implements dispatch.Host.Reserve.
func (d *Dispatcher) reserve(
	ctx context.Context, s dispatch.Spend,
) (settle func(ctx context.Context, micros int64), err error) {
	all, err := d.Rows(ctx)
	if err != nil {
		return nil, err
	}
	room, err := all.Room(ctx, s.Thread)
	if err != nil {
		return nil, err
	}
	made, err := all.Reserve(ctx, spendOf(room, s))
	if errors.Is(err, rows.ErrBudget) {
		return nil, &dispatch.Unpaid{Message: err.Error()}
	} else if err != nil {
		return nil, err
	}
	return func(ctx context.Context, micros int64) {
		ctx, cancel := context.WithTimeout(ctx, settleFor)
		defer cancel()
		if err := all.Settle(ctx, made, micros); err != nil {
			d.Log.Warn("money stays reserved", "thread", s.Thread, "bot", s.Bot, "micros", s.Micros, "error", err)
		}
	}, nil
}

// spendOf returns the row of a request's cost, with the budgets of the house and the bot.
func spendOf(room rows.Room, s dispatch.Spend) rows.Spend {
	house, bot := room.HouseConfig.Dispatch.Budget, (*float64)(nil)
	for _, b := range room.Bots {
		if b.ID == s.Bot {
			bot = b.Member.Budget
		}
	}
	return rows.Spend{
		House: room.House.ID, Bot: s.Bot, Micros: s.Micros, First: s.First,
		HouseBudget: rows.BudgetOf(house, rows.UsualHouseBudget), BotBudget: rows.BudgetOf(bot, rows.UsualBotBudget),
	}
}
