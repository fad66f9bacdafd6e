package control_test

import (
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"arbe.0sk.ar/runner/host/control"
	"arbe.0sk.ar/runner/host/rows"
	"arbe.0sk.ar/runner/internal/pause"
)

const dollar = 1_000_000

// spent returns the rows of a house by their bots, the house's own under "".
func spent(t testing.TB, s control.Scope, house string) map[string]rows.Spent {
	t.Helper()
	all := map[string]rows.Spent{}
	for _, x := range must(s.Spent(t.Context(), house, 1))(t) {
		all[x.Bot] = x
	}
	return all
}

// withinDay waits for the next day (UTC) where this one is nearly over: a budget is that of one day.
func withinDay(t testing.TB) {
	t.Helper()
	const near = 3 * time.Minute // and longer than any of these tests takes
	if now := time.Now().UTC(); !now.Add(near).Truncate(24 * time.Hour).Equal(now.Truncate(24 * time.Hour)) {
		pause.For(t.Context(), time.Until(now.Add(near).Truncate(24*time.Hour)))
	}
}

// Money is reserved on the budgets of the house and of the bot, all or nothing, and the rest is given back.
func TestReserve(t *testing.T) {
	withinDay(t)
	db, url := open(t, control.Config{})
	h, ctx := newHouse(t, db), t.Context()
	other := must(db.Host().CreateBot(ctx, rows.NewBot{Name: "Other", Runtime: "pi", House: h.id}))(t).ID
	reserve := func(bot string, micros int64) (rows.Spend, error) {
		return db.Reserve(ctx, rows.Spend{
			House: h.id, Bot: bot, Micros: micros, First: true, HouseBudget: 5 * dollar, BotBudget: 3 * dollar,
		})
	}
	refused := func(bot string, micros int64, want string) {
		t.Helper()
		_, err := reserve(bot, micros)
		is(t, err, rows.ErrBudget)
		if err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	const ofHouse, ofBot = "today's budget of the house is used up", "today's budget of the bot is used up"
	refused(h.bot, 6*dollar, ofHouse)
	refused(h.bot, 4*dollar, ofBot)
	for _, got := range spent(t, db.Host(), h.id) {
		if got.Spent != 0 || got.Reserved != 0 || got.Answers != 0 || got.Refused != 2 {
			t.Errorf("refusals leave %+v", got)
		}
	}
	first := must(reserve(h.bot, 2*dollar))(t)
	refused(h.bot, 2*dollar, ofBot)
	must(reserve(other, 3*dollar))(t)
	refused(h.bot, 1, ofHouse)
	check(t, db.Settle(ctx, first, dollar/2))
	must(reserve(h.bot, dollar*3/2))(t)
	refused(h.bot, 1, ofHouse)
	check(t, db.As(h.owner).ChangeMember(ctx, h.id, h.bot, rows.MemberChange{Budget: new(2.5)}))
	want := map[string]rows.Spent{
		"":    {Spent: dollar / 2, Reserved: 3*dollar + dollar*3/2, Answers: 3, Refused: 5, Budget: 50 * dollar},
		other: {Name: "Other", Reserved: 3 * dollar, Answers: 1, Budget: 10 * dollar},
		h.bot: {Name: "Bot", Spent: dollar / 2, Reserved: dollar * 3 / 2, Answers: 2, Refused: 5, Budget: 2.5 * dollar},
	}
	for who, scope := range map[string]control.Scope{"host": db.Host(), "owner": db.As(h.owner)} {
		got := spent(t, scope, h.id)
		for bot, x := range want {
			x.House, x.Day, x.Bot = h.id, first.Day, bot
			if got[bot] != x {
				t.Errorf("%s: %+v, want %+v", who, got[bot], x)
			}
		}
	}
	for _, id := range []string{h.member, h.bot} {
		if got := spent(t, db.As(id), h.id); len(got) != 0 {
			t.Errorf("%s reads %+v", id, got)
		}
	}

	today := must(db.Host().Today(ctx))(t)
	house := slices.IndexFunc(today, func(x rows.Spent) bool { return x.House == h.id })
	if house < 0 || today[house] != spent(t, db.Host(), h.id)[""] {
		t.Errorf("today %+v", today)
	}

	// A day is over: its rows stay, and the next one has the whole budget.
	c := connect(t, url)
	_ = must(c.Exec(ctx, `update spend set day = day - 1 where house_id = $1`, h.id))(t)
	must(reserve(h.bot, 3*dollar))(t)
	if got := must(db.Host().Spent(ctx, h.id, 2))(t); len(got) != 5 || !got[0].Day.After(got[4].Day) {
		t.Errorf("%+v", got)
	}
	if got := must(db.Host().Spent(ctx, h.id, 1))(t); len(got) != 2 {
		t.Errorf("%+v", got)
	}
	check(t, db.Host().DeleteHouse(ctx, h.id))
	_, err := reserve(h.bot, 1)
	is(t, err, rows.ErrReference)
	_, err = db.Reserve(ctx, rows.Spend{House: h.id, Bot: uuid.NewString(), HouseBudget: 1, BotBudget: 1})
	is(t, err, rows.ErrReference)
}

// 16 hosts make requests of up to $1 on $5 a day, at the same time, each on connections of its own; one of them dies in
// a request. Never is more paid than $5, nor more than what is settled and reserved.
func TestBudgetOfHosts(t *testing.T) {
	withinDay(t)
	const hosts, budget = 16, 5 * dollar
	db, url := openAlone(t, control.Config{})
	h := newHouse(t, db)
	bots := []string{h.bot}
	for range 3 {
		b := must(db.Host().CreateBot(t.Context(), rows.NewBot{Name: "Bot", Runtime: "pi", House: h.id}))(t)
		bots = append(bots, b.ID)
	}
	var mu sync.Mutex
	paid, refusals := int64(0), 0
	var all sync.WaitGroup
	for i := range hosts {
		own := must(control.Open(t.Context(), url, control.Config{Connections: 2}))(t)
		rnd := rand.New(rand.NewPCG(1, uint64(i)))
		all.Go(func() {
			defer own.Close()
			for n := 0; ; n++ {
				s, err := own.Reserve(t.Context(), rows.Spend{
					House: h.id, Bot: bots[rnd.IntN(len(bots))], Micros: dollar, HouseBudget: budget, BotBudget: budget,
				})
				if errors.Is(err, rows.ErrBudget) {
					mu.Lock()
					refusals++
					mu.Unlock()
					return
				} else if err != nil {
					t.Error(err)
					return
				}
				cost := 1 + rnd.Int64N(dollar) // the provider's
				mu.Lock()
				paid += cost
				above := paid > budget
				mu.Unlock()
				if above {
					t.Errorf("more than %d µ$ are paid", budget)
				}
				if i == 0 || above {
					return // the first one dies
				}
				if err := own.Settle(t.Context(), s, cost); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	house := spent(t, db.Host(), h.id)
	sum := rows.Spent{}
	for bot, x := range house {
		if bot != "" {
			sum.Spent, sum.Reserved = sum.Spent+x.Spent, sum.Reserved+x.Reserved
		}
	}
	whole := house[""]
	if whole.Spent != sum.Spent || whole.Reserved != sum.Reserved || whole.Reserved > dollar {
		t.Errorf("the house %+v, its bots %+v", whole, sum)
	}
	if whole.Spent+whole.Reserved < paid || whole.Spent+whole.Reserved > budget || paid < budget-2*dollar {
		t.Errorf("%d µ$ paid, %+v", paid, whole)
	}
	if refusals < hosts-1 {
		t.Errorf("%d refusals", refusals)
	}
}

// Whatever happens between the reserving of money and its settling, what is settled and reserved is at least what was
// paid: also where the database is killed, and nobody knows whether it has done what it was asked.
func TestReserveKilled(t *testing.T) {
	withinDay(t)
	s, url := killable.Server(t), killable.New(t)
	db, _ := openAt(t, url, control.Config{})
	h := newHouse(t, db)
	request := rows.Spend{House: h.id, Bot: h.bot, Micros: dollar, HouseBudget: 50 * dollar, BotBudget: 50 * dollar}
	var mu sync.Mutex
	paid := int64(0)
	began := make(chan bool, 4)
	ctx := t.Context()
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for n := 0; n < 12; n++ {
				made, err := db.Reserve(ctx, request)
				for rows.IsAway(err) && pause.For(ctx, 10*time.Millisecond) {
					made, err = db.Reserve(ctx, request)
				}
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				paid += dollar / 2
				mu.Unlock()
				if n == 0 {
					began <- true
				}
				if err := db.Settle(ctx, made, dollar/2); err != nil && !rows.IsAway(err) {
					t.Error(err)
				}
			}
		})
	}
	for range 4 {
		<-began
	}
	check(t, s.Kill())
	check(t, s.Restart())
	all.Wait()
	whole := spent(t, db.Host(), h.id)[""]
	if whole.Spent+whole.Reserved < paid || paid < 2*dollar {
		t.Errorf("%d µ$ paid, %+v", paid, whole)
	}
}
