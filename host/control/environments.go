package control

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"slices"

	"github.com/jackc/pgx/v5"

	"arbe.0sk.ar/runner/host/rows"
)

const (
	environmentHead    = `id, house_id as house, name, runtime, secret_bindings as bindings, created_at, archived_at`
	environmentColumns = environmentHead + `, config`
	environmentByID    = `select ` + environmentColumns + ` from environments where id = $1`
)

// CreateEnvironment makes an environment.
func (s Scope) CreateEnvironment(ctx context.Context, house string, r rows.Recipe) (e rows.Environment, err error) {
	err = s.tx(ctx, "create environment", func(tx pgx.Tx) error {
		e, err = insertEnvironment(ctx, tx, house, r.Settled())
		return err
	})
	return e, err
}

// insertEnvironment makes an environment of a settled recipe.
func insertEnvironment(ctx context.Context, tx pgx.Tx, house string, r rows.Recipe) (rows.Environment, error) {
	return one[rows.Environment](ctx, tx, "environment", `
		insert into environments (house_id, name, runtime, config, secret_bindings) values ($1, $2, $3, $4, $5)
		returning `+environmentColumns, house, r.Name, r.Runtime, r.Config, r.Bindings)
}

// ChangeEnvironment changes an environment. Its sandboxes stay as they are.
func (s Scope) ChangeEnvironment(
	ctx context.Context, id string, c rows.EnvironmentChange,
) (e rows.Environment, err error) {
	err = s.tx(ctx, "change environment "+id, func(tx pgx.Tx) error {
		e, err = one[rows.Environment](ctx, tx, "environment", environmentByID+` for no key update`, id)
		if err != nil {
			return err
		}
		r := e.Recipe
		if c.Recipe != nil {
			if err := c.Recipe(&r); err != nil {
				return err
			}
		}
		r = r.Settled()
		e, err = one[rows.Environment](ctx, tx, "environment", `
			update environments set name = $2, runtime = $3, config = $4, secret_bindings = $5,
				archived_at = case when $6::boolean is null then archived_at
					when $6 then coalesce(archived_at, now()) end
			where id = $1 returning `+environmentColumns, id, r.Name, r.Runtime, r.Config, r.Bindings, c.Archived)
		return err
	})
	return e, err
}

// mostListed bounds the environments, and the secrets, of a list.
const mostListed = 1000

// Environments returns a house's environments, by name, archived ones included, at most mostListed. They are without
// their configs, which may be large.
func (s Scope) Environments(ctx context.Context, house string) ([]rows.Environment, error) {
	return list[rows.Environment](ctx, s, "list environments of house "+house,
		`select `+environmentHead+`, null::jsonb as config from environments
		where house_id = $1 order by name, id limit $2`, house, mostListed)
}

// Environment returns an environment.
func (s Scope) Environment(ctx context.Context, id string) (rows.Environment, error) {
	return fetch[rows.Environment](ctx, s, "read environment "+id, "environment", environmentByID, id)
}

// Binding returns the environments of a house that inject a secret, by name.
func (s Scope) Binding(ctx context.Context, house, secret string) ([]rows.Environment, error) {
	named := []map[string]string{{"name": secret}}
	return list[rows.Environment](ctx, s, "list environments of house "+house,
		`select `+environmentColumns+` from environments
		where house_id = $1 and secret_bindings @> $2 order by name, id`, house, named)
}

// ArchiveEnvironment takes an environment out of use: no new thread or sandbox may have it. Where it is its house's
// default, what needs that is refused with rows.ErrArchived until the house has another one.
func (s Scope) ArchiveEnvironment(ctx context.Context, id string) error {
	return s.tx(ctx, "archive environment "+id, func(tx pgx.Tx) error {
		return exec(ctx, tx, "environment",
			`update environments set archived_at = coalesce(archived_at, now()) where id = $1`, id)
	})
}

// DeleteEnvironment deletes an environment. It returns rows.ErrInUse where a thread or a sandbox has it, even a dead
// one.
func (s Scope) DeleteEnvironment(ctx context.Context, id string) error {
	return s.tx(ctx, "delete environment "+id, func(tx pgx.Tx) error {
		err := exec(ctx, tx, "environment", `delete from environments where id = $1`, id)
		return inUse(err, "archive the environment instead")
	})
}

// RemoveEnvironment deletes an environment, or archives one that a thread or a sandbox has.
func (s Scope) RemoveEnvironment(ctx context.Context, id string) (archived bool, err error) {
	err = s.DeleteEnvironment(ctx, id)
	if errors.Is(err, rows.ErrInUse) {
		return true, s.ArchiveEnvironment(ctx, id)
	}
	return false, err
}

// usable returns rows.ErrArchived where an environment of a house is out of use. "" is usable. One that is not there is
// left to the constraint.
func usable(ctx context.Context, tx pgx.Tx, house, id string) error {
	archived, err := column[bool](ctx, tx,
		`select archived_at is not null from environments where house_id = $1 and id = $2 for share`, house, id)
	if err == nil && len(archived) == 1 && archived[0] {
		return rows.Refuse(rows.ErrArchived, "the environment")
	}
	return err
}

// Results of ApplyEnvironment.
const (
	Created   = "created"
	Changed   = "changed"
	Unchanged = "unchanged"
)

// ApplyEnvironment makes the environment of a house that has the recipe's name, or replaces its recipe, and returns
// what it did. Archived environments don't count. It returns rows.ErrTaken where several have the name. Of callers at
// once with one name one makes it.
func (s Scope) ApplyEnvironment(
	ctx context.Context, house string, r rows.Recipe,
) (e rows.Environment, did string, err error) {
	r = r.Settled()
	err = s.tx(ctx, "apply environment "+r.Name, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `select pg_advisory_xact_lock(hashtextextended($1, 0))`,
			"environment "+house+" "+r.Name); err != nil {
			return err
		}
		all, err := many[rows.Environment](ctx, tx, `select `+environmentColumns+` from environments
			where house_id = $1 and name = $2 and archived_at is null order by id for update`, house, r.Name)
		if err != nil {
			return err
		}
		switch {
		case len(all) > 1:
			return rows.Refuse(rows.ErrTaken, "the name").
				Because("environments " + all[0].ID + " and " + all[1].ID + " have it")
		case len(all) == 0:
			did = Created
			e, err = insertEnvironment(ctx, tx, house, r)
			return err
		}
		if did, e = Unchanged, all[0]; has(e, r) {
			return nil
		}
		did = Changed
		e, err = one[rows.Environment](ctx, tx, "environment", `
			update environments set runtime = $2, config = $3, secret_bindings = $4 where id = $1
			returning `+environmentColumns, e.ID, r.Runtime, r.Config, r.Bindings)
		return err
	})
	return e, did, err
}

// has reports whether an environment has a recipe.
func has(e rows.Environment, r rows.Recipe) bool {
	return e.Runtime == r.Runtime && slices.Equal(e.Bindings, r.Bindings) && equalJSON(e.Config, r.Config)
}

// equalJSON reports whether two documents are equal, whatever their spaces and the order of keys.
func equalJSON(a, b json.RawMessage) bool {
	settled := func(raw json.RawMessage) []byte {
		var v any
		if json.Unmarshal(raw, &v) != nil {
			return raw
		}
		out, err := json.Marshal(v)
		if err != nil {
			return raw
		}
		return out
	}
	return bytes.Equal(settled(a), settled(b))
}
