// Package member decides what a member of a house may open: the threads of the houses that the member is in.
//
// A member shows a login token, a JSON Web Token whose subject is the agent's id (a UUID). It is one that this server
// has signed (SignLogin), or one of an identity provider, verified with its published keys (Provider). A login token is
// no token of package token, and no such token is a login token: they have different keys and audiences.
//
// Who is in which house, and which thread is of which house, stands in rows that the caller brings (Rows). Each
// decision reads them, so a membership that ends, ends at once. Nothing here knows a database.
package member

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// Rows are the rows about houses. Their methods may be called at the same time, and are bound by their context.
type Rows interface {
	// Houses returns the houses of an agent; none for an agent that does not exist.
	Houses(ctx context.Context, agent string) ([]string, error)

	// Closed reports whether a thread is a closed chat: its members do not post any more.
	Closed(ctx context.Context, thread string) (bool, error)

	// HousesOf returns the house of each of some threads, by the thread's id. Threads without a house are not in it.
	HousesOf(ctx context.Context, threads []string) (map[string]string, error)
}

// Member is an agent and its houses at the time of a request.
type Member struct {
	Agent  string // its id, a UUID in lower case; "" for no agent
	Houses []string
	Until  time.Time // when the login token expires; zero without one
}

// Doors are the decisions about members. Their methods may be called at the same time.
type Doors struct {
	Logins Logins
	Rows   Rows

	mu     sync.Mutex // guards houses
	houses map[string]house
}

// ErrRows is the error of rows that can't be read now.
var ErrRows = errors.New("the houses can't be read now")

// Member returns whose token it is. It returns ErrLogin for a token that is not good, ErrNoKeys and ErrRows.
func (d *Doors) Member(ctx context.Context, token string) (Member, error) {
	agent, until, err := d.Logins.Verify(ctx, token)
	if err != nil {
		return Member{}, err
	}
	m, err := d.Agent(ctx, agent)
	m.Until = until
	return m, err
}

// Agent returns the member of this id, who has logged in before. It returns ErrRows.
func (d *Doors) Agent(ctx context.Context, agent string) (Member, error) {
	houses, err := d.Rows.Houses(ctx, agent)
	if err != nil {
		return Member{}, fmt.Errorf("%w: %w", ErrRows, err)
	}
	return Member{Agent: agent, Houses: houses}, nil
}

// MayOpen reports whether a thread belongs to one of the member's houses. It returns ErrRows.
func (d *Doors) MayOpen(ctx context.Context, m Member, thread string) (bool, error) {
	may, err := d.Open(ctx, m, []string{thread})
	return may[thread], err
}

// Open returns which of some threads belong to one of the member's houses. It returns ErrRows.
func (d *Doors) Open(ctx context.Context, m Member, threads []string) (map[string]bool, error) {
	if len(m.Houses) == 0 || len(threads) == 0 {
		return nil, nil
	}
	houses, err := d.Rows.HousesOf(ctx, threads)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrRows, err)
	}
	may := make(map[string]bool, len(houses))
	for id, of := range houses {
		may[id] = of != "" && slices.Contains(m.Houses, of)
	}
	return may, nil
}

// Filter returns a function as index.Query.Only: which of some threads an agent may open, at the time of each call.
func (d *Doors) Filter(agent string) func(ctx context.Context, threads []string) (map[string]bool, error) {
	return func(ctx context.Context, threads []string) (map[string]bool, error) {
		m, err := d.Agent(ctx, agent)
		if err != nil {
			return nil, err
		}
		return d.Open(ctx, m, threads)
	}
}

// house is a thread's house as it was read.
type house struct {
	name string
	read time.Time
}

const (
	houseLife  = time.Minute // a house that was read serves so long
	mostHouses = 10_000
)

// HouseOf returns the house of a thread; "" for none. The answer is up to a minute old, or older where the rows can't
// be read. It returns ErrRows where the house was never read.
func (d *Doors) HouseOf(ctx context.Context, thread string) (string, error) {
	d.mu.Lock()
	known, ok := d.houses[thread]
	d.mu.Unlock()
	if ok && time.Since(known.read) < houseLife {
		return known.name, nil
	}
	all, err := d.Rows.HousesOf(ctx, []string{thread})
	if err != nil {
		if ok {
			return known.name, nil // houses do not change, and a run must not end with the database
		}
		return "", fmt.Errorf("%w: %w", ErrRows, err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.houses == nil || len(d.houses) >= mostHouses {
		d.houses = map[string]house{}
	}
	d.houses[thread] = house{all[thread], time.Now()}
	return all[thread], nil
}

// Forget drops what HouseOf has read of a thread: its row was made or deleted.
func (d *Doors) Forget(thread string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.houses, thread)
}

// IsClosed reports whether members may not post to a thread any more. It returns ErrRows.
func (d *Doors) IsClosed(ctx context.Context, thread string) (bool, error) {
	closed, err := d.Rows.Closed(ctx, thread)
	if err != nil {
		return false, fmt.Errorf("%w: %w", ErrRows, err)
	}
	return closed, nil
}
