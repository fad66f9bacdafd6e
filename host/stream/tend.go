package stream

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"arbe.0sk.ar/runner/host/log/engine"
)

// Rules say what is kept, and for how long.
type Rules struct {
	// Heartbeats is how long a run's heartbeats are kept once it has ended; 0 for ever. The last one of each run stays.
	Heartbeats time.Duration
}

// Tended is what a pass over the log has done.
type Tended struct {
	Streams    int // looked at
	Expired    int // deleted, because their time was over
	Buried     int // were deleted before, and kept for forks that are gone by now
	Heartbeats int // removed, or left where they stand together with what stays
	Failed     int // streams that could not be tended
}

// Tend goes over the log once: it deletes streams whose time is over, buries those that are gone, and removes what the rules don't keep. A stream that
// can't be tended does not keep it from the others: the error is that of the first one. It may be done again, and by several servers at once.
func (l *Log) Tend(ctx context.Context, now time.Time, rules Rules) (Tended, error) {
	var t Tended
	var first error
	err := l.engine.Streams(ctx, func(name string, head engine.Head) error {
		t.Streams++
		err := l.tend(ctx, now, rules, name, head, &t)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			t.Failed++
			if first == nil {
				first = fmt.Errorf("tend %s: %w", name, err)
			}
		}
		return nil
	})
	return t, errors.Join(err, first)
}

// tend tends one stream.
func (l *Log) tend(ctx context.Context, now time.Time, rules Rules, name string, head engine.Head, t *Tended) error {
	v, err := l.judge(ctx, name, head)
	switch {
	case errors.As(err, new(*undeletedError)):
		return err
	case errors.Is(err, errAbsent):
		t.Expired++
		return nil
	case errors.Is(err, errGone):
		if err := l.bury(ctx, v); err != nil {
			return err
		}
		if head, err = l.engine.Head(ctx, name); err == nil && !head.Exists() {
			t.Buried++
		}
		return err
	case err != nil:
		return err
	}
	if _, is := threadOf(name); !is || rules.Heartbeats <= 0 || v.Fork != nil {
		return nil
	}
	n, err := l.thin(ctx, now, rules.Heartbeats, v)
	t.Heartbeats += n
	return err
}

// TendLoop tends the log now and then, until ctx is done. It returns nil then.
func (l *Log) TendLoop(ctx context.Context, every time.Duration, rules Rules, logger *slog.Logger) error {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		began := time.Now()
		t, err := l.Tend(ctx, began, rules)
		if ctx.Err() != nil {
			return nil
		}
		log := logger.With("streams", t.Streams, "expired", t.Expired, "buried", t.Buried, "heartbeats", t.Heartbeats, "ms", time.Since(began).Milliseconds())
		switch {
		case err != nil:
			log.Warn("the log was tended in part", "failed", t.Failed, "error", err) // the next pass tries again
		case t.Expired+t.Buried+t.Heartbeats > 0:
			log.Info("the log was tended")
		default:
			log.Debug("the log was tended")
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil
		}
	}
}
