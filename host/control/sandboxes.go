package control

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"arbe.0sk.ar/runner/host/rows"
)

const sandboxColumns = `id, house_id as house, environment_id as environment, provider,
	coalesce(provider_ref, '') as ref, ephemeral, status, pending_until, created_at, destroyed_at`

const boxByID = `select ` + sandboxColumns + ` from sandboxes where id = $1`

// mostRaces bounds how often a transaction looks again at a thread whose sandbox changes under it.
const mostRaces = 10

var errRaced = errors.New("the thread's sandbox has changed")

// raced runs f again while it returns errRaced.
func raced(f func() error) error {
	for range mostRaces {
		if err := f(); !errors.Is(err, errRaced) {
			return err
		}
	}
	return fmt.Errorf("%w: the thread's sandbox changes all the time", rows.ErrBusy)
}

// makeBox makes the row of a thread's sandbox, in place of a dead one or of none.
func makeBox(ctx context.Context, tx pgx.Tx, dead *rows.Box, o rows.BoxOrder) (b rows.Box, err error) {
	e, err := recipe(ctx, tx, o.Thread, o.Environment, dead)
	if err != nil {
		return b, err
	}
	return one[rows.Box](ctx, tx, "sandbox", `
		insert into sandboxes (house_id, environment_id, provider, ephemeral, pending_until, maker)
		values ($1, $2, $3, $4, now() + $5::interval, $6) returning `+sandboxColumns,
		e.House, e.ID, e.Runtime, o.Ephemeral, rows.MakeTimeout, o.Maker)
}

// chosen returns the id of the environment of a thread's next sandbox: the wanted one, the dead sandbox's, the
// thread's, its house's default; "" for none.
func chosen(ctx context.Context, tx pgx.Tx, thread, wanted string, dead *rows.Box) (string, error) {
	if dead != nil {
		wanted = cmp.Or(wanted, dead.Environment)
	}
	ids, err := column[string](ctx, tx, `
		select coalesce(nullif($2, ''), t.environment_id, h.default_environment_id, '')
		from threads t join houses h on h.id = t.house_id where t.id = $1`, thread, wanted)
	if err != nil || len(ids) == 0 {
		return "", err
	}
	return ids[0], nil
}

// recipe returns the environment of a thread's next sandbox. It returns rows.ErrNoRecipe and rows.ErrArchived.
func recipe(ctx context.Context, tx pgx.Tx, thread, wanted string, dead *rows.Box) (e rows.Environment, err error) {
	id, err := chosen(ctx, tx, thread, wanted, dead)
	if err == nil && id == "" {
		err = rows.Refuse(rows.ErrNoRecipe, "thread "+thread)
	}
	if err != nil {
		return e, err
	}
	e, err = one[rows.Environment](ctx, tx, "environment", environmentByID+` for share`, id)
	if err == nil && e.ArchivedAt != nil {
		err = rows.Refuse(rows.ErrArchived, "environment "+e.ID)
	}
	return e, err
}

// Place returns where the next run or command of a thread goes: into its sandbox, or into a new one by the environment
// that is wanted, else by the one that Obtain takes. What is archived is the caller's to refuse.
func (s Scope) Place(ctx context.Context, thread, wanted string) (p rows.Place, err error) {
	err = s.tx(ctx, "read the place of thread "+thread, func(tx pgx.Tx) error {
		t, err := one[rows.Thread](ctx, tx, "thread", threadByID, thread)
		if err != nil {
			return err
		}
		p = rows.Place{House: t.House}
		var box *rows.Box
		if t.Sandbox != "" {
			b, err := one[rows.Box](ctx, tx, "sandbox", boxByID, t.Sandbox)
			if rows.Present(err) != nil {
				return err
			} else if err == nil {
				box = &b
			}
		}
		id := ""
		if p.Live = box != nil && box.Status != rows.BoxDead; p.Live {
			p.Provider, id = box.Provider, box.Environment
		} else if id, err = chosen(ctx, tx, thread, wanted, box); err != nil || id == "" {
			return err
		}
		p.Environment, err = one[rows.Environment](ctx, tx, "environment", environmentByID, id)
		if p.Provider = cmp.Or(p.Provider, p.Environment.Runtime); err != nil {
			return err
		}
		return hours(ctx, tx, &p, box)
	})
	return p, err
}

// hours sets the hours that a house's boxes may exist, and the age of a live one. A limit that no program has written
// is the least one.
func hours(ctx context.Context, tx pgx.Tx, p *rows.Place, box *rows.Box) error {
	set, err := column[int](ctx, tx, `select case when jsonb_typeof(config->'boxHours') = 'number'
		then least(greatest(floor((config->>'boxHours')::numeric), 1), 100000) else 1 end::int
		from houses where id = $1 and config ? 'boxHours'`, p.House)
	if err != nil || len(set) == 0 {
		return err
	}
	if p.BoxHours = set[0]; !p.Live {
		return nil
	}
	age, err := column[float64](ctx, tx,
		`select extract(epoch from now() - created_at)::float8 from sandboxes where id = $1`, box.ID)
	if err == nil && len(age) > 0 {
		p.Age = time.Duration(age[0] * float64(time.Second))
	}
	return err
}

// lockBox locks a thread's sandbox, and then the thread. It returns nil where the thread has none.
func lockBox(ctx context.Context, tx pgx.Tx, thread string) (*rows.Box, error) {
	ids, err := column[*string](ctx, tx, `select sandbox_id from threads where id = $1`, thread)
	if err != nil {
		return nil, err
	}
	if len(ids) == 0 {
		return nil, rows.Refuse(rows.ErrAbsent, "thread")
	}
	var b *rows.Box
	if ids[0] != nil {
		row, err := one[rows.Box](ctx, tx, "sandbox", boxByID+` for update`, *ids[0])
		if errors.Is(err, rows.ErrAbsent) {
			return nil, errRaced // deleted since
		} else if err != nil {
			return nil, err
		}
		b = &row
	}
	now, err := column[*string](ctx, tx, `select sandbox_id from threads where id = $1 for update`, thread)
	switch {
	case err != nil:
		return nil, err
	case len(now) == 0:
		return nil, rows.Refuse(rows.ErrAbsent, "thread")
	case (now[0] == nil) != (ids[0] == nil) || now[0] != nil && *now[0] != *ids[0]:
		return nil, errRaced
	}
	return b, nil
}

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
