package dispatch

import (
	"cmp"
	"strings"
	"time"

	"arbe.0sk.ar/runner/host/model/price"
	"arbe.0sk.ar/runner/host/rows"
)

// Times of a bot, where neither the thread nor the house has others.
const (
	usualDelay    = 4 * time.Second
	usualCooldown = 30 * time.Second
)

// RoomOf returns a room as bots answer in it. Of the settings of when a bot reacts, each one that the thread has goes
// before that of the house, and that one before the usual one. A bot without a model does not answer: it is off.
func RoomOf(r rows.Room) Room {
	room := Room{
		Thread: r.Thread.Name, House: r.House.Name, Off: r.Dispatch.Off,
		Closed: r.Thread.Status == rows.ThreadClosed, Driver: r.Thread.Agent, HouseID: r.House.ID,
		Environment: r.Environment(), Prices: prices(r.HouseConfig.Dispatch),
	}
	room.GateProvider, room.GateModel, _ = strings.Cut(r.HouseConfig.Dispatch.GateModel, "/")
	for _, h := range r.Humans {
		room.Humans = append(room.Humans, Member{ID: h.ID, Name: h.Name})
	}
	for _, b := range r.Bots {
		here := r.Dispatch.PerAgent[b.ID]
		bot := Bot{
			ID: b.ID, Name: b.Name, Joined: b.JoinedAt, Instructions: b.Config.Instructions,
			Tools:        b.Member.Tools,
			Mode:         cmp.Or(here.TriggerMode, b.Member.TriggerMode, rows.UsualMode),
			AmbientDelay: span(usualDelay, here.AmbientDelayMs, b.Member.AmbientDelayMs),
			Cooldown:     span(usualCooldown, here.CooldownMs, b.Member.CooldownMs),
			Caps:         b.Member.Caps.Or(r.HouseConfig.Dispatch.Caps),
		}
		if bot.Provider, bot.Model, _ = strings.Cut(b.Config.Model, "/"); bot.Model == "" {
			bot.Mode = rows.ModeOff
		}
		room.Bots = append(room.Bots, bot)
	}
	return room
}

// span returns the first of the times in milliseconds that is there; otherwise the usual one.
func span(usual time.Duration, ms ...*int64) time.Duration {
	if set := cmp.Or(ms...); set != nil {
		return time.Duration(*set) * time.Millisecond
	}
	return usual
}

// prices returns a house's own prices, by PROVIDER/NAME.
func prices(d rows.HouseDispatch) map[string]price.Price {
	var all map[string]price.Price
	for provider, access := range d.Models {
		for name, p := range access.Prices {
			if p.Input == nil || p.Output == nil {
				continue // settings refuse it
			}
			if all == nil {
				all = map[string]price.Price{}
			}
			all[provider+"/"+name] = price.Price{
				Input: price.Micros(*p.Input), Output: price.Micros(*p.Output),
				CacheRead:  price.Micros(*cmp.Or(p.CacheRead, p.Input)),
				CacheWrite: price.Micros(*cmp.Or(p.CacheWrite, p.Input)),
			}
		}
	}
	return all
}
