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
	house.Store
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

func (s *store) Threads(_ context.Context, agent string, q house.Query) (all []house.Thread, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range slices.Backward(s.order) {
		t, is := s.threads[id]
		if is && s.sees(agent, t.House) && (q.IDs == nil || slices.Contains(q.IDs, id)) &&
			(q.House == "" || q.House == t.House) && (!q.Pinned || t.Pinned) && len(all) < q.Limit &&
			(q.After.ID == "" || t.CreatedAt.Before(q.After.CreatedAt)) {
			all = append(all, t)
		}
	}
	return all, s.fail
}

func (s *store) Thread(_ context.Context, agent, id string) (house.Thread, error) {
	s.mu.Lock()
	t, is := s.threads[id]
	missed, err := s.missed, s.fail
	if is = is && s.sees(agent, t.House); !is {
		s.missed, err = nil, cmp.Or(s.fail, house.ErrAbsent)
	}
	s.mu.Unlock()
	if !is && missed != nil {
		missed()
	}
	return t, err
}

func (s *store) CreateThread(_ context.Context, _ string, n house.NewThread) (house.Thread, error) {
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

func (s *store) DeleteThread(
	ctx context.Context, agent, id string, logs func(context.Context, []string) error,
) error {
	if _, err := s.Thread(ctx, agent, id); err != nil {
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

func (s *store) CreateEnvironment(
	_ context.Context, _, of string, r house.Recipe,
) (house.Environment, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.recipe = r
	return house.Environment{ID: "e1", House: of, Recipe: r}, s.fail
}

func (s *store) Environment(_ context.Context, agent, id string) (house.Environment, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if id != "e1" || !s.sees(agent, "h1") {
		return house.Environment{}, house.ErrAbsent
	}
	return house.Environment{ID: id, House: "h1", Recipe: s.recipe}, s.fail
}

func (s *store) ChangeEnvironment(
	_ context.Context, _, id string, c house.EnvironmentChange,
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

func (s *store) PutSecret(_ context.Context, _, of, name string, value []byte) (house.Secret, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.values[of+" "+name] = string(value)
	return house.Secret{Name: name}, s.fail
}
