package sandbox

import "sync"

// output keeps a command's output up to a limit and passes it to the caller.
type output struct {
	limit int
	pass  func(Stream, []byte) // nil where the caller wants no output

	mu   sync.Mutex // one call of pass at a time
	kept [2][]byte
	cut  bool
}

func newOutput(c Command) *output {
	limit := c.MaxOutput
	if limit <= 0 {
		limit = DefaultMaxOutput
	}
	return &output{limit: limit, pass: c.Output}
}

func (o *output) add(s Stream, b []byte) {
	if len(b) == 0 {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	kept := &o.kept[s-Stdout]
	room := min(o.limit-len(*kept), len(b))
	*kept = append(*kept, b[:room]...)
	o.cut = o.cut || room < len(b)
	if o.pass != nil {
		o.pass(s, b)
	}
}

// fill copies the output into r.
func (o *output) fill(r *Result) {
	o.mu.Lock()
	defer o.mu.Unlock()
	r.Stdout, r.Stderr, r.Truncated = o.kept[0], o.kept[1], o.cut
}
