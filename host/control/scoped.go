package control

import (
	"context"

	"arbe.0sk.ar/runner/host/control/seal"
	"arbe.0sk.ar/runner/host/rows"
)

// A Store's methods are those of the Scope of an agent, all rows for the agent "".

// scoped calls f with the scope of an agent.
func scoped[T any](ctx context.Context, st *Store, agent string, f func(Scope) (T, error)) (v T, err error) {
	db, err := st.Open(ctx)
	if err != nil {
		return v, err
	}
	s := db.Host()
	if agent != "" {
		s = db.As(agent)
	}
	s.noLocal = st.NoLocal
	return f(s)
}

// Houses implements member.Rows.
func (st *Store) Houses(ctx context.Context, agent string) ([]string, error) {
	db, err := st.Open(ctx)
	if err != nil {
		return nil, err
	}
	return db.Houses(ctx, agent)
}

// HousesOf implements member.Rows.
func (st *Store) HousesOf(ctx context.Context, threads []string) (map[string]string, error) {
	db, err := st.Open(ctx)
	if err != nil {
		return nil, err
	}
	return db.HousesOf(ctx, threads)
}

// Closed implements member.Rows.
func (st *Store) Closed(ctx context.Context, thread string) (bool, error) {
	db, err := st.Open(ctx)
	if err != nil {
		return false, err
	}
	return db.Closed(ctx, thread)
}

// Threads implements rows.Threads.
func (st *Store) Threads(ctx context.Context, agent string, q rows.Query) ([]rows.Thread, error) {
	return scoped(ctx, st, agent, func(s Scope) ([]rows.Thread, error) { return s.Threads(ctx, q) })
}

// Thread implements rows.Threads.
func (st *Store) Thread(ctx context.Context, agent, id string) (rows.Thread, error) {
	return scoped(ctx, st, agent, func(s Scope) (rows.Thread, error) { return s.Thread(ctx, id) })
}

// CreateThread implements rows.Threads.
func (st *Store) CreateThread(ctx context.Context, agent string, n rows.NewThread) (rows.Thread, error) {
	return scoped(ctx, st, agent, func(s Scope) (rows.Thread, error) { return s.CreateThread(ctx, n) })
}

// ChangeThread implements rows.Threads.
func (st *Store) ChangeThread(ctx context.Context, agent, id string, c rows.ThreadChange) (rows.Thread, error) {
	return scoped(ctx, st, agent, func(s Scope) (rows.Thread, error) { return s.ChangeThread(ctx, id, c) })
}

// DeleteThread implements rows.Threads.
func (st *Store) DeleteThread(
	ctx context.Context, agent, id string, logs func(ctx context.Context, ids []string) error,
) error {
	_, err := scoped(ctx, st, agent, func(s Scope) (any, error) { return nil, s.DeleteThread(ctx, id, logs) })
	return err
}

// Delegate implements rows.Tasks.
func (st *Store) Delegate(ctx context.Context, agent string, t rows.Task) (made rows.Task, fresh bool, err error) {
	made, err = scoped(ctx, st, agent, func(s Scope) (made rows.Task, err error) {
		made, fresh, err = s.Delegate(ctx, t)
		return made, err
	})
	return made, fresh, err
}

// Environments implements rows.Environments.
func (st *Store) Environments(ctx context.Context, agent, house string) ([]rows.Environment, error) {
	return scoped(ctx, st, agent, func(s Scope) ([]rows.Environment, error) { return s.Environments(ctx, house) })
}

// Environment implements rows.Environments.
func (st *Store) Environment(ctx context.Context, agent, id string) (rows.Environment, error) {
	return scoped(ctx, st, agent, func(s Scope) (rows.Environment, error) { return s.Environment(ctx, id) })
}

// CreateEnvironment implements rows.Environments.
func (st *Store) CreateEnvironment(
	ctx context.Context, agent, house string, r rows.Recipe,
) (rows.Environment, error) {
	return scoped(ctx, st, agent, func(s Scope) (rows.Environment, error) { return s.CreateEnvironment(ctx, house, r) })
}

// ChangeEnvironment implements rows.Environments.
func (st *Store) ChangeEnvironment(
	ctx context.Context, agent, id string, c rows.EnvironmentChange,
) (rows.Environment, error) {
	return scoped(ctx, st, agent, func(s Scope) (rows.Environment, error) { return s.ChangeEnvironment(ctx, id, c) })
}

// RemoveEnvironment implements rows.Environments.
func (st *Store) RemoveEnvironment(ctx context.Context, agent, id string) (archived bool, err error) {
	return scoped(ctx, st, agent, func(s Scope) (bool, error) { return s.RemoveEnvironment(ctx, id) })
}

// Secrets implements rows.Secrets.
func (st *Store) Secrets(ctx context.Context, agent, house string) ([]rows.Secret, error) {
	return scoped(ctx, st, agent, func(s Scope) ([]rows.Secret, error) { return s.Secrets(ctx, house) })
}

// PutSecret implements rows.Secrets.
func (st *Store) PutSecret(ctx context.Context, agent, house, name string, value []byte) (rows.Secret, error) {
	return scoped(ctx, st, agent, func(s Scope) (v rows.Secret, err error) {
		if st.Keys.Path == "" {
			return v, rows.ErrNoKeys
		}
		keys, err := seal.New(ctx, st.Keys) // the primary key may have been rotated since the last one
		if err != nil {
			st.Logger.Warn("keys of secrets not read", "error", err)
			const text = "this server can't read its keys for secrets now: its log has why"
			return v, &rows.Refusal{Kind: rows.ErrNoKeys, Text: text}
		}
		return Vault{DB: s.db, Sealer: keys}.Put(ctx, s, house, name, value)
	})
}

// DeleteSecret implements rows.Secrets.
func (st *Store) DeleteSecret(ctx context.Context, agent, house, name string) error {
	_, err := scoped(ctx, st, agent, func(s Scope) (any, error) { return nil, s.DeleteSecret(ctx, house, name) })
	return err
}
