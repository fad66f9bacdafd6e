package view

import "arbe.0sk.ar/runner/thread"

// Part selects the entries of one run. A mirrored line, and a chat from elsewhere, has no run's id: it is of the run
// that began last before it.
type Part struct {
	Run string // its id

	in   bool
	seen map[string]bool // runs that have begun
}

// Has reports whether the thread's next entry is one of the run.
func (p *Part) Has(e thread.Entry) bool {
	f, err := thread.Scan(e.Payload)
	if err != nil || f.RunID == "" {
		return p.in
	}
	if p.seen == nil {
		p.seen = map[string]bool{}
	}
	if !p.seen[f.RunID] {
		p.seen[f.RunID] = true
		p.in = f.RunID == p.Run
	}
	return f.RunID == p.Run
}
