package kit

import (
	"cmp"
	"sync"

	"arbe.0sk.ar/runner/host/sandbox"
)

// Capture keeps a command's output up to a limit and passes it to the caller.
type Capture struct {
	Limit int                          // bytes to keep of each output
	pass  func(sandbox.Stream, []byte) // nil where the caller wants no output

	mu   sync.Mutex // one call of pass at a time
	kept [2][]byte
	cut  bool
}

// NewCapture returns the capture of a command.
func NewCapture(c sandbox.Command) *Capture {
	return &Capture{Limit: cmp.Or(c.MaxOutput, sandbox.DefaultMaxOutput), pass: c.Output}
}

// Add takes a part of an output.
func (o *Capture) Add(s sandbox.Stream, b []byte) {
	if len(b) == 0 {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	kept := &o.kept[s-sandbox.Stdout]
	room := min(o.Limit-len(*kept), len(b))
	*kept = append(*kept, b[:room]...)
	o.cut = o.cut || room < len(b)
	if o.pass != nil {
		o.pass(s, b)
	}
}

// Fill copies the output into r.
func (o *Capture) Fill(r *sandbox.Result) {
	o.mu.Lock()
	defer o.mu.Unlock()
	r.Stdout, r.Stderr, r.Truncated = o.kept[0], o.kept[1], o.cut
}
