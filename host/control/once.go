package control

import (
	"context"
	"sync/atomic"
	"time"

	"golang.org/x/sync/singleflight"
)

// openFor bounds the time in which a database is opened.
const openFor = 20 * time.Second

// Once returns what opens a database once: open is called again only after an error. Callers at the same time share one
// call of open, which is bounded; each waits for as long as its own context lasts.
func Once(open func(context.Context) (*DB, error)) func(context.Context) (*DB, error) {
	var db atomic.Pointer[DB]
	var attempts singleflight.Group
	return func(ctx context.Context) (*DB, error) {
		if got := db.Load(); got != nil {
			return got, nil
		}
		result := attempts.DoChan("", func() (any, error) {
			if got := db.Load(); got != nil {
				return got, nil
			}
			limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), openFor)
			defer cancel()
			got, err := open(limited)
			if err == nil {
				db.Store(got)
			}
			return got, err
		})
		select {
		case r := <-result:
			got, _ := r.Val.(*DB)
			return got, r.Err
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}
