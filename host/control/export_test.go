package control

import "context"

// ErrNotLeading is errNotLeading.
var ErrNotLeading = errNotLeading

// Leader is a projector that writes, step by step.
type Leader struct{ l *leader }

// Lead makes a projector the one that writes.
func (p *Projector) Lead(ctx context.Context) (Leader, error) {
	l, err := p.lead(ctx)
	return Leader{l}, err
}

// Sync projects what has changed.
func (l Leader) Sync(ctx context.Context) error { return l.l.sync(ctx) }

// Compare projects all rows that differ from the log.
func (l Leader) Compare(ctx context.Context) error { return l.l.compare(ctx, false) }

// Sweep projects the rows without a summary.
func (l Leader) Sweep(ctx context.Context) error { return l.l.compare(ctx, true) }

// Close ends the lead.
func (l Leader) Close() { l.l.close() }
