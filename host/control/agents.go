package control

import (
	"context"

	"github.com/jackc/pgx/v5"

	"arbe.0sk.ar/runner/host/rows"
)

const agentColumns = `id::text, kind, coalesce(runtime, '') as runtime, coalesce(name, '') as name,
	coalesce(owner_house_id, '') as house, coalesce(agents.config ->> 'model', '') as model, created_at, archived_at`

// CreateHuman makes the agent of a login. For one that is there it changes nothing. The host alone may.
func (s Scope) CreateHuman(ctx context.Context, id string, name string) error {
	_, err := change(ctx, s, "create agent", `insert into agents (id, kind, name) values ($1, 'human', nullif($2, ''))
		on conflict (id) do nothing`, id, name)
	return err
}

// Agents returns the agents of the scope, by name: for an agent itself and those of its houses.
func (s Scope) Agents(ctx context.Context) ([]rows.Agent, error) {
	return list[rows.Agent](ctx, s, "list agents", `select `+agentColumns+` from agents order by name, id`)
}

// Agent returns an agent.
func (s Scope) Agent(ctx context.Context, id string) (rows.Agent, error) {
	return fetch[rows.Agent](ctx, s, "read agent "+id, "agent",
		`select `+agentColumns+` from agents where id = $1`, id)
}

// ArchiveAgent takes an agent out of use: it has no access any more, and drives no new thread. The host alone may.
func (s Scope) ArchiveAgent(ctx context.Context, id string) error {
	return s.tx(ctx, "archive agent "+id, func(tx pgx.Tx) error {
		return exec(ctx, tx, "agent",
			`update agents set archived_at = coalesce(archived_at, now()) where id = $1`, id)
	})
}

// Drivers returns a house's bots of a harness that are in use, in the order of their joining: the first one drives what
// names no other.
func (s Scope) Drivers(ctx context.Context, house, runtime string) (all []rows.Agent, err error) {
	err = s.tx(ctx, "list the bots of house "+house, func(tx pgx.Tx) error {
		all, err = drivers(ctx, tx, house, runtime)
		return err
	})
	return all, err
}

func drivers(ctx context.Context, tx pgx.Tx, house, runtime string) ([]rows.Agent, error) {
	return many[rows.Agent](ctx, tx, `select `+agentColumns+` from agents join (
			select agent_id, joined_at from members where house_id = $1 and archived_at is null
		) as m on agent_id = id
		where kind = 'bot' and runtime = $2 and archived_at is null order by joined_at, id`, house, runtime)
}
