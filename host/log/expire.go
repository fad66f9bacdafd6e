package log

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"arbe.0sk.ar/runner/host/log/engine"
)

// Retention limits how long a log keeps records.
type Retention struct {
	// Heartbeats is how long a run's heartbeats are kept after its end; 0 for ever. The last one of each run stays.
	Heartbeats time.Duration

	// Passing is how long entries of a type that IsPassing are kept: a bot's text as it comes after its round, or its
	// reaction, has ended, and a reaction's signs of life after its end; 0 for ever. The last sign of life stays.
	Passing time.Duration
}

// Pass is the result of one pass over the log.
type Pass struct {
	Streams    int // looked at
	Expired    int // deleted, because their time was over
	Deleted    int // deleted before by a caller, and kept until now for their forks
	Heartbeats int // removed, or kept because of another record with the same offset
	Passing    int // likewise
	Failed     int // streams where an error occurred
}

// Expire goes over the log once: it deletes streams that have expired and deleted streams without forks, and compacts
// threads. After an error it continues with the next stream, and returns the first one. It may be repeated, and several
// servers may do it at once.
func (l *Log) Expire(ctx context.Context, now time.Time, keep Retention) (Pass, error) {
	var p Pass
	var first error
	err := l.engine.Streams(ctx, func(name string, head engine.Head) error {
		var err error
		if _, is := announced(name); is {
			err = l.expireNotice(ctx, now, name, head)
		} else {
			p.Streams++
			err = l.expire(ctx, now, keep, name, head, &p)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			p.Failed++
			if first == nil {
				first = fmt.Errorf("expire %s: %w", name, err)
			}
		}
		return nil
	})
	return p, errors.Join(err, first)
}

// expire is Expire for one stream.
func (l *Log) expire(
	ctx context.Context, now time.Time, keep Retention, name string, head engine.Head, p *Pass,
) error {
	v, err := l.judge(ctx, name, head)
	switch {
	case errors.As(err, new(*undeletedError)):
		return err
	case errors.Is(err, ErrAbsent):
		p.Expired++
		return nil
	case errors.Is(err, ErrGone):
		if err := l.deleteGone(ctx, v); err != nil {
			return err
		}
		if head, err = l.engine.Head(ctx, name); err == nil && !head.Exists() {
			p.Deleted++
		}
		return err
	case err != nil:
		return err
	}
	if !v.Passing {
		keep.Passing = 0
	}
	if !isThread(name) || keep == (Retention{}) || v.Fork != nil {
		return nil
	}
	return l.compact(ctx, now, keep, v, p)
}

// ExpireLoop calls Expire now and after each time of every, until ctx is done. It returns nil then.
func (l *Log) ExpireLoop(ctx context.Context, every time.Duration, keep Retention, logger *slog.Logger) error {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		began := time.Now()
		p, err := l.Expire(ctx, began, keep)
		if ctx.Err() != nil {
			return nil
		}
		logger := logger.With("streams", p.Streams, "expired", p.Expired, "deleted", p.Deleted,
			"heartbeats", p.Heartbeats, "passing", p.Passing, "ms", time.Since(began).Milliseconds())
		switch {
		case err != nil:
			logger.Warn("retention applied in part", "failed", p.Failed, "error", err) // the next pass tries again
		case p.Expired+p.Deleted+p.Heartbeats+p.Passing > 0:
			logger.Info("retention applied")
		default:
			logger.Debug("retention applied")
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil
		}
	}
}
