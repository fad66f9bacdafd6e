package control

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"arbe.0sk.ar/runner/host/rows"
	"arbe.0sk.ar/runner/internal/pause"
)

// The task of a row t: what its jsonb has, with what was found by it, or with what its caller has named. The columns of
// the row may change later.
const (
	taskStored = `t.id as thread, coalesce(t.parent_thread_id, '') as parent, t.house_id as house,
		t.task->>'prompt' as prompt, coalesce(t.task->>'author', '') as author,
		coalesce(t.task->>'result', '') as result, coalesce(t.task->>'model', '') as model,
		coalesce((t.task->>'live')::boolean, false) as live, coalesce(t.task->>'repo', '') as repo,
		coalesce(t.task->>'branch', '') as branch, coalesce((t.task->>'push')::boolean, false) as push,
		coalesce((t.task->>'pr')::boolean, false) as pr, t.launch_trusted as trusted, t.launch_attempts as attempts, `
	// A row that asked for no sandbox gets one of its own: a launch that is repeated finds it there.
	taskColumns = taskStored + `t.agent_id::text as agent, a.runtime as harness,
		coalesce(t.environment_id, '') as environment,
		case when t.task->'asked' is null or t.task->'asked' ? 'sandbox' then coalesce(t.sandbox_id, '') else '' end
			as sandbox`
	askedColumns = taskStored + `coalesce(t.task->'asked'->>'agent', '') as agent,
		coalesce(t.task->'asked'->>'harness', '') as harness,
		coalesce(t.task->'asked'->>'environment', '') as environment,
		coalesce(t.task->'asked'->>'sandbox', '') as sandbox`
)

// Delegate makes the row of a task's thread, idle, for a provisioner to launch. With the id of a thread it may be
// repeated: the same task is returned again, without fresh, also where it could not be made any more; another one is
// rows.ErrTaken. Only the host's scope can make a trusted one. It returns rows.ErrNoBot, ErrNoSandbox, ErrNoRecipe,
// ErrDeadBox, ErrArchived, ErrLocal and ErrClosed.
func (s Scope) Delegate(ctx context.Context, t rows.Task) (made rows.Task, fresh bool, err error) {
	if err := t.Check(); err != nil {
		return made, false, err
	}
	if t.Agent != "" {
		id, err := uuid.Parse(t.Agent)
		if err != nil {
			return made, false, rows.Refuse(rows.ErrInvalid, "the agent's id").Because("want that of a bot, a UUID")
		}
		t.Agent = id.String()
	}
	err = s.tx(ctx, "delegate from thread "+t.Parent, func(tx pgx.Tx) (err error) {
		made, err = delegation{t, s.barred}.insert(ctx, tx)
		return err
	})
	if err != nil && t.Thread != "" {
		made, err = s.repeated(ctx, t, err)
		return made, false, err
	}
	return made, err == nil, err
}

// delegation is a task that gets its row.
type delegation struct {
	rows.Task
	barred []string // providers
}

// parent has the columns that a task takes from the row of the thread that delegates it.
type parent struct {
	House   string
	Status  string
	Agent   string
	Sandbox string
}

func (d delegation) insert(ctx context.Context, tx pgx.Tx) (made rows.Task, err error) {
	p, err := one[parent](ctx, tx, "thread "+d.Parent, `
		select t.house_id as house, t.status, coalesce(t.agent_id::text, '') as agent,
			coalesce(t.sandbox_id, '') as sandbox
		from threads t where t.id = $1`, d.Parent)
	if err == nil && p.Status == rows.ThreadClosed {
		err = rows.Refuse(rows.ErrClosed, "thread "+d.Parent)
	}
	if err != nil {
		return made, err
	}
	bot, err := d.bot(ctx, tx, p.House)
	if err != nil {
		return made, err
	}
	environment, box, err := d.place(ctx, tx, p)
	if err == nil {
		err = d.allowed(ctx, tx, environment, box)
	}
	if err != nil {
		return made, err
	}
	result, err := d.resultAuthor(ctx, tx, p, bot)
	if err != nil {
		return made, err
	}
	// The request role may not name launch_trusted.
	trusted, value := "", ""
	if d.Trusted {
		trusted, value = ", launch_trusted", ", true"
	}
	return one[rows.Task](ctx, tx, "thread", `
		with t as (
			insert into threads (id, stream_id, house_id, parent_thread_id, environment_id, sandbox_id, agent_id,
				status, task`+trusted+`)
			select i, i, $2, $3, $4, nullif($5, ''), $6, 'idle', jsonb_strip_nulls(jsonb_build_object(
				'prompt', $7::text, 'author', nullif($8, ''), 'result', $9::text, 'model', nullif($10, ''),
				'live', nullif($11, false), 'repo', nullif($12, ''), 'branch', nullif($13, ''),
				'push', nullif($18, false), 'pr', nullif($19, false),
				'asked', jsonb_build_object('agent', nullif($14, ''), 'harness', nullif($15, ''),
					'environment', nullif($16, ''), 'sandbox', nullif($17, ''))))`+value+`
			from (select coalesce(nullif($1, ''), generate_short_id()) as i) as new
			returning *
		)
		select `+taskColumns+` from t join agents a on a.id = t.agent_id`,
		d.Thread, p.House, d.Parent, environment, box, bot, d.Prompt, d.Author, result, d.Model, d.Live, d.Repo,
		d.Branch, d.Agent, d.Harness, d.Environment, d.Sandbox, d.Push, d.PR)
}

// bot returns the task's agent.
func (d delegation) bot(ctx context.Context, tx pgx.Tx, house string) (string, error) {
	if d.Agent == "" {
		bots, err := drivers(ctx, tx, house, d.Harness)
		if err == nil && len(bots) == 0 {
			err = rows.Refuse(rows.ErrNoBot, fmt.Sprintf("harness %q", d.Harness))
		}
		if err != nil {
			return "", err
		}
		return bots[0].ID, nil
	}
	if err := isBot(ctx, tx, house, d.Agent, "the driving agent"); err != nil || d.Harness == "" {
		return d.Agent, err
	}
	runtimes, err := column[string](ctx, tx, `select runtime from agents where id = $1 and kind = 'bot'`, d.Agent)
	if err == nil && len(runtimes) == 1 && runtimes[0] != d.Harness {
		err = rows.Refuse(rows.ErrInvalid, "the agent").Because("it is a bot of the harness " + runtimes[0])
	}
	return d.Agent, err
}

// place returns the environment of the task, and the sandbox that it shares.
func (d delegation) place(ctx context.Context, tx pgx.Tx, p parent) (environment, box string, err error) {
	switch {
	case d.Sandbox == "":
		environment, err = chosen(ctx, tx, d.Parent, d.Environment, nil)
		switch {
		case err != nil:
			return "", "", err
		case environment == "":
			return "", "", rows.Refuse(rows.ErrNoRecipe, "thread "+d.Parent)
		}
		return environment, "", usable(ctx, tx, p.House, environment)
	case d.Sandbox != rows.SandboxOfParent:
		box = d.Sandbox
	case p.Sandbox == "":
		return "", "", rows.Refuse(rows.ErrNoSandbox, "thread "+d.Parent)
	default:
		box = p.Sandbox
	}
	b, err := one[rows.Box](ctx, tx, "sandbox "+box,
		`select `+sandboxColumns+` from sandboxes where id = $1 and house_id = $2 for share`, box, p.House)
	if err == nil && b.Status == rows.BoxDead {
		err = rows.Refuse(rows.ErrDeadBox, "sandbox "+box)
	}
	return b.Environment, box, err
}

// allowed returns rows.ErrLocal where a task's sandbox is, or would be, one of a provider that is barred.
func (d delegation) allowed(ctx context.Context, tx pgx.Tx, environment, box string) error {
	if len(d.barred) == 0 {
		return nil
	}
	providers, err := column[string](ctx, tx, `select provider from sandboxes where id = $2
		union all select runtime from environments where id = $1 and $2 = ''`, environment, box)
	if err == nil && slices.ContainsFunc(providers, func(p string) bool { return slices.Contains(d.barred, p) }) {
		err = rows.Refuse(rows.ErrLocal, "environment "+environment)
	}
	return err
}

// resultAuthor returns the author of the result on the parent: the bot that delegates, else the parent's bot, else the
// task's own. A human is no author of what it did not write.
func (d delegation) resultAuthor(ctx context.Context, tx pgx.Tx, p parent, bot string) (string, error) {
	if p.Agent != "" {
		bot = p.Agent
	}
	if id, err := uuid.Parse(d.Author); err == nil {
		kinds, err := column[string](ctx, tx, `select kind from agents where id = $1`, id)
		if err != nil {
			return "", err
		}
		if len(kinds) == 1 && kinds[0] == rows.KindBot {
			bot = id.String()
		}
	}
	return bot, nil
}

// repeated returns the task that has the id already, where it is the same. Without such a task it returns the error
// with which the task was not made.
func (s Scope) repeated(ctx context.Context, t rows.Task, failed error) (made rows.Task, err error) {
	const from = ` from threads t join agents a on a.id = t.agent_id where t.id = $1 and t.task is not null`
	err = s.tx(ctx, "delegate from thread "+t.Parent, func(tx pgx.Tx) error {
		asked, err := one[rows.Task](ctx, tx, "thread", `select `+askedColumns+from, t.Thread)
		if err != nil {
			return err
		}
		if differs := differs(asked, t); differs != "" {
			text := fmt.Sprintf("the id %s is %v by another order: its %s differs", t.Thread, rows.ErrTaken, differs)
			return &rows.Refusal{Kind: rows.ErrTaken, Text: text}
		}
		made, err = one[rows.Task](ctx, tx, "thread", `select `+taskColumns+from, t.Thread)
		return err
	})
	if errors.Is(err, rows.ErrAbsent) {
		err = failed
	}
	return made, err
}

// differs returns in what a task that was asked for is not the one that is asked for now; "" for the same one. In rows
// of before it was stored, what was asked of the agent and the place is not known.
func differs(was, is rows.Task) string {
	if was.Agent == "" && was.Harness == "" {
		was.Agent, was.Harness, was.Environment, was.Sandbox = is.Agent, is.Harness, is.Environment, is.Sandbox
	}
	for _, f := range []struct {
		name string
		same bool
	}{
		{"thread", was.Parent == is.Parent},
		{"task", was.Prompt == is.Prompt},
		{"author", was.Author == is.Author},
		{"agent", was.Agent == is.Agent},
		{"harness", was.Harness == is.Harness},
		{"model", was.Model == is.Model},
		{"environment", was.Environment == is.Environment},
		{"sandbox", was.Sandbox == is.Sandbox},
		{"repo", was.Repo == is.Repo},
		{"branch", was.Branch == is.Branch},
		{"push", was.Push == is.Push && was.PR == is.PR},
		{"live", was.Live == is.Live},
	} {
		if !f.same {
			return f.name
		}
	}
	return ""
}

// Queue is the tasks that wait for a provisioner, as a host sees them: a provision.Queue. Each method is one
// transaction.
type Queue struct {
	DB   *DB
	Host string // of this process alone
}

// A row that is locked is taken by another host, or brought up to date with its log; of a locked house another host
// takes tasks. Take tries them again so often.
const (
	takeTries = 100
	takeWait  = 20 * time.Millisecond
)

// Take implements provision.Queue. It waits a moment for due tasks whose rows, or houses, are locked, where there are
// no others.
func (q Queue) Take(ctx context.Context, lease time.Duration, limit int) (all []rows.Task, err error) {
	for range takeTries {
		all, err = q.take(ctx, lease, limit)
		if err != nil || len(all) > 0 {
			return all, err
		}
		due, err := q.due(ctx)
		if err != nil || !due || !pause.For(ctx, takeWait) {
			return nil, err
		}
	}
	return nil, nil
}

// due reports whether a task is to be taken.
func (q Queue) due(ctx context.Context) (bool, error) {
	due, err := values[bool](ctx, q.DB.Host(), "look for tasks",
		dueTasks+` select exists (select from due where starts)`)
	return err == nil && due[0], err
}

func (q Queue) take(ctx context.Context, lease time.Duration, limit int) (all []rows.Task, err error) {
	err = q.DB.Host().tx(ctx, "take tasks", func(tx pgx.Tx) error {
		ids, err := takeable(ctx, tx, limit)
		if err != nil || len(ids) == 0 {
			return err
		}
		all, err = many[rows.Task](ctx, tx, `
			with t as (
				update threads set launch_host = $1, launch_after = now() + $2::interval,
					launch_attempts = launch_attempts + 1
				where id = any ($3) returning threads.*
			)
			select `+taskColumns+` from t join agents a on a.id = t.agent_id`, q.Host, lease, ids)
		return err
	})
	return all, err
}

// TakeOne gives a task that no host has to this host, also one that is not due yet. is is false for a thread without
// such a task.
func (q Queue) TakeOne(ctx context.Context, thread string, lease time.Duration) (t rows.Task, is bool, err error) {
	all, err := list[rows.Task](ctx, q.DB.Host(), "take task "+thread, `
		with t as (
			update threads set launch_host = $1, launch_after = now() + $2::interval
			where id = $3 and launch_after is not null and (launch_host is null or launch_after <= now())
			returning *
		)
		select `+taskColumns+` from t join agents a on a.id = t.agent_id`, q.Host, lease, thread)
	if err != nil || len(all) == 0 {
		return t, false, err
	}
	return all[0], true, nil
}

// Queued returns the task of a thread that is not launched yet, one that a host has included. It returns
// rows.ErrAbsent.
func (q Queue) Queued(ctx context.Context, thread string) (rows.Task, error) {
	return fetch[rows.Task](ctx, q.DB.Host(), "read task "+thread, "task", `select `+taskColumns+`
		from threads t join agents a on a.id = t.agent_id
		where t.id = $1 and t.launch_after is not null`, thread)
}

// Renew implements provision.Queue.
func (q Queue) Renew(ctx context.Context, thread string, lease time.Duration) error {
	return q.change(ctx, "renew the lease of task "+thread, `update threads set launch_after = now() + $3::interval
		where id = $1 and launch_host = $2`, thread, q.Host, lease)
}

// PutBack implements provision.Queue.
func (q Queue) PutBack(ctx context.Context, thread string, after time.Duration, free bool) error {
	return q.change(ctx, "put back task "+thread, `update threads set launch_host = null,
			launch_after = now() + $3::interval, launch_attempts = launch_attempts - case when $4 then 1 else 0 end
		where id = $1 and launch_host = $2`, thread, q.Host, after, free)
}

// Done implements provision.Queue.
func (q Queue) Done(ctx context.Context, thread string) error {
	return q.change(ctx, "end task "+thread, `update threads set launch_host = null, launch_after = null
		where id = $1 and launch_host = $2`, thread, q.Host)
}

// change changes the row of a task that this host has.
func (q Queue) change(ctx context.Context, what, sql string, args ...any) error {
	done, err := change(ctx, q.DB.Host(), what, sql, args...)
	if err == nil && !done {
		err = rows.Refuse(rows.ErrLost, "task")
	}
	return err
}
