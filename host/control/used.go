package control

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"arbe.0sk.ar/runner/host/rows"
)

// mostThreads bounds the threads of a sandbox in a list.
const mostThreads = 100

// UsedSandboxes returns the sandboxes of a house ("": of all houses of the scope) that are not dead, or whose machine
// is not known to be gone, and those with the ids named, whatever their house and state. The newest come first, at most
// mostBoxes of them.
func (s Scope) UsedSandboxes(ctx context.Context, house string, named []string) (all []rows.UsedBox, err error) {
	err = s.tx(ctx, "list sandboxes", func(tx pgx.Tx) error {
		if all, err = usedSandboxes(ctx, tx, house, named); err != nil {
			return err
		}
		at := make(map[string]*rows.UsedBox, len(all))
		ids := make([]string, len(all))
		for i := range all {
			ids[i], at[all[i].ID] = all[i].ID, &all[i]
		}
		if err := addThreads(ctx, tx, ids, at); err != nil {
			return err
		}
		return addHolds(ctx, tx, ids, at)
	})
	return all, err
}

// usedSandboxes returns the sandboxes of a list, without what uses them.
func usedSandboxes(ctx context.Context, tx pgx.Tx, house string, named []string) ([]rows.UsedBox, error) {
	type row struct {
		rows.Box
		HouseName       string
		EnvironmentName string
	}
	found, err := many[row](ctx, tx, `
		select b.*, h.name as house_name, e.name as environment_name
		from (select `+sandboxColumns+` from sandboxes) b
		join houses h on h.id = b.house join environments e on e.id = b.environment
		where b.id = any ($2) or ($1 = '' or b.house = $1) and (b.status <> 'dead' or b.destroyed_at is null)
		order by b.created_at desc, b.id limit $3`, house, named, mostBoxes)
	all := make([]rows.UsedBox, len(found))
	for i, r := range found {
		all[i] = rows.UsedBox{Box: r.Box, HouseName: r.HouseName, EnvironmentName: r.EnvironmentName}
	}
	return all, err
}

// addThreads adds the threads that point at sandboxes.
func addThreads(ctx context.Context, tx pgx.Tx, ids []string, at map[string]*rows.UsedBox) error {
	type row struct {
		Sandbox string
		ID      string
		Status  string
		All     int
	}
	found, err := many[row](ctx, tx, `
		select sandbox, id, status, "all" from (
			select sandbox_id as sandbox, id, status, count(*) over (partition by sandbox_id)::int as "all",
				row_number() over (partition by sandbox_id order by status = 'running' desc, created_at desc, id) as n
			from threads where sandbox_id = any ($1)) t
		where n <= $2 order by sandbox, n`, ids, mostThreads)
	if err != nil {
		return fmt.Errorf("their threads: %w", err)
	}
	for _, r := range found {
		b := at[r.Sandbox]
		b.Threads, b.ThreadCount = append(b.Threads, rows.BoxThread{ID: r.ID, Status: r.Status}), r.All
	}
	return nil
}

// addHolds adds the holds of sandboxes that have not expired, by the database's clock.
func addHolds(ctx context.Context, tx pgx.Tx, ids []string, at map[string]*rows.UsedBox) error {
	type row struct {
		Sandbox string
		holdRow
	}
	found, err := many[row](ctx, tx, `select sandbox_id as sandbox, `+holdColumns+` from sandbox_holds
		where sandbox_id = any ($1) and coalesce(expires_at > clock_timestamp(), true)
		order by sandbox_id, at, holder`, ids)
	if err != nil {
		return fmt.Errorf("their holds: %w", err)
	}
	for _, r := range found {
		b := at[r.Sandbox]
		b.Holds = append(b.Holds, r.hold())
	}
	return nil
}
