package control

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"arbe.0sk.ar/runner/host/rows"
	"arbe.0sk.ar/runner/host/settings"
)

const threadHead = `id, house_id as house, coalesce(name, '') as name, pinned_at is not null as pinned,
	coalesce(parent_thread_id, '') as parent, coalesce(parent_agent_id::text, '') as parent_agent,
	coalesce(environment_id, '') as environment,
	coalesce(sandbox_id, '') as sandbox, coalesce(agent_id::text, '') as agent, tags, status,
	coalesce(claimed_run, '') as claimed_run, launch_after is not null as waits, created_at, updated_at`

// Columns of one thread, and of a list: without configs, which may be large.
const (
	threadColumns = threadHead + `, config`
	listedThread  = threadHead + `, null::jsonb as config`
	threadByID    = `select ` + threadColumns + ` from threads where id = $1`
)

// CreateThread makes a thread's row. The stream is made by its first entry.
func (s Scope) CreateThread(ctx context.Context, n rows.NewThread) (t rows.Thread, err error) {
	status := rows.ThreadOpen
	if n.Agent != "" {
		status = rows.ThreadIdle
	}
	if n.Tags == nil {
		n.Tags = []string{}
	}
	if n.Config == nil {
		n.Config = json.RawMessage("{}")
	}
	if _, err := settings.Thread(n.Config); err != nil {
		return t, err
	}
	err = s.tx(ctx, "create thread", func(tx pgx.Tx) error {
		if err := usable(ctx, tx, n.House, n.Environment); err != nil {
			return err
		}
		if err := isBot(ctx, tx, n.House, n.Agent, "the driving agent"); err != nil {
			return err
		}
		if err := isBot(ctx, tx, n.House, n.ParentAgent, "the parent agent"); err != nil {
			return err
		}
		config, err := answering(n.Config, n.ParentAgent)
		if err != nil {
			return err
		}
		t, err = one[rows.Thread](ctx, tx, "thread", `
			insert into threads (id, stream_id, house_id, name, pinned_at, parent_thread_id, environment_id, sandbox_id,
				agent_id, tags, config, status, parent_agent_id)
			select i, i, $2, nullif($3, ''), case when $4 then now() end, nullif($5, ''), nullif($6, ''),
				nullif($7, ''), nullif($8, '')::uuid, $9, $10, $11, nullif($12, '')::uuid
			from (select coalesce(nullif($1, ''), generate_short_id()) as i) as new
			returning `+threadColumns,
			n.ID, n.House, n.Name, n.Pinned, n.Parent, n.Environment, n.Sandbox, n.Agent, n.Tags,
			config, status, n.ParentAgent)
		return err
	})
	return t, err
}

// answering returns a thread's config, which is settings.Thread's, in which the bot that the thread is a conversation
// with answers each chat, unless the config has another mode for it.
func answering(config json.RawMessage, bot string) (json.RawMessage, error) {
	if bot == "" {
		return config, nil
	}
	id, err := uuid.Parse(bot)
	if err != nil {
		return nil, err
	}
	c, err := settings.Thread(config)
	if err != nil {
		return nil, err
	}
	here := c.Dispatch.PerAgent[id.String()]
	here.TriggerMode = cmp.Or(here.TriggerMode, rows.ModeAlways)
	if c.Dispatch.PerAgent == nil {
		c.Dispatch.PerAgent = map[string]rows.Reacting{}
	}
	c.Dispatch.PerAgent[id.String()] = here
	var all map[string]json.RawMessage
	if err := json.Unmarshal(config, &all); err != nil {
		return nil, err
	}
	if all["dispatch"], err = json.Marshal(c.Dispatch); err != nil {
		return nil, err
	}
	return json.Marshal(all)
}

// isBot returns an error where an agent is no bot of the house, or out of use, and nil for "". thing names it.
func isBot(ctx context.Context, tx pgx.Tx, house, agent, thing string) error {
	if agent == "" {
		return nil
	}
	if _, err := uuid.Parse(agent); err != nil {
		return rows.Refuse(rows.ErrInvalid, thing).Because("its id is no UUID")
	}
	var kind string
	var archived bool
	err := tx.QueryRow(ctx, `select a.kind, a.archived_at is not null or m.archived_at is not null
		from members m join agents a on a.id = m.agent_id where m.house_id = $1 and m.agent_id = $2`, house, agent).
		Scan(&kind, &archived)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return rows.Refuse(rows.ErrReference, thing+": a member of the house")
	case err != nil:
		return err
	case kind != rows.KindBot:
		return rows.Refuse(rows.ErrInvalid, thing).Because("it is no bot")
	case archived:
		return rows.Refuse(rows.ErrArchived, thing)
	}
	return nil
}

// Thread returns a thread.
func (s Scope) Thread(ctx context.Context, id string) (rows.Thread, error) {
	return fetch[rows.Thread](ctx, s, "read thread "+id, "thread", threadByID, id)
}

// Threads returns a page of threads, the newest first.
func (s Scope) Threads(ctx context.Context, q rows.Query) ([]rows.Thread, error) {
	if q.Limit <= 0 {
		q.Limit = 50
	}
	q.Limit = min(q.Limit, 200)
	sql, args := `select `+listedThread+` from threads where true`, []any{}
	and := func(condition string, arg any) {
		args = append(args, arg)
		sql += fmt.Sprintf(" and "+condition, len(args))
	}
	if q.IDs != nil {
		and("id = any ($%d)", q.IDs)
	}
	if q.House != "" {
		and("house_id = $%d", q.House)
	}
	if len(q.Statuses) > 0 {
		statuses := q.Statuses
		if slices.Contains(statuses, rows.ThreadIdle) { // a chat has no run
			statuses = slices.Concat(statuses, []string{rows.ThreadOpen, rows.ThreadClosed})
		}
		and("status = any ($%d)", statuses)
	}
	if len(q.Tags) > 0 {
		and("tags @> $%d", q.Tags)
	}
	if q.Pinned {
		sql += " and pinned_at is not null"
	}
	if q.Parent != "" {
		and("parent_thread_id = $%d", q.Parent)
	}
	if q.Name != "" {
		and("strpos(lower(name), lower($%d)) > 0", q.Name)
	}
	if q.After.ID != "" {
		args = append(args, q.After.CreatedAt)
		and(fmt.Sprintf("(created_at, id) < ($%d, $%%d)", len(args)), q.After.ID)
	}
	args = append(args, q.Limit)
	sql += fmt.Sprintf(" order by created_at desc, id desc limit $%d", len(args))
	return list[rows.Thread](ctx, s, "list threads", sql, args...)
}

// ChangeThread changes a thread.
func (s Scope) ChangeThread(ctx context.Context, id string, c rows.ThreadChange) (t rows.Thread, err error) {
	if c.Config != nil {
		if _, err := settings.Thread(c.Config); err != nil {
			return t, err
		}
	}
	var status *string
	if c.Closed != nil {
		status = new(string)
		if *status = rows.ThreadOpen; *c.Closed {
			*status = rows.ThreadClosed
		}
	}
	var add, remove []string // null where the tags stay
	if len(c.AddTags)+len(c.RemoveTags) > 0 {
		add, remove = append([]string{}, c.AddTags...), append([]string{}, c.RemoveTags...)
	}
	err = s.tx(ctx, "change thread "+id, func(tx pgx.Tx) error {
		if c.Environment != nil && *c.Environment != "" {
			was, err := one[rows.Thread](ctx, tx, "thread", threadByID, id)
			if err == nil {
				err = usable(ctx, tx, was.House, *c.Environment)
			}
			if err != nil {
				return err
			}
		}
		t, err = one[rows.Thread](ctx, tx, "thread", `
			update threads set
				name = case when $2::text is null then name else nullif($2, '') end,
				pinned_at = case when $3::boolean is null then pinned_at when $3 then coalesce(pinned_at, now()) end,
				tags = case when $7::text[] is null then coalesce($4, tags) else array(
					select tag from unnest(coalesce($4, tags) || $7) with ordinality as all_tags (tag, n)
					where tag <> all ($8::text[]) group by tag order by min(n)) end,
				status = coalesce($5, status),
				environment_id = case when $6::text is null then environment_id else nullif($6, '') end,
				config = coalesce($9, config)
			where id = $1 returning `+threadColumns,
			id, c.Name, c.Pinned, c.Tags, status, c.Environment, add, remove, c.Config)
		return err
	})
	return t, err
}

// DeleteThread deletes the rows of a thread and its children. It returns rows.ErrRunning while one of them runs, and
// while a host launches the task of one.
//
// logs, where it is not nil, gets the ids of all of them while their rows are locked: no run claims one, and none gets
// another child. Where it fails all rows stay. It may be called several times.
func (s Scope) DeleteThread(ctx context.Context, id string, logs func(ctx context.Context, ids []string) error) error {
	return s.tx(ctx, "delete thread "+id, func(tx pgx.Tx) error {
		ids, err := lockTree(ctx, tx, id)
		if err == nil && logs != nil {
			err = logs(ctx, ids)
		}
		if err != nil {
			return err
		}
		return exec(ctx, tx, "thread", `delete from threads where id = $1`, id)
	})
}

// lockTree locks the rows of a thread and of all below it, and returns their ids. It returns rows.ErrAbsent
// and rows.ErrRunning.
func lockTree(ctx context.Context, tx pgx.Tx, id string) (ids []string, err error) {
	for {
		known := len(ids)
		// A child's row locks its parent's: once all are locked, none gets another one.
		ids, err = column[string](ctx, tx, `
			with recursive below as (
				select id from threads where id = $1
				union all select t.id from threads t join below b on t.parent_thread_id = b.id
			)
			select id from below order by id`, id)
		switch {
		case err != nil:
			return nil, err
		case len(ids) == 0:
			return nil, rows.Refuse(rows.ErrAbsent, "thread")
		case len(ids) == known:
			return ids, nil
		}
		running, err := column[bool](ctx, tx, `
			select status = 'running' or launch_host is not null and launch_after > now()
			from threads where id = any ($1) order by id for update`, ids)
		if err != nil {
			return nil, err
		}
		if slices.Contains(running, true) {
			return nil, rows.Refuse(rows.ErrRunning, "thread "+id+" or a child of it")
		}
	}
}
