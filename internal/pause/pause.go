// Package pause waits between two tries, or until a context ends.
package pause

import (
	"context"
	"time"
)

// For waits for d, or until ctx is done. It reports whether ctx is not done.
func For(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}
