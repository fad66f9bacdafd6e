package rows

import (
	"math"
	"time"
)

// The budgets of a day, in US dollars, where the house has no others.
const (
	UsualHouseBudget = 50
	UsualBotBudget   = 10
)

// BudgetOf returns a budget in millionths of a US dollar; the usual one where none is set.
func BudgetOf(set *float64, usual float64) int64 {
	if set != nil {
		usual = *set
	}
	return int64(math.Round(usual * 1e6))
}

// Spend is the highest cost of one request of a bot to a model. Amounts are millionths of a US dollar.
type Spend struct {
	House  string
	Bot    string
	Micros int64
	First  bool // of an answer that begins

	// What all bots of the house may cost on one day (UTC), and what the bot may.
	HouseBudget, BotBudget int64

	Day time.Time // on which it was reserved
}

// Spent has what bots have cost on one day (UTC). Amounts are millionths of a US dollar.
type Spent struct {
	House    string
	Day      time.Time
	Bot      string // "" for all bots of the house
	Name     string // of the bot
	Spent    int64
	Reserved int64 // and not settled: it counts as spent
	Answers  int   // that began
	Refused  int   // requests, as too little of a budget was left
	Budget   int64 // as it is set now
}
