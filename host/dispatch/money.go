package dispatch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"arbe.0sk.ar/runner/host/model"
	"arbe.0sk.ar/runner/host/model/price"
	"arbe.0sk.ar/runner/thread"
)

// Spend has the highest cost of one request to a model.
type Spend struct {
	Thread string
	Bot    string
	Micros int64 // millionths of a dollar
	First  bool  // of an answer: no other one of it is
}

// Unpaid is the error of a request that nobody pays for: its reaction ends as refused. Its text is for people.
type Unpaid struct{ Message string }

// Error implements error.
func (u *Unpaid) Error() string { return u.Message }

// Used has the tokens and the cost of requests to models.
type Used struct {
	model.Usage
	Cost    int64 // millionths of a dollar, of those whose price is known
	Unknown bool  // there is another one
}

func (u Used) plus(v Used) Used {
	u.Input += v.Input
	u.Output += v.Output
	u.CacheRead += v.CacheRead
	u.CacheWrite += v.CacheWrite
	u.Cost += v.Cost
	u.Unknown = u.Unknown || v.Unknown
	return u
}

// tokens returns how many tokens were read and written.
func (u Used) tokens() int64 { return u.Input + u.Output + u.CacheRead + u.CacheWrite }

// wire returns the usage and the cost in dollars as entries have them: no usage where nothing was used, and no cost
// where it is not known.
func (u Used) wire() (usage json.RawMessage, dollars *float64) {
	if u == (Used{}) {
		return nil, nil
	}
	if !u.Unknown {
		dollars = new(price.Dollars(u.Cost))
	}
	return thread.Marshal(thread.Usage{
		Input: float64(u.Input), Output: float64(u.Output), CacheRead: float64(u.CacheRead),
		CacheWrite: float64(u.CacheWrite), TotalTokens: float64(u.tokens()),
	}), dollars
}

// usedOf returns what a round has used.
func usedOf(p thread.Round) (u Used) {
	if json.Unmarshal(p.Usage, &u.Usage) != nil {
		return Used{}
	}
	if p.Cost != nil {
		u.Cost = price.Micros(*p.Cost)
	} else {
		u.Unknown = true
	}
	return u
}

// spent returns what the reaction's rounds have used.
func (j *Journal) spent() (sum Used) {
	for _, r := range j.Rounds {
		sum = sum.plus(r.Used)
	}
	return sum
}

// bill has the price of a request, and its cost at the most.
type bill struct {
	price   price.Price
	known   bool // the price is
	context int64
	most    int64 // millionths of a dollar
}

// billOf returns the bill of a request. before is how many tokens the context of the reaction's last request had.
func billOf(q model.Request, provider string, room Room, before int64) (b bill) {
	if b.price, b.known = room.Prices[provider+"/"+q.Model]; !b.known {
		b.price, b.known = price.Known(provider, q.Model)
	}
	size := len(q.System) + sizeOf(q.Messages)
	for _, t := range q.Tools {
		size += len(t.Name) + len(t.Description) + len(t.Schema)
	}
	b.context = max(int64(size/perToken), before)
	if b.known {
		b.most = b.price.Most(b.context, int64(q.MaxTokens))
	}
	return b
}

// used returns what a request has used, of whose reply a number of bytes came. It is sure unless the provider may have
// counted more than it has reported: then it is an estimate.
func (b bill) used(reply model.Reply, err error, came int) (u Used, sure bool) {
	u.Usage = reply.Usage
	failed, is := errors.AsType[*model.Error](err)
	switch {
	case err == nil && u.tokens() > 0:
		sure = true
	case is && (failed.Unsent || failed.Status >= 400): // it was refused, and is not paid for
		return Used{}, true
	default:
		if u.tokens() == 0 {
			u.Input = b.context
		}
		u.Output = max(u.Output, int64(came/perToken))
	}
	u.Cost, u.Unknown = b.price.Cost(u.Usage), !b.known
	return u, sure
}

// send makes one request, and pays for it: what it may cost is reserved before. What the provider may have counted
// without a report stays reserved.
func (r *reaction) send(
	ctx context.Context, api model.Model, q model.Request, b bill, j Journal, f func(model.Event),
) (model.Reply, error) {
	settle := func(context.Context, int64) {}
	if b.known && r.Reserve != nil {
		var err error
		first := q.Must == "" && !r.asked && j.Claim+len(j.Rounds) == 0 // a gate is no answer
		s := Spend{Thread: r.worker.id, Bot: j.Bot, Micros: b.most, First: first}
		if settle, err = r.Reserve(ctx, s); err != nil {
			return model.Reply{}, err
		}
	}
	r.asked = r.asked || q.Must == ""
	came := 0
	reply, err := api.Stream(ctx, q, func(e model.Event) {
		came += len(e.Text)
		f(e)
	})
	u, sure := b.used(reply, err, came)
	r.used = r.used.plus(u)
	if sure {
		settle(context.WithoutCancel(ctx), u.Cost)
	}
	if err == nil {
		r.context = u.tokens() - u.Output
	}
	return reply, err
}

// paid returns what is left of the reaction's cap of cost for a request; an *Unpaid where nothing is.
func (r *reaction) paid(j Journal, b bill) (left int64, err error) {
	most := j.caps().Cost
	if left = most - j.spent().plus(r.used).Cost; b.known && left <= 0 {
		return 0, &Unpaid{fmt.Sprintf("the limit of an answer, $%.2f, is used up", price.Dollars(most))}
	}
	return left, nil
}

// end returns the end of the reaction now, with what was used since its last round.
func (r *reaction) end(j Journal, outcome, class, message string) thread.Entry {
	j.rest = r.used
	return r.board.endOf(j, outcome, class, message)
}
