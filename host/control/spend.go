package control

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"arbe.0sk.ar/runner/host/rows"
)

// reserved is a row in which an amount was reserved.
type reserved struct {
	Bot bool
	Day time.Time
}

// Reserve sets aside the highest cost of a request, on the budgets of the house's and the bot's day, and returns it
// with that day. It returns rows.ErrBudget where one of them has too little left, and counts that. What is not settled
// counts as spent: after an error, it may be reserved.
//
// One statement checks and changes both rows, always that of the house first: no two hosts wait for each other.
func (db *DB) Reserve(ctx context.Context, s rows.Spend) (rows.Spend, error) {
	err := db.Host().tx(ctx, "reserve money of house "+s.House, func(tx pgx.Tx) error {
		made, err := many[reserved](ctx, tx, `
			insert into spend as s (house_id, bot_id, day, reserved, answers)
			select $1, of.bot, (now() at time zone 'UTC')::date, $3, $4
			from (values (1, null::uuid, $5::bigint), (2, $2::uuid, $6::bigint)) as of (place, bot, budget)
			where $3::bigint <= of.budget order by of.place
			on conflict on constraint spend_key do update
			set reserved = s.reserved + excluded.reserved, answers = s.answers + excluded.answers
			where s.spent + s.reserved + excluded.reserved <= case when s.bot_id is null then $5::bigint else $6::bigint end
			returning bot_id is not null as bot, day`,
			s.House, s.Bot, max(s.Micros, 0), answers(s), s.HouseBudget, s.BotBudget)
		switch {
		case err != nil:
			return err
		case len(made) == 0 || made[0].Bot:
			return &rows.Refusal{Kind: rows.ErrBudget, Text: "today's budget of the house is used up"}
		case len(made) == 1:
			return &rows.Refusal{Kind: rows.ErrBudget, Text: "today's budget of the bot is used up"}
		}
		s.Day = made[0].Day
		return nil
	})
	if errors.Is(err, rows.ErrBudget) {
		db.countRefusal(ctx, s)
	}
	return s, err
}

// countRefusal counts a refusal of both days. A count that is lost changes no answer.
func (db *DB) countRefusal(ctx context.Context, s rows.Spend) {
	_, _ = change(ctx, db.Host(), "count a refusal of house "+s.House, `
		insert into spend as s (house_id, bot_id, day, refused)
		select $1, of.bot, (now() at time zone 'UTC')::date, 1
		from (values (1, null::uuid), (2, $2::uuid)) as of (place, bot) order by of.place
		on conflict on constraint spend_key do update set refused = s.refused + 1`, s.House, s.Bot)
}

func answers(s rows.Spend) int {
	if s.First {
		return 1
	}
	return 0
}

// Settle replaces what Reserve has returned by the real cost. It must not be repeated: after an error it may be done.
func (db *DB) Settle(ctx context.Context, s rows.Spend, micros int64) error {
	return db.Host().tx(ctx, "settle money of house "+s.House, func(tx pgx.Tx) error {
		for _, bot := range []*string{nil, &s.Bot} { // in Reserve's order
			err := exec(ctx, tx, "reserved money", `update spend set reserved = reserved - $4, spent = spent + $5
				where house_id = $1 and day = $2 and bot_id is not distinct from $3::uuid`,
				s.House, s.Day, bot, max(s.Micros, 0), max(micros, 0))
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// spentColumns are those of rows.Spent, of the spend of a house h, and of the bot a that is its member m. $1 and $2 are
// the usual budgets.
const spentColumns = `h.id as house, day, coalesce(bot_id::text, '') as bot, coalesce(a.name, '') as name, spent,
	reserved, answers, refused, round(1000000 * coalesce(case when bot_id is null then h.config #>> '{dispatch,budget}'
		else m.config ->> 'budget' end::numeric, case when bot_id is null then $1::int else $2::int end))::bigint as budget
	from spend join houses h on h.id = spend.house_id left join agents a on a.id = bot_id
	left join members m on m.house_id = h.id and m.agent_id = bot_id`

// Spent returns what the bots of a house have cost on its last days, today (UTC) among them: the newest day first, the
// house before its bots. Only owners may read it.
func (s Scope) Spent(ctx context.Context, house string, days int) ([]rows.Spent, error) {
	return list[rows.Spent](ctx, s, "read what house "+house+" has spent", `
		select `+spentColumns+`
		where spend.house_id = $3 and day > (now() at time zone 'UTC')::date - $4::int
		order by day desc, bot_id nulls first`, rows.UsualHouseBudget, rows.UsualBotBudget, house, days)
}

// mostSpending bounds the houses of Today.
const mostSpending = 1000

// Today returns what all bots of each house have cost today (UTC), at most mostSpending houses: those that cost most.
// The host alone may.
func (s Scope) Today(ctx context.Context) ([]rows.Spent, error) {
	return list[rows.Spent](ctx, s, "read what houses have spent today", `select `+spentColumns+`
		where bot_id is null and day = (now() at time zone 'UTC')::date
		order by spent + reserved desc, h.id limit $3`, rows.UsualHouseBudget, rows.UsualBotBudget, mostSpending)
}
