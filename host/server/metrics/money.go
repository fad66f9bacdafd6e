package metrics

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"arbe.0sk.ar/runner/host/rows"
	"arbe.0sk.ar/runner/internal/pause"
)

// Times of the measurements of money.
const (
	moneyEvery = 15 * time.Second // between two reads
	moneyWait  = 5 * time.Second  // for one
)

// OfMoney registers the measurements of what houses spend, which read returns. run reads them, until its ctx is done,
// so that no scrape waits for a database: what could not be read last is left out.
func (m *Set) OfMoney(read func(context.Context) ([]rows.Spent, error)) (run func(context.Context) error) {
	var now money
	m.houses.MustRegister(&now)
	return func(ctx context.Context) error {
		for {
			now.read(ctx, read)
			if !pause.For(ctx, moneyEvery) {
				return nil
			}
		}
	}
}

// money collects what houses have spent today, as it was read last; nothing where it could not be.
type money struct{ houses atomic.Pointer[[]rows.Spent] }

func (n *money) read(ctx context.Context, read func(context.Context) ([]rows.Spent, error)) {
	ctx, cancel := context.WithTimeout(ctx, moneyWait)
	defer cancel()
	all, err := read(ctx) // which logs its error
	if err != nil {
		all = nil
	}
	n.houses.Store(&all)
}

// moneys are the measurements of one house. Its id is the operator's choice, and the number of houses is bounded.
var moneys = []struct {
	desc  *prometheus.Desc
	value func(rows.Spent) float64
}{
	{
		ofHouse("arbe_house_spent_dollars", "What answers of bots have cost today (UTC)."),
		func(s rows.Spent) float64 { return dollars(s.Spent) },
	},
	{
		ofHouse("arbe_house_reserved_dollars", "What requests that are not settled may cost: it counts as spent."),
		func(s rows.Spent) float64 { return dollars(s.Reserved) },
	},
	{
		ofHouse("arbe_house_budget_dollars", "What answers of bots may cost a day, of a house that has spent today."),
		func(s rows.Spent) float64 { return dollars(s.Budget) },
	},
	{
		ofHouse("arbe_house_refused_requests", "Requests to models that a budget has refused today."),
		func(s rows.Spent) float64 { return float64(s.Refused) },
	},
}

func ofHouse(name, help string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, []string{"house"}, nil)
}

func dollars(micros int64) float64 { return float64(micros) / 1e6 }

// Describe implements prometheus.Collector.
func (n *money) Describe(to chan<- *prometheus.Desc) {
	for _, m := range moneys {
		to <- m.desc
	}
}

// Collect implements prometheus.Collector.
func (n *money) Collect(to chan<- prometheus.Metric) {
	houses := n.houses.Load()
	if houses == nil {
		return
	}
	for _, s := range *houses {
		for _, m := range moneys {
			to <- prometheus.MustNewConstMetric(m.desc, prometheus.GaugeValue, m.value(s), s.House)
		}
	}
}
