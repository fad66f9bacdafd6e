package control

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"

	"github.com/jackc/pgx/v5"

	"arbe.0sk.ar/runner/host/rows"
)

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
	r = settled(r)
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
