package exec

import (
	"context"
	"errors"
	"sync"
)

// Group starts posted commands at the same time, up to a limit, beside a server. Only the start of a command is in the
// group: what has been started does not depend on this process.
type Group struct {
	most int
	ctx  context.Context // ends with ErrStopped
	stop context.CancelCauseFunc

	mu      sync.Mutex
	under   int // starts under way, and those reserved
	stopped bool
	starts  sync.WaitGroup
}

// Errors of Reserve.
var (
	ErrFull = errors.New("too many commands are being started")
	// ErrEnding is returned by a group that has been stopped.
	ErrEnding = errors.New("the server is being stopped")
)

// NewGroup returns a group for at most so many starts at the same time.
func NewGroup(most int) *Group {
	g := &Group{most: most}
	g.ctx, g.stop = context.WithCancelCause(context.Background())
	return g
}

// Reserve makes room for one start. The caller calls one of both once: start runs f in a goroutine of the group, whose
// context ends with ErrStopped; free gives the room back.
func (g *Group) Reserve() (start func(f func(context.Context)), free func(), err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.stopped:
		return nil, nil, ErrEnding
	case g.under == g.most:
		return nil, nil, ErrFull
	}
	g.under++
	g.starts.Add(1)
	free = func() {
		g.mu.Lock()
		g.under--
		g.mu.Unlock()
		g.starts.Done()
	}
	return func(f func(context.Context)) {
		go func() {
			defer free()
			f(g.ctx)
		}()
	}, free, nil
}

// Run waits for ctx. Then it stops the starts that are under way, and waits for them.
func (g *Group) Run(ctx context.Context) error {
	<-ctx.Done()
	g.mu.Lock()
	g.stopped = true
	g.mu.Unlock()
	g.stop(ErrStopped)
	g.starts.Wait()
	return nil
}
