package control

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"arbe.0sk.ar/runner/host/delegate"
)

// Task is what a delegated thread's agent is to do, as the thread's row has it.
type Task struct {
	Prompt string `json:"prompt"`
	Author string `json:"author,omitempty"` // who delegates
	Result string `json:"result,omitempty"` // the author of the result on the parent; Delegate fills it in
	Model  string `json:"model,omitempty"`  // "" for the agent's own choice
	Live   bool   `json:"live,omitempty"`   // the run takes chats while it lasts
	Repo   string `json:"repo,omitempty"`   // in place of the environment's
	Branch string `json:"branch,omitempty"`
}

// asked is what a caller has named of a task's agent and place. The columns of the row have what was found by it, and
// may change later.
type asked struct {
	Agent       uuid.UUID `json:"agent,omitzero"`
	Harness     string    `json:"harness,omitempty"`
	Environment string    `json:"environment,omitempty"`
	Sandbox     string    `json:"sandbox,omitempty"`
}

// storedTask is a task in its row.
type storedTask struct {
	Task
	Asked asked `json:"asked,omitzero"` // zero in rows of before it was stored
}

// SandboxOfParent is a Delegation's Sandbox for that of the parent.
const SandboxOfParent = "parent"

// Delegation is a task for another thread.
type Delegation struct {
	ID      string // of the new thread; "" for any
	Parent  string // the thread that delegates
	Agent   uuid.UUID
	Harness string // without Agent: the house's first bot of this harness
	// Environment outranks the parent's and the house's default.
	Environment string
	// Sandbox of the house to share, or SandboxOfParent; "" for one of the task's own. Its environment is the task's.
	Sandbox string
	Trusted bool // from the operator of this host; only the host's scope can set it
	NoLocal bool // refuse a sandbox on the host's own machine: ErrLocal
	Task    Task
}

// taskRow is a delegated task's row.
type taskRow struct {
	ID          string
	House       string
	Parent      string
	Agent       uuid.UUID
	Harness     string // the agent's
	Environment string
	Sandbox     string
	Task        storedTask
	Trusted     bool
	Attempts    int
}

func (r taskRow) order() delegate.Order {
	return delegate.Order{
		Thread: r.ID, House: r.House, Parent: r.Parent, Agent: r.Agent.String(), Author: r.Task.Author,
		Result: r.Task.Result, Prompt: r.Task.Prompt, Harness: r.Harness, Model: r.Task.Model, Live: r.Task.Live,
		Environment: r.Environment, Sandbox: r.Sandbox, Repo: r.Task.Repo, Branch: r.Task.Branch,
		Trusted: r.Trusted, Attempts: r.Attempts,
	}
}

const taskColumns = `t.id, t.house_id as house, coalesce(t.parent_thread_id, '') as parent, t.agent_id as agent,
	a.runtime as harness, coalesce(t.environment_id, '') as environment, coalesce(t.sandbox_id, '') as sandbox, t.task,
	t.launch_trusted as trusted, t.launch_attempts as attempts`

// Errors of Delegate.
var (
	ErrNoBot     = errors.New("the house has no bot of this harness")
	ErrNoSandbox = errors.New("the parent has no sandbox")
	ErrLocal     = errors.New("local boxes are not for tasks of members here")
	ErrClosed    = errors.New("the thread is closed: open it again to delegate from it")
)

// Delegate makes the row of a task's thread, idle, for a provisioner to launch. With an ID it may be repeated: the same
// task is returned again, without fresh, also where it could not be made any more; another one is ErrTaken. It returns
// ErrNoBot, ErrNoSandbox, ErrNoRecipe, ErrDeadBox, ErrArchived, ErrLocal and ErrClosed.
func (s Scope) Delegate(ctx context.Context, d Delegation) (o delegate.Order, fresh bool, err error) {
	var made taskRow
	err = s.tx(ctx, "delegate from thread "+d.Parent, func(tx pgx.Tx) (err error) {
		made, err = d.insert(ctx, tx)
		return err
	})
	if err != nil && d.ID != "" {
		o, err = s.repeated(ctx, d, err)
		return o, false, err
	}
	if err != nil {
		return o, false, err
	}
	return made.order(), true, nil
}

// parent is what a task takes from the row of the thread that delegates it.
type parent struct {
	House       string
	Status      string
	Agent       *uuid.UUID
	Environment *string
	Sandbox     *string
}

func (d Delegation) insert(ctx context.Context, tx pgx.Tx) (taskRow, error) {
	fail := func(err error) (taskRow, error) { return taskRow{}, err }
	p, err := one[parent](ctx, tx, "thread "+d.Parent, `select t.house_id as house, t.status, t.agent_id as agent,
		coalesce(t.environment_id, h.default_environment_id) as environment, t.sandbox_id as sandbox
		from threads t join houses h on h.id = t.house_id where t.id = $1`, d.Parent)
	if err == nil && p.Status == ThreadClosed {
		err = fmt.Errorf("thread %s: %w", d.Parent, ErrClosed)
	}
	if err != nil {
		return fail(err)
	}
	bot, err := d.bot(ctx, tx, p.House)
	if err != nil {
		return fail(err)
	}
	environment, box, err := d.place(ctx, tx, p)
	if err == nil && d.NoLocal {
		err = notLocal(ctx, tx, environment, box)
	}
	if err != nil {
		return fail(err)
	}
	if d.Task.Result, err = d.resultAuthor(ctx, tx, p, bot); err != nil {
		return fail(err)
	}
	// The request role may not name launch_trusted.
	trusted, value := "", ""
	if d.Trusted {
		trusted, value = ", launch_trusted", ", true"
	}
	return one[taskRow](ctx, tx, "thread", `
		with t as (
			insert into threads (id, stream_id, house_id, parent_thread_id, environment_id, sandbox_id, agent_id,
				status, task`+trusted+`)
			select i, i, $2, $3, $4, nullif($5, ''), $6, 'idle', $7`+value+`
			from (select coalesce(nullif($1, ''), generate_short_id()) as i) as new
			returning *
		)
		select `+taskColumns+` from t join agents a on a.id = t.agent_id`,
		d.ID, p.House, d.Parent, environment, box, bot, storedTask{d.Task, d.asked()})
}

func (d Delegation) asked() asked { return asked{d.Agent, d.Harness, d.Environment, d.Sandbox} }

// bot returns the task's agent.
func (d Delegation) bot(ctx context.Context, tx pgx.Tx, house string) (uuid.UUID, error) {
	if d.Agent == uuid.Nil {
		bots, err := column[uuid.UUID](ctx, tx, `select a.id from members m join agents a on a.id = m.agent_id
			where m.house_id = $1 and a.kind = 'bot' and a.runtime = $2 and a.archived_at is null
				and m.archived_at is null order by m.joined_at, a.id limit 1`, house, d.Harness)
		if err == nil && len(bots) == 0 {
			err = fmt.Errorf("harness %q: %w", d.Harness, ErrNoBot)
		}
		if err != nil {
			return uuid.Nil, err
		}
		return bots[0], nil
	}
	if err := drives(ctx, tx, house, d.Agent); err != nil || d.Harness == "" {
		return d.Agent, err
	}
	runtimes, err := column[string](ctx, tx, `select runtime from agents where id = $1 and kind = 'bot'`, d.Agent)
	if err == nil && len(runtimes) == 1 && runtimes[0] != d.Harness {
		err = fmt.Errorf("the agent: %w: it is a bot of the harness %s", ErrInvalid, runtimes[0])
	}
	return d.Agent, err
}

// place returns the environment of the task, and the sandbox that it shares.
func (d Delegation) place(ctx context.Context, tx pgx.Tx, p parent) (environment, box string, err error) {
	switch {
	case d.Sandbox == "":
		if environment = d.Environment; environment == "" && p.Environment != nil {
			environment = *p.Environment
		}
		if environment == "" {
			return "", "", fmt.Errorf("thread %s: %w", d.Parent, ErrNoRecipe)
		}
		return environment, "", usable(ctx, tx, p.House, environment)
	case d.Environment != "":
		return "", "", fmt.Errorf("the sandbox: %w: one that is shared has its environment", ErrInvalid)
	case d.Sandbox != SandboxOfParent:
		box = d.Sandbox
	case p.Sandbox == nil:
		return "", "", fmt.Errorf("thread %s: %w", d.Parent, ErrNoSandbox)
	default:
		box = *p.Sandbox
	}
	b, err := one[Sandbox](ctx, tx, "sandbox "+box,
		`select `+sandboxColumns+` from sandboxes where id = $1 and house_id = $2 for share`, box, p.House)
	if err == nil && b.Status == SandboxDead {
		err = fmt.Errorf("sandbox %s: %w", box, ErrDeadBox)
	}
	return b.Environment, box, err
}

// localProvider makes boxes of the host's own machine, in which a task runs as the host's user.
const localProvider = "local"

// notLocal returns ErrLocal where a task's sandbox is, or would be, on the host's own machine.
func notLocal(ctx context.Context, tx pgx.Tx, environment, box string) error {
	providers, err := column[string](ctx, tx, `select provider from sandboxes where id = $2
		union all select runtime from environments where id = $1 and $2 = ''`, environment, box)
	if err == nil && slices.Contains(providers, localProvider) {
		err = fmt.Errorf("environment %s: %w", environment, ErrLocal)
	}
	return err
}

// resultAuthor returns the author of the result on the parent: the bot that delegates, else the parent's bot, else the
// task's own. A human is no author of what it did not write.
func (d Delegation) resultAuthor(ctx context.Context, tx pgx.Tx, p parent, bot uuid.UUID) (string, error) {
	if p.Agent != nil {
		bot = *p.Agent
	}
	if id, err := uuid.Parse(d.Task.Author); err == nil {
		kinds, err := column[string](ctx, tx, `select kind from agents where id = $1`, id)
		if err != nil {
			return "", err
		}
		if len(kinds) == 1 && kinds[0] == KindBot {
			bot = id
		}
	}
	return bot.String(), nil
}

// repeated returns the task that has the id already, where it is the same. Without such a task it returns the error
// with which the task was not made.
func (s Scope) repeated(ctx context.Context, d Delegation, failed error) (o delegate.Order, err error) {
	err = s.tx(ctx, "delegate from thread "+d.Parent, func(tx pgx.Tx) error {
		made, err := one[taskRow](ctx, tx, "thread", `select `+taskColumns+`
			from threads t join agents a on a.id = t.agent_id where t.id = $1 and t.task is not null`, d.ID)
		if err != nil {
			return err
		}
		if differs := made.differs(d); differs != "" {
			return fmt.Errorf("the id %s is %w by another order: its %s differs", d.ID, ErrTaken, differs)
		}
		o = made.order()
		return nil
	})
	if errors.Is(err, ErrAbsent) {
		err = failed
	}
	return o, err
}

// differs returns in what a task is not the one that is delegated; "" for the same one.
func (r taskRow) differs(d Delegation) string {
	was, is := r.Task, storedTask{d.Task, d.asked()}
	if was.Asked == (asked{}) {
		is.Asked = was.Asked
	}
	for _, f := range []struct {
		name string
		same bool
	}{
		{"thread", r.Parent == d.Parent},
		{"task", was.Prompt == is.Prompt},
		{"author", was.Author == is.Author},
		{"agent", was.Asked.Agent == is.Asked.Agent},
		{"harness", was.Asked.Harness == is.Asked.Harness},
		{"model", was.Model == is.Model},
		{"environment", was.Asked.Environment == is.Asked.Environment},
		{"sandbox", was.Asked.Sandbox == is.Asked.Sandbox},
		{"repo", was.Repo == is.Repo},
		{"branch", was.Branch == is.Branch},
		{"live", was.Live == is.Live},
	} {
		if !f.same {
			return f.name
		}
	}
	return ""
}

// Queue is the tasks that wait for a provisioner, as a host sees them: a delegate.Queue. Each method is one
// transaction.
type Queue struct {
	DB   *DB
	Host string // of this process alone
}

// Take is delegate.Queue's. A row that another host takes at the same time is skipped.
func (q Queue) Take(ctx context.Context, lease time.Duration, limit int) (orders []delegate.Order, err error) {
	var rows []taskRow
	err = q.DB.Host().tx(ctx, "take tasks", func(tx pgx.Tx) (err error) {
		rows, err = many[taskRow](ctx, tx, `
			with due as (
				select id from threads where launch_after <= now() order by launch_after, id limit $3
				for update skip locked
			), t as (
				update threads set launch_host = $1, launch_after = now() + $2::interval,
					launch_attempts = launch_attempts + 1
				from due where threads.id = due.id returning threads.*
			)
			select `+taskColumns+` from t join agents a on a.id = t.agent_id`, q.Host, lease, limit)
		return err
	})
	for _, r := range rows {
		orders = append(orders, r.order())
	}
	return orders, err
}

// TakeOne gives a task that no host has to this host, also one that is not due yet. is is false for a thread without
// such a task.
func (q Queue) TakeOne(ctx context.Context, thread string, lease time.Duration) (o delegate.Order, is bool, err error) {
	var rows []taskRow
	err = q.DB.Host().tx(ctx, "take task "+thread, func(tx pgx.Tx) (err error) {
		rows, err = many[taskRow](ctx, tx, `
			with t as (
				update threads set launch_host = $1, launch_after = now() + $2::interval
				where id = $3 and launch_after is not null and (launch_host is null or launch_after <= now())
				returning *
			)
			select `+taskColumns+` from t join agents a on a.id = t.agent_id`, q.Host, lease, thread)
		return err
	})
	if err != nil || len(rows) == 0 {
		return o, false, err
	}
	return rows[0].order(), true, nil
}

// Queued returns the task of a thread that is not launched yet, one that a host has included. It returns ErrAbsent.
func (q Queue) Queued(ctx context.Context, thread string) (o delegate.Order, err error) {
	err = q.DB.Host().tx(ctx, "read task "+thread, func(tx pgx.Tx) error {
		r, err := one[taskRow](ctx, tx, "task", `select `+taskColumns+`
			from threads t join agents a on a.id = t.agent_id
			where t.id = $1 and t.launch_after is not null`, thread)
		o = r.order()
		return err
	})
	return o, err
}

// Renew is delegate.Queue's.
func (q Queue) Renew(ctx context.Context, thread string, lease time.Duration) error {
	return q.change(ctx, "renew the lease of task "+thread, `update threads set launch_after = now() + $3::interval
		where id = $1 and launch_host = $2`, thread, q.Host, lease)
}

// PutBack is delegate.Queue's.
func (q Queue) PutBack(ctx context.Context, thread string, after time.Duration, free bool) error {
	return q.change(ctx, "put back task "+thread, `update threads set launch_host = null,
			launch_after = now() + $3::interval, launch_attempts = launch_attempts - case when $4 then 1 else 0 end
		where id = $1 and launch_host = $2`, thread, q.Host, after, free)
}

// Done is delegate.Queue's.
func (q Queue) Done(ctx context.Context, thread string) error {
	return q.change(ctx, "end task "+thread, `update threads set launch_host = null, launch_after = null
		where id = $1 and launch_host = $2`, thread, q.Host)
}

// change changes the row of a task that this host has.
func (q Queue) change(ctx context.Context, what, sql string, args ...any) error {
	err := q.DB.Host().tx(ctx, what, func(tx pgx.Tx) error { return exec(ctx, tx, "task", sql, args...) })
	if errors.Is(err, ErrAbsent) {
		return fmt.Errorf("%w: %w", delegate.ErrLost, err)
	}
	return err
}

// Waiting returns the threads whose tasks are not launched yet, those that a host has included.
func (q Queue) Waiting(ctx context.Context) (threads []string, err error) {
	err = q.DB.Host().tx(ctx, "list tasks", func(tx pgx.Tx) (err error) {
		threads, err = column[string](ctx, tx,
			`select id from threads where launch_after is not null order by launch_after, id`)
		return err
	})
	return threads, err
}
