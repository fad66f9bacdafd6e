package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// Statuses of threads: of chats the first two, of driven ones the others, as the log has them.
const (
	ThreadOpen      = "open"
	ThreadClosed    = "closed"
	ThreadIdle      = "idle"
	ThreadRunning   = "running"
	ThreadCompleted = "completed"
	ThreadFailed    = "failed"
	ThreadCancelled = "cancelled"
)

// Thread is a thread's row.
type Thread struct {
	ID          string
	House       string
	Stream      string
	Name        string
	PinnedAt    *time.Time // nil: not pinned
	Parent      string     // thread
	ParentAgent *uuid.UUID // that it is addressed to
	Environment string
	Sandbox     string
	Agent       *uuid.UUID // the bot that drives it; nil: a chat
	Tags        []string
	Config      json.RawMessage // nil in a list
	Status      string
	ClaimedRun  string // the run that has it, until the log knows that
	ClaimedAt   *time.Time
	Waits       bool // its task is not launched yet
	CreatedAt   time.Time
	UpdatedAt   time.Time
}

const threadHead = `id, house_id as house, stream_id as stream, coalesce(name, '') as name, pinned_at,
	coalesce(parent_thread_id, '') as parent, parent_agent_id as parent_agent,
	coalesce(environment_id, '') as environment, coalesce(sandbox_id, '') as sandbox, agent_id as agent, tags,
	status, coalesce(claimed_run, '') as claimed_run, claimed_at, launch_after is not null as waits, created_at,
	updated_at`

// Columns of one thread, and of a list: without configs, which may be large.
const (
	threadColumns = threadHead + `, config`
	listedThread  = threadHead + `, null::jsonb as config`
)

// NewThread is what a caller chooses of a new thread.
type NewThread struct {
	ID          string // "": a new one. It is the stream's, too
	House       string
	Name        string
	Pinned      bool
	Parent      string    // thread of the house
	ParentAgent uuid.UUID // that it is addressed to; the zero one: none
	Environment string
	Sandbox     string    // of the house, to share; "": one of its own, once it needs one
	Agent       uuid.UUID // the bot that drives it; the zero one: a chat
	Tags        []string
	Config      json.RawMessage // a JSON object; nil: an empty one
}

// CreateThread makes a thread's row. The stream is made by its first entry.
func (s Scope) CreateThread(ctx context.Context, n NewThread) (t Thread, err error) {
	status := ThreadOpen
	if n.Agent != uuid.Nil {
		status = ThreadIdle
	}
	if n.Tags == nil {
		n.Tags = []string{}
	}
	if n.Config == nil {
		n.Config = json.RawMessage("{}")
	}
	err = s.tx(ctx, "create thread", func(tx pgx.Tx) error {
		if err := usable(ctx, tx, n.House, n.Environment); err != nil {
			return err
		}
		if err := drives(ctx, tx, n.House, n.Agent); err != nil {
			return err
		}
		t, err = one[Thread](ctx, tx, "thread", `
			insert into threads (id, stream_id, house_id, name, pinned_at, parent_thread_id, parent_agent_id,
				environment_id, sandbox_id, agent_id, tags, config, status)
			select i, i, $2, nullif($3, ''), case when $4 then now() end, nullif($5, ''), $6, nullif($7, ''),
				nullif($8, ''), $9, $10, $11, $12
			from (select coalesce(nullif($1, ''), generate_short_id()) as i) as new
			returning `+threadColumns,
			n.ID, n.House, n.Name, n.Pinned, n.Parent, orNull(n.ParentAgent), n.Environment, n.Sandbox, orNull(n.Agent),
			n.Tags, n.Config, status)
		return err
	})
	return t, err
}

// orNull returns nil for the zero id.
func orNull(id uuid.UUID) *uuid.UUID {
	if id == uuid.Nil {
		return nil
	}
	return &id
}

// drives returns an error where an agent is no bot, or out of use. One that is no member is left to the constraint.
func drives(ctx context.Context, tx pgx.Tx, house string, agent uuid.UUID) error {
	if agent == uuid.Nil {
		return nil
	}
	var kind string
	var archived bool
	err := tx.QueryRow(ctx, `select a.kind, a.archived_at is not null or m.archived_at is not null
		from members m join agents a on a.id = m.agent_id where m.house_id = $1 and m.agent_id = $2`, house, agent).
		Scan(&kind, &archived)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return nil
	case err != nil:
		return err
	case kind != KindBot:
		return fmt.Errorf("the driving agent: %w: it is no bot", ErrInvalid)
	case archived:
		return fmt.Errorf("the driving agent: %w", ErrArchived)
	}
	return nil
}

// Thread returns a thread.
func (s Scope) Thread(ctx context.Context, id string) (t Thread, err error) {
	err = s.tx(ctx, "read thread "+id, func(tx pgx.Tx) error {
		t, err = one[Thread](ctx, tx, "thread", `select `+threadColumns+` from threads where id = $1`, id)
		return err
	})
	return t, err
}

// Query names threads of a list.
type Query struct {
	IDs      []string // these only; nil for all
	House    string   // "": all houses of the scope
	Statuses []string // any of these; none for all
	Tags     []string // all of these
	Pinned   bool     // these only
	Parent   string   // children of this thread only
	Limit    int      // of a page; 0: 50. At most 200
	After    string   // the last thread of the page before; "" for the first page
	// AfterTime is when that thread was made: with it the page is right even if the thread was deleted.
	AfterTime time.Time
}

// Threads returns a page of threads, the newest first.
func (s Scope) Threads(ctx context.Context, q Query) (all []Thread, err error) {
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
		and("status = any ($%d)", q.Statuses)
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
	if q.After != "" && !q.AfterTime.IsZero() {
		args = append(args, q.AfterTime)
		and(fmt.Sprintf("(created_at, id) < ($%d, $%%d)", len(args)), q.After)
	} else if q.After != "" {
		and("(created_at, id) < (select created_at, id from threads where id = $%d)", q.After)
	}
	args = append(args, q.Limit)
	sql += fmt.Sprintf(" order by created_at desc, id desc limit $%d", len(args))
	err = s.tx(ctx, "list threads", func(tx pgx.Tx) error {
		all, err = many[Thread](ctx, tx, sql, args...)
		return err
	})
	return all, err
}

// ThreadChange is a change of what people choose of a thread. What is nil stays.
type ThreadChange struct {
	Name   *string
	Pinned *bool
	Tags   *[]string
	Closed *bool // of chats only
	Config json.RawMessage

	// Beside Tags: those to add, and those to remove. The order of those that stay is kept.
	AddTags, RemoveTags []string

	Environment *string // of the house; "" removes it
}

// ChangeThread changes a thread.
func (s Scope) ChangeThread(ctx context.Context, id string, c ThreadChange) (t Thread, err error) {
	var status *string
	if c.Closed != nil {
		status = new(string)
		if *status = ThreadOpen; *c.Closed {
			*status = ThreadClosed
		}
	}
	var add, remove []string // null where the tags stay
	if len(c.AddTags)+len(c.RemoveTags) > 0 {
		add, remove = append([]string{}, c.AddTags...), append([]string{}, c.RemoveTags...)
	}
	err = s.tx(ctx, "change thread "+id, func(tx pgx.Tx) error {
		if c.Environment != nil && *c.Environment != "" {
			was, err := one[Thread](ctx, tx, "thread", `select `+threadColumns+` from threads where id = $1`, id)
			if err == nil {
				err = usable(ctx, tx, was.House, *c.Environment)
			}
			if err != nil {
				return err
			}
		}
		t, err = one[Thread](ctx, tx, "thread", `
			update threads set
				name = case when $2::text is null then name else nullif($2, '') end,
				pinned_at = case when $3::boolean is null then pinned_at when $3 then coalesce(pinned_at, now()) end,
				tags = case when $8::text[] is null then coalesce($4, tags) else array(
					select tag from unnest(coalesce($4, tags) || $8) with ordinality as all_tags (tag, n)
					where tag <> all ($9::text[]) group by tag order by min(n)) end,
				status = coalesce($5, status), config = coalesce($6, config),
				environment_id = case when $7::text is null then environment_id else nullif($7, '') end
			where id = $1 returning `+threadColumns, id, c.Name, c.Pinned, c.Tags, status, c.Config, c.Environment,
			add, remove)
		return err
	})
	return t, err
}

// DeleteThread deletes the rows of a thread and its children. It returns ErrClaimed while one of them runs, and while a
// host launches the task of one.
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

// lockTree locks the rows of a thread and of all below it, and returns their ids. It returns ErrAbsent and ErrClaimed.
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
			return nil, fmt.Errorf("thread: %w", ErrAbsent)
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
			return nil, fmt.Errorf("thread %s or a child of it: %w", id, ErrClaimed)
		}
	}
}
