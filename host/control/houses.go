package control

import (
	"context"
	"strings"

	"github.com/jackc/pgx/v5"

	"arbe.0sk.ar/runner/host/rows"
)

const houseColumns = `id, name, coalesce(default_environment_id, '') as default_environment, created_at, dispatch_since`

// CreateHouse makes a house with its first owner. The host alone may.
func (s Scope) CreateHouse(ctx context.Context, name string, owner string) (h rows.House, err error) {
	err = s.tx(ctx, "create house", func(tx pgx.Tx) error {
		h, err = one[rows.House](ctx, tx, "house",
			`insert into houses (name) values ($1) returning `+houseColumns, name)
		if err != nil {
			return err
		}
		return exec(ctx, tx, "owner",
			`insert into members (house_id, agent_id, role) values ($1, $2, $3)`, h.ID, owner, rows.RoleOwner)
	})
	return h, err
}

// Houses returns the scope's houses, by name.
func (s Scope) Houses(ctx context.Context) ([]rows.House, error) {
	return list[rows.House](ctx, s, "list houses", `select `+houseColumns+` from houses order by name, id`)
}

// HouseCounts returns how much a house has.
func (s Scope) HouseCounts(ctx context.Context, id string) (rows.HouseCounts, error) {
	return fetch[rows.HouseCounts](ctx, s, "count what is in house "+id, "house", `select
		(select count(*) from members where house_id = $1 and archived_at is null)::int as members,
		(select count(*) from environments where house_id = $1)::int as environments,
		(select count(*) from secrets where house_id = $1)::int as secrets,
		(select count(*) from sandboxes
			where house_id = $1 and (status <> 'dead' or destroyed_at is null))::int as sandboxes`, id)
}

// RenameHouse changes a house's name. Only its owners may.
func (s Scope) RenameHouse(ctx context.Context, id, name string) error {
	return s.tx(ctx, "rename house "+id, func(tx pgx.Tx) error {
		return exec(ctx, tx, "house", `update houses set name = $2 where id = $1`, id, name)
	})
}

// SetDefaultEnvironment changes the environment of a house's threads without one; "" removes it. Only owners may.
func (s Scope) SetDefaultEnvironment(ctx context.Context, id, environment string) error {
	return s.tx(ctx, "set the default environment of house "+id, func(tx pgx.Tx) error {
		if err := usable(ctx, tx, id, environment); err != nil {
			return err
		}
		return exec(ctx, tx, "house",
			`update houses set default_environment_id = nullif($2, '') where id = $1`, id, environment)
	})
}

// DeleteHouse deletes a house and all that it owns. Logs stay. Only owners may. It returns rows.ErrInUse for a house
// with boxes whose machines may exist: without their rows they would be left.
func (s Scope) DeleteHouse(ctx context.Context, id string) error {
	return s.tx(ctx, "delete house "+id, func(tx pgx.Tx) error {
		// The lock is a statement of its own: what follows sees each box that was made before. None is made after it.
		if _, err := one[rows.House](ctx, tx, "house",
			`select `+houseColumns+` from houses where id = $1 for update`, id); err != nil {
			return err
		}
		boxes, err := column[string](ctx, tx, `select coalesce(provider || ':' || provider_ref, id) from sandboxes
			where house_id = $1 and (status <> 'dead' or destroyed_at is null) order by created_at, id limit 4`, id)
		if err != nil {
			return err
		}
		if len(boxes) > 0 {
			return rows.Refuse(rows.ErrInUse, "house").Because("it has boxes (" + strings.Join(boxes, ", ") +
				"): delete them with arbe sandbox rm, or with arbe reconcile --all where no run needs them")
		}
		return exec(ctx, tx, "house", `delete from houses where id = $1`, id)
	})
}

const memberColumns = `house_id as house, agent_id::text as agent, role, coalesce(config ->> 'triggerMode', '') as mode,
	joined_at, archived_at`

// Members returns a house's members, in the order of their joining.
func (s Scope) Members(ctx context.Context, house string) ([]rows.Member, error) {
	return list[rows.Member](ctx, s, "list members of house "+house,
		`select `+memberColumns+` from members where house_id = $1 order by joined_at, agent_id`, house)
}

// AddMember makes an agent a member of a house, or a member again. Only owners may. An owner is a human.
func (s Scope) AddMember(ctx context.Context, house string, agent string, role string) (m rows.Member, err error) {
	err = s.tx(ctx, "add member to house "+house, func(tx pgx.Tx) error {
		if m, err = back(ctx, tx, house, agent, role); err != nil || m.House != "" {
			return err
		}
		m, err = one[rows.Member](ctx, tx, "member", `insert into members (house_id, agent_id, role) values ($1, $2, $3)
			returning `+memberColumns, house, agent, role)
		if err != nil {
			return err
		}
		return human(ctx, tx, agent, role) // once it is in the house, and so in this scope
	})
	return m, err
}

// back makes an archived member one again; the zero one where the house has no such one.
func back(ctx context.Context, tx pgx.Tx, house string, agent string, role string) (rows.Member, error) {
	all, err := many[rows.Member](ctx, tx, `update members set role = $3, archived_at = null
		where house_id = $1 and agent_id = $2 and archived_at is not null returning `+memberColumns, house, agent, role)
	if err != nil || len(all) == 0 {
		return rows.Member{}, err
	}
	return all[0], human(ctx, tx, agent, role)
}

// human returns rows.ErrInvalid where a bot would be an owner.
func human(ctx context.Context, tx pgx.Tx, agent string, role string) error {
	if role != rows.RoleOwner {
		return nil
	}
	kind, err := column[string](ctx, tx, `select kind from agents where id = $1`, agent)
	if err == nil && len(kind) == 1 && kind[0] == rows.KindBot {
		return rows.Refuse(rows.ErrInvalid, "the role of a bot").Because("bots are members")
	}
	return err
}

// SetRole changes a member's role. Only owners may. It returns rows.ErrLastOwner where the house would have none.
func (s Scope) SetRole(ctx context.Context, house string, agent string, role string) error {
	return s.tx(ctx, "set the role of a member of house "+house, func(tx pgx.Tx) error {
		if err := s.lock(ctx, tx, house); err != nil {
			return err
		}
		if role != rows.RoleOwner {
			if err := keeps(ctx, tx, house, agent); err != nil {
				return err
			}
		}
		if err := human(ctx, tx, agent, role); err != nil {
			return err
		}
		return exec(ctx, tx, "member", `update members set role = $3
			where house_id = $1 and agent_id = $2 and archived_at is null`, house, agent, role)
	})
}

// ArchiveMember ends a membership and keeps it for the threads that name it. Only owners may.
func (s Scope) ArchiveMember(ctx context.Context, house string, agent string) error {
	return s.leave(ctx, "archive a member of house ", house, `update members
		set archived_at = coalesce(archived_at, now()) where house_id = $1 and agent_id = $2`, agent)
}

// RemoveMember ends a membership. Only owners may. It returns rows.ErrInUse for a bot that drives a thread of the
// house, and rows.ErrLastOwner.
func (s Scope) RemoveMember(ctx context.Context, house string, agent string) error {
	return s.leave(ctx, "remove a member of house ", house,
		`delete from members where house_id = $1 and agent_id = $2`, agent)
}

// leave ends a membership by a statement. The house keeps an owner.
func (s Scope) leave(ctx context.Context, what, house, sql string, agent string) error {
	return s.tx(ctx, what+house, func(tx pgx.Tx) error {
		if err := s.lock(ctx, tx, house); err != nil {
			return err
		}
		// First: once an agent's own membership has ended, it sees no other.
		if err := keeps(ctx, tx, house, agent); err != nil {
			return err
		}
		return inUse(exec(ctx, tx, "member", sql, house, agent), "archive the member instead")
	})
}

// lock makes changes of a house's owners wait for each other. Only owners may.
func (s Scope) lock(ctx context.Context, tx pgx.Tx, house string) error {
	return exec(ctx, tx, "house", `select from houses where id = $1 for no key update`, house)
}

// keeps returns rows.ErrLastOwner where a house has no other owner than an agent, and that is one.
func keeps(ctx context.Context, tx pgx.Tx, house string, agent string) error {
	owners, err := column[bool](ctx, tx, `select agent_id = $2 from members
		where house_id = $1 and role = 'owner' and archived_at is null`, house, agent)
	if err == nil && len(owners) == 1 && owners[0] {
		return rows.Refuse(rows.ErrLastOwner, "the member").Because("make another member an owner, or delete the house")
	}
	return err
}
