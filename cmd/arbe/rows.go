package main

import (
	"context"
	"errors"
	"slices"

	"github.com/google/uuid"

	"arbe.0sk.ar/runner/host/control"
	"arbe.0sk.ar/runner/host/control/seal"
	"arbe.0sk.ar/runner/host/rows"
)

// scope returns what an agent sees of the database; all for the agent "", the host.
func (r *lateRows) scope(ctx context.Context, agent string) (s control.Scope, err error) {
	db, err := r.open(ctx)
	switch {
	case err != nil:
		return s, err
	case agent == "":
		return db.Host(), nil
	}
	id, err := uuid.Parse(agent)
	return db.As(id), err
}

// rowKinds are the errors of package rows for those of the database.
var rowKinds = []struct{ of, kind error }{
	{control.ErrAbsent, rows.ErrAbsent},
	{control.ErrTaken, rows.ErrTaken},
	{control.ErrReference, rows.ErrReference},
	{control.ErrInvalid, rows.ErrInvalid},
	{control.ErrForbidden, rows.ErrForbidden},
	{control.ErrArchived, rows.ErrArchived},
	{control.ErrClaimed, rows.ErrRunning},
	{seal.ErrEmpty, rows.ErrInvalid},
	{seal.ErrTooLarge, rows.ErrInvalid},
}

// refusal makes an error of the database one of package rows. Its text is what follows the name of the transaction.
func refusal(err error) error {
	for _, k := range rowKinds {
		if !errors.Is(err, k.of) {
			continue
		}
		if cause := errors.Unwrap(err); cause != nil {
			err = cause
		}
		return &rows.Refusal{Kind: k.kind, Text: err.Error()}
	}
	return ofRows(err)
}

// threadRow returns a thread's row as the API has it.
func threadRow(t control.Thread) rows.Thread {
	agent := ""
	if t.Agent != nil {
		agent = t.Agent.String()
	}
	return rows.Thread{
		ID: t.ID, House: t.House, Name: t.Name, Tags: t.Tags, Pinned: t.PinnedAt != nil,
		Closed: t.Status == control.ThreadClosed, Parent: t.Parent, Environment: t.Environment, Sandbox: t.Sandbox,
		Agent: agent, Claimed: t.ClaimedRun != "", Waits: t.Waits, CreatedAt: t.CreatedAt,
	}
}

// Closed is member.Rows'.
func (r *lateRows) Closed(ctx context.Context, thread string) (bool, error) {
	db, err := r.open(ctx)
	if err != nil {
		return false, err
	}
	closed, err := db.Closed(ctx, thread)
	return closed, ofRows(err)
}

// Threads is rows.Threads'.
func (r *lateRows) Threads(ctx context.Context, agent string, q rows.Query) ([]rows.Thread, error) {
	s, err := r.scope(ctx, agent)
	if err != nil {
		return nil, err
	}
	statuses := q.Statuses
	if slices.Contains(statuses, control.ThreadIdle) { // a chat has no run
		statuses = slices.Concat(statuses, []string{control.ThreadOpen, control.ThreadClosed})
	}
	found, err := s.Threads(ctx, control.Query{
		IDs: q.IDs, House: q.House, Statuses: statuses, Tags: q.Tags, Pinned: q.Pinned, Parent: q.Parent,
		Limit: q.Limit, After: q.After.ID, AfterTime: q.After.CreatedAt,
	})
	all := make([]rows.Thread, len(found))
	for i, t := range found {
		all[i] = threadRow(t)
	}
	return all, refusal(err)
}

// Thread is rows.Threads'.
func (r *lateRows) Thread(ctx context.Context, agent, id string) (rows.Thread, error) {
	s, err := r.scope(ctx, agent)
	if err != nil {
		return rows.Thread{}, err
	}
	t, err := s.Thread(ctx, id)
	return threadRow(t), refusal(err)
}

// CreateThread is rows.Threads'.
func (r *lateRows) CreateThread(ctx context.Context, agent string, n rows.NewThread) (rows.Thread, error) {
	s, err := r.scope(ctx, agent)
	if err != nil {
		return rows.Thread{}, err
	}
	want := control.NewThread{
		ID: n.ID, House: n.House, Name: n.Name, Pinned: n.Pinned, Parent: n.Parent, Environment: n.Environment,
		Tags: n.Tags, Config: n.Config,
	}
	if n.Agent != "" {
		if want.Agent, err = uuid.Parse(n.Agent); err != nil {
			return rows.Thread{}, &rows.Refusal{Kind: rows.ErrInvalid, Text: "the driving agent: not a UUID"}
		}
	}
	t, err := s.CreateThread(ctx, want)
	return threadRow(t), refusal(err)
}

// ChangeThread is rows.Threads'.
func (r *lateRows) ChangeThread(
	ctx context.Context, agent, id string, c rows.ThreadChange,
) (rows.Thread, error) {
	s, err := r.scope(ctx, agent)
	if err != nil {
		return rows.Thread{}, err
	}
	t, err := s.ChangeThread(ctx, id, control.ThreadChange{
		Name: c.Name, Tags: c.Tags, Pinned: c.Pinned, Closed: c.Closed, Environment: c.Environment,
	})
	return threadRow(t), refusal(err)
}

// DeleteThread is rows.Threads'.
func (r *lateRows) DeleteThread(
	ctx context.Context, agent, id string, logs func(ctx context.Context, ids []string) error,
) error {
	s, err := r.scope(ctx, agent)
	if err != nil {
		return err
	}
	return refusal(s.DeleteThread(ctx, id, logs))
}

// bindingsOf returns bindings as the API has them.
func bindingsOf(all []control.Binding) []rows.Binding {
	bindings := make([]rows.Binding, len(all))
	for i, b := range all {
		bindings[i] = rows.Binding(b)
	}
	return bindings
}

// environmentOf returns an environment as the API has it.
func environmentOf(e control.Environment) rows.Environment {
	return rows.Environment{
		ID: e.ID, House: e.House, CreatedAt: e.CreatedAt, ArchivedAt: e.ArchivedAt,
		Recipe: rows.Recipe{Name: e.Name, Runtime: e.Runtime, Config: e.Config, Bindings: bindingsOf(e.Bindings)},
	}
}

// recipeOf returns a recipe as the database has it.
func recipeOf(r rows.Recipe) control.Recipe {
	bindings := make([]control.Binding, len(r.Bindings))
	for i, b := range r.Bindings {
		bindings[i] = control.Binding(b)
	}
	return control.Recipe{Name: r.Name, Runtime: r.Runtime, Config: r.Config, Bindings: bindings}
}

// Environments is rows.Environments'.
func (r *lateRows) Environments(ctx context.Context, agent, house string) ([]rows.Environment, error) {
	s, err := r.scope(ctx, agent)
	if err != nil {
		return nil, err
	}
	found, err := s.Environments(ctx, house)
	all := make([]rows.Environment, len(found))
	for i, e := range found {
		all[i] = environmentOf(e)
	}
	return all, refusal(err)
}

// Environment is rows.Environments'.
func (r *lateRows) Environment(ctx context.Context, agent, id string) (rows.Environment, error) {
	s, err := r.scope(ctx, agent)
	if err != nil {
		return rows.Environment{}, err
	}
	e, err := s.Environment(ctx, id)
	return environmentOf(e), refusal(err)
}

// CreateEnvironment is rows.Environments'.
func (r *lateRows) CreateEnvironment(
	ctx context.Context, agent, house string, recipe rows.Recipe,
) (rows.Environment, error) {
	s, err := r.scope(ctx, agent)
	if err != nil {
		return rows.Environment{}, err
	}
	e, err := s.CreateEnvironment(ctx, house, recipeOf(recipe))
	return environmentOf(e), refusal(err)
}

// ChangeEnvironment is rows.Environments'.
func (r *lateRows) ChangeEnvironment(
	ctx context.Context, agent, id string, c rows.EnvironmentChange,
) (rows.Environment, error) {
	s, err := r.scope(ctx, agent)
	if err != nil {
		return rows.Environment{}, err
	}
	if c.Recipe == nil {
		e, err := s.EditEnvironment(ctx, id, c.Archived, nil)
		return environmentOf(e), refusal(err)
	}
	e, err := s.EditEnvironment(ctx, id, c.Archived, func(to *control.Recipe) error {
		now := environmentOf(control.Environment{
			Name: to.Name, Runtime: to.Runtime, Config: to.Config, Bindings: to.Bindings,
		}).Recipe
		err := c.Recipe(&now)
		*to = recipeOf(now)
		return err
	})
	return environmentOf(e), refusal(err)
}

// RemoveEnvironment is rows.Environments'.
func (r *lateRows) RemoveEnvironment(ctx context.Context, agent, id string) (archived bool, err error) {
	s, err := r.scope(ctx, agent)
	if err != nil {
		return false, err
	}
	err = s.DeleteEnvironment(ctx, id)
	if errors.Is(err, control.ErrInUse) {
		return true, refusal(s.ArchiveEnvironment(ctx, id))
	}
	return false, refusal(err)
}

// Secrets is rows.Secrets'.
func (r *lateRows) Secrets(ctx context.Context, agent, house string) ([]rows.Secret, error) {
	s, err := r.scope(ctx, agent)
	if err != nil {
		return nil, err
	}
	found, err := s.Secrets(ctx, house)
	all := make([]rows.Secret, len(found))
	for i, v := range found {
		all[i] = rows.Secret{Name: v.Name, CreatedAt: v.CreatedAt}
	}
	return all, refusal(err)
}

// PutSecret is rows.Secrets'.
func (r *lateRows) PutSecret(ctx context.Context, agent, house, name string, value []byte) (rows.Secret, error) {
	s, err := r.scope(ctx, agent)
	if err != nil {
		return rows.Secret{}, err
	}
	if r.keys.Path == "" {
		return rows.Secret{}, rows.ErrNoKeys
	}
	keys, err := seal.New(ctx, r.keys) // the primary key may have been rotated since the last one
	if err != nil {
		r.logger.Warn("keys of secrets not read", "error", err)
		const text = "this server can't read its keys for secrets now: its log has why"
		return rows.Secret{}, &rows.Refusal{Kind: rows.ErrNoKeys, Text: text}
	}
	v, err := control.Vault{DB: r.db.Load(), Sealer: keys}.Put(ctx, s, house, name, value)
	return rows.Secret{Name: v.Name, CreatedAt: v.CreatedAt}, refusal(err)
}

// DeleteSecret is rows.Secrets'.
func (r *lateRows) DeleteSecret(ctx context.Context, agent, house, name string) error {
	s, err := r.scope(ctx, agent)
	if err != nil {
		return err
	}
	err = s.DeleteSecret(ctx, house, name)
	if !errors.Is(err, control.ErrAbsent) {
		return refusal(err)
	}
	// Row level security hides from a deletion what only owners may delete.
	all, listErr := s.Secrets(ctx, house)
	if listErr == nil && slices.ContainsFunc(all, func(v control.Secret) bool { return v.Name == name }) {
		return rows.ErrForbidden
	}
	return refusal(err)
}
