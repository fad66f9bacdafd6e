package provision_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"arbe.0sk.ar/runner/host/provision"
	"arbe.0sk.ar/runner/host/rows"
)

var (
	errAway = errors.New("the database is away")
	errBad  = errors.New("no such repository")
)

// queue is a queue of one host in memory, in virtual time.
type queue struct {
	mu       sync.Mutex
	due      map[string]time.Time
	attempts map[string]int
	lost     map[string]bool // another host has taken them
	away     bool
}

func newQueue(ids ...string) *queue {
	q := &queue{due: map[string]time.Time{}, attempts: map[string]int{}, lost: map[string]bool{}}
	for _, id := range ids {
		q.due[id] = time.Now()
	}
	return q
}

func (q *queue) Take(_ context.Context, lease time.Duration, limit int) (all []rows.Task, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.away {
		return nil, errAway
	}
	for id, at := range q.due {
		if at.After(time.Now()) || len(all) == limit {
			continue
		}
		q.due[id] = time.Now().Add(lease)
		q.attempts[id]++
		all = append(all, rows.Task{Thread: id, Parent: "p", Attempts: q.attempts[id]})
	}
	return all, nil
}

func (q *queue) set(id string, change func()) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.away:
		return errAway
	case q.lost[id]:
		return rows.ErrLost
	}
	change()
	return nil
}

func (q *queue) Renew(_ context.Context, id string, lease time.Duration) error {
	return q.set(id, func() { q.due[id] = time.Now().Add(lease) })
}

func (q *queue) PutBack(_ context.Context, id string, after time.Duration, free bool) error {
	return q.set(id, func() {
		q.due[id] = time.Now().Add(after)
		if free {
			q.attempts[id]--
		}
	})
}

func (q *queue) Done(_ context.Context, id string) error {
	return q.set(id, func() { delete(q.due, id) })
}

// host is a host whose launches end as a test wants.
type host struct {
	launch func(ctx context.Context, o rows.Task) error
	refuse func() error

	mu    sync.Mutex
	calls []string
}

func (h *host) note(call string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.calls = append(h.calls, call)
}

func (h *host) count(call string) (n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range h.calls {
		if c == call {
			n++
		}
	}
	return n
}

func (h *host) Announce(_ context.Context, o rows.Task) error {
	h.note("announce " + o.Thread)
	return nil
}

func (h *host) Launch(ctx context.Context, o rows.Task) (again bool, err error) {
	h.note("launch " + o.Thread)
	err = h.launch(ctx, o)
	return errors.Is(err, errAway), err
}

func (h *host) Refuse(_ context.Context, o rows.Task, cause error) error {
	h.note("refuse " + o.Thread + ": " + cause.Error())
	if h.refuse != nil {
		return h.refuse()
	}
	return nil
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// play runs a provisioner in virtual time until a condition, and stops it.
func play(t *testing.T, p provision.Provisioner, until func() bool) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	for synctest.Wait(); !until(); synctest.Wait() {
		time.Sleep(100 * time.Millisecond) // of virtual time
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// The end of a task, by how its launches end.
func TestEnds(t *testing.T) {
	for _, tt := range []struct {
		name   string
		launch func(n int) error
		refuse func(n int) error
		want   []string
	}{
		{"launched", func(int) error { return nil }, nil, []string{"announce t", "launch t"}},
		{"failed for good", func(int) error { return errBad }, nil, []string{"announce t", "launch t"}},
		{"launched at the third attempt", func(n int) error {
			if n < 3 {
				return errAway
			}
			return nil
		}, nil, []string{"announce t", "launch t", "announce t", "launch t", "announce t", "launch t"}},
		{
			"never", func(int) error { return errAway }, nil,
			[]string{
				"announce t", "launch t", "announce t", "launch t", "announce t", "launch t",
				"refuse t: the database is away (tried 3 times)",
			},
		},
		{
			"after another run's end, however long that takes", func(n int) error {
				if n < 5 {
					return fmt.Errorf("%w: r0", provision.ErrBusy)
				}
				return nil
			}, nil,
			slices.Repeat([]string{"announce t", "launch t"}, 5),
		},
		{
			"never, and another run is in the way of the refusal", func(int) error { return errAway },
			func(n int) error {
				if n < 3 {
					return fmt.Errorf("%w: r0", provision.ErrBusy)
				}
				return nil
			},
			[]string{
				"announce t", "launch t", "announce t", "launch t", "announce t", "launch t",
				"refuse t: the database is away (tried 3 times)", "announce t", "launch t",
				"refuse t: the database is away (tried 3 times)", "announce t", "launch t",
				"refuse t: the database is away (tried 3 times)",
			},
		},
		{
			"never, and the thread can't be written at first", func(int) error { return errAway },
			func(n int) error {
				if n == 1 {
					return errAway
				}
				return nil
			},
			[]string{
				"announce t", "launch t", "announce t", "launch t", "announce t", "launch t",
				"refuse t: the database is away (tried 3 times)", "announce t",
				"refuse t: the launch was begun 3 times, and no host has ended it",
			},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q, launches, refusals := newQueue("t"), 0, 0
				h := &host{launch: func(context.Context, rows.Task) error {
					launches++
					return tt.launch(launches)
				}, refuse: func() error {
					if refusals++; tt.refuse != nil {
						return tt.refuse(refusals)
					}
					return nil
				}}
				play(t, provision.Provisioner{Queue: q, Host: h, Log: quiet(), Tries: 3}, func() bool {
					q.mu.Lock()
					defer q.mu.Unlock()
					return len(q.due) == 0
				})
				if !slices.Equal(h.calls, tt.want) {
					t.Errorf("got %q", h.calls)
				}
			})
		})
	}
}

// A stop of the host ends its launches; they do not count as attempts, and are due at once.
func TestStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue("a", "b")
		var causes []error
		h := &host{}
		h.launch = func(ctx context.Context, o rows.Task) error {
			<-ctx.Done()
			h.mu.Lock()
			defer h.mu.Unlock()
			causes = append(causes, context.Cause(ctx))
			return ctx.Err()
		}
		play(t, provision.Provisioner{Queue: q, Host: h, Log: quiet()}, func() bool {
			return h.count("launch a")+h.count("launch b") == 2
		})
		for _, id := range []string{"a", "b"} {
			if q.due[id].After(time.Now()) || q.attempts[id] != 0 {
				t.Errorf("%s is due at %v after %d attempts", id, q.due[id], q.attempts[id])
			}
		}
		for _, err := range causes {
			if !errors.Is(err, provision.ErrStopped) {
				t.Errorf("a launch was ended by %v", err)
			}
		}
	})
}

// A launch ends where its host has lost the task, or can't know that it has it; the host changes nothing then.
func TestLost(t *testing.T) {
	for name, lose := range map[string]func(*queue){
		"another host has it":       func(q *queue) { q.lost["t"] = true },
		"the queue does not answer": func(q *queue) { q.away = true },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q, began := newQueue("t"), time.Now()
				var lasted time.Duration
				h := &host{launch: func(ctx context.Context, o rows.Task) error {
					q.mu.Lock()
					lose(q)
					q.mu.Unlock()
					<-ctx.Done()
					q.mu.Lock()
					defer q.mu.Unlock()
					lasted = time.Since(began)
					return ctx.Err()
				}}
				p := provision.Provisioner{Queue: q, Host: h, Log: quiet(), Lease: time.Minute}
				play(t, p, func() bool {
					q.mu.Lock()
					defer q.mu.Unlock()
					return lasted > 0
				})
				if lasted > time.Minute || h.count("launch t") != 1 {
					t.Errorf("the launch lasted %v: %q", lasted, h.calls)
				}
				if at, there := q.due["t"]; !there || at.Before(began.Add(time.Minute)) {
					t.Errorf("the task is due at %v, %v", at, there)
				}
			})
		})
	}
}

// No more launches at the same time than wanted, and a place that is free is used at once.
func TestMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue("a", "b", "c", "d", "e")
		now, most := 0, 0
		h := &host{}
		h.launch = func(context.Context, rows.Task) error {
			h.mu.Lock()
			now++
			most = max(most, now)
			h.mu.Unlock()
			time.Sleep(10 * time.Second) // of virtual time
			h.mu.Lock()
			now--
			h.mu.Unlock()
			return nil
		}
		began := time.Now()
		play(t, provision.Provisioner{Queue: q, Host: h, Log: quiet(), Most: 2}, func() bool {
			q.mu.Lock()
			defer q.mu.Unlock()
			return len(q.due) == 0
		})
		if took := time.Since(began); most != 2 || took > 31*time.Second {
			t.Errorf("%d launches at the same time, all in %v", most, took)
		}
	})
}

// Once launches what is due, and leaves what is not.
func TestOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue("a", "b", "c")
		q.due["later"] = time.Now().Add(time.Hour)
		h := &host{launch: func(_ context.Context, o rows.Task) error {
			if o.Thread == "b" {
				return errAway
			}
			return nil
		}}
		if err := (provision.Provisioner{Queue: q, Host: h, Log: quiet(), Most: 2}).Once(t.Context()); err != nil {
			t.Error(err)
		}
		if _, left := q.due["b"]; !left || len(q.due) != 2 {
			t.Errorf("left: %v", q.due)
		}
		q.away = true
		if err := (provision.Provisioner{Queue: q, Host: h, Log: quiet()}).Once(t.Context()); !errors.Is(err, errAway) {
			t.Errorf("got %v", err)
		}
	})
}
