package control

import (
	"context"
	"strings"

	"github.com/jackc/pgx/v5"

	"arbe.0sk.ar/runner/host/rows"
)

const houseColumns = `id, name, coalesce(default_environment_id, '') as default_environment, created_at`

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
