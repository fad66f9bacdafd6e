package control

import (
	"context"
	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5"

	"arbe.0sk.ar/runner/host/rows"
	"arbe.0sk.ar/runner/host/settings"
)

// roomHouse is the house of a room, as its row has it.
type roomHouse struct {
	rows.House
	Config json.RawMessage
}

// roomMember is a member of a room, as its rows have it.
type roomMember struct {
	rows.Agent
	JoinedAt       time.Time
	Config, Member json.RawMessage
}

// Room returns a thread with its house, as its bots need them to answer. It returns rows.ErrAbsent.
//
// By settings that can't be read nobody answers: such a bot has no model, on such a thread nobody reacts, and in such a
// house nobody answers.
func (db *DB) Room(ctx context.Context, thread string) (r rows.Room, err error) {
	var h roomHouse
	var members []roomMember
	err = db.Host().tx(ctx, "read the bots of thread "+thread, func(tx pgx.Tx) error {
		if r.Thread, err = one[rows.Thread](ctx, tx, "thread", threadByID, thread); err != nil {
			return err
		}
		h, err = one[roomHouse](ctx, tx, "house",
			`select `+houseColumns+`, config from houses where id = $1`, r.Thread.House)
		if err != nil {
			return err
		}
		members, err = many[roomMember](ctx, tx, `select `+agentColumns+`, config, joined_at, member
			from agents join (
				select agent_id, joined_at, config as member from members where house_id = $1 and archived_at is null
			) as m on agent_id = id
			where archived_at is null order by joined_at, id`, r.Thread.House)
		return err
	})
	if err != nil {
		return rows.Room{}, err
	}
	r.House = h.House
	if r.HouseConfig, err = settings.House(h.Config); err == nil && h.DispatchSince != nil {
		r.Since = *h.DispatchSince
		if made := r.Thread.CreatedAt; made.After(r.Since) {
			r.Since = made
		}
	}
	config, err := settings.Thread(r.Thread.Config)
	if r.Dispatch = config.Dispatch; err != nil {
		r.Dispatch = rows.ThreadDispatch{Off: true}
	}
	r.Thread.Config = nil
	for _, m := range members {
		if m.Kind == rows.KindBot {
			r.Bots = append(r.Bots, m.bot())
		} else {
			r.Humans = append(r.Humans, m.Agent)
		}
	}
	return r, nil
}

func (m roomMember) bot() (b rows.RoomBot) {
	var err error
	b.Agent, b.JoinedAt = m.Agent, m.JoinedAt
	if b.Config, err = settings.Bot(m.Config); err == nil {
		b.Member, err = settings.Member(m.Member)
	}
	if err != nil {
		b.Config, b.Member = rows.BotConfig{}, rows.MemberConfig{}
	}
	return b
}
