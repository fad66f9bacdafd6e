package server_test

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	house "arbe.0sk.ar/runner/host/rows"
)

// store is the rows of a test's houses in memory, for members as rows has them. fail is the error of each call, and
// lose that of a deletion once the logs are gone. Tests change it by change.
type store struct {
	*rows

	threads map[string]house.Thread
	order   []string
	recipe  house.Recipe // of the environment e1
	values  map[string]string
	fail    error
	lose    error
	missed  func() // called by the next look for a thread that does not exist, before it returns
}

func newStore(r *rows) *store {
	return &store{rows: r, threads: map[string]house.Thread{}, values: map[string]string{}}
}

// As implements rows.Store.
func (s *store) As(agent string) house.Scope { return scope{store: s, agent: agent} }

// scope is the rows of one agent.
type scope struct {
	house.Scope
	*store
	agent string
}

// sees reports whether an agent sees what is of a house. The caller holds mu.
func (s *store) sees(agent, of string) bool {
	return agent == "" || slices.Contains(s.houses[agent], of)
}

func (s *store) add(id, of string, change func(*house.Thread)) {
	t := house.Thread{ID: id, House: of, CreatedAt: time.UnixMilli(int64(1000 + len(s.order)))}
	if change != nil {
		change(&t)
	}
	s.threads[id], s.order, s.of[id] = t, append(s.order, id), of
}

func (s scope) Threads(_ context.Context, q house.Query) (all []house.Thread, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range slices.Backward(s.order) {
		t, is := s.threads[id]
		if is && s.sees(s.agent, t.House) && (q.IDs == nil || slices.Contains(q.IDs, id)) &&
			(q.House == "" || q.House == t.House) && (!q.Pinned || t.Pinned) && len(all) < q.Limit &&
			(q.After.ID == "" || t.CreatedAt.Before(q.After.CreatedAt)) {
			all = append(all, t)
		}
	}
	return all, s.fail
}

func (s scope) Thread(_ context.Context, id string) (house.Thread, error) {
	s.mu.Lock()
	t, is := s.threads[id]
	missed, err := s.missed, s.fail
	if is = is && s.sees(s.agent, t.House); !is {
		s.missed, err = nil, cmp.Or(s.fail, house.ErrAbsent)
	}
	s.mu.Unlock()
	if !is && missed != nil {
		missed()
	}
	return t, err
}

func (s scope) CreateThread(_ context.Context, n house.NewThread) (house.Thread, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fail != nil {
		return house.Thread{}, s.fail
	}
	id := cmp.Or(n.ID, fmt.Sprint("new", len(s.order)))
	if _, is := s.threads[id]; is {
		return house.Thread{}, &house.Refusal{Kind: house.ErrTaken, Text: "the thread's id: taken"}
	}
	s.add(id, n.House, nil)
	return s.threads[id], nil
}

func (s scope) DeleteThread(
	ctx context.Context, id string, logs func(context.Context, []string) error,
) error {
	if _, err := s.Thread(ctx, id); err != nil {
		return err
	}
	err := logs(ctx, []string{id})
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := cmp.Or(err, s.lose); err != nil {
		return err
	}
	delete(s.threads, id)
	return nil
}

func (s scope) CreateEnvironment(
	_ context.Context, of string, r house.Recipe,
) (house.Environment, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.recipe = r
	return house.Environment{ID: "e1", House: of, Recipe: r}, s.fail
}

func (s scope) Environment(_ context.Context, id string) (house.Environment, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if id != "e1" || !s.sees(s.agent, "h1") {
		return house.Environment{}, house.ErrAbsent
	}
	return house.Environment{ID: id, House: "h1", Recipe: s.recipe}, s.fail
}

func (s scope) ChangeEnvironment(
	_ context.Context, id string, c house.EnvironmentChange,
) (house.Environment, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.recipe
	if c.Recipe != nil {
		if err := c.Recipe(&r); err != nil {
			return house.Environment{}, err
		}
	}
	s.recipe = r
	return house.Environment{ID: id, House: "h1", Recipe: r}, nil
}

func (s scope) PutSecret(_ context.Context, of, name string, value []byte) (house.Secret, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.values[of+" "+name] = string(value)
	return house.Secret{Name: name}, s.fail
}
