package command

import (
	"strings"
	"sync"

	"arbe.0sk.ar/runner/thread"
	"arbe.0sk.ar/runner/thread/redact"
)

// Sizes of output.
const (
	mostOutput = 1 << 20  // bytes of a command's output on the thread
	mostText   = 64 << 10 // bytes of the text of one entry
	// mostPieces bounds the pieces that are not taken, and so the entries of a post: a server takes 1000. Beyond it the
	// streams keep their own order only, which is all that two pipes have.
	mostPieces = 500
)

// piece is a part of the output, redacted, valid UTF-8.
type piece struct {
	stream string
	text   string
	last   bool // the output has reached its limit
}

// output collects the output of a command for its entries. It holds no more than mostOutput.
type output struct {
	news chan struct{} // has a token after output that was not taken came

	mu      sync.Mutex
	most    int                      // pieces that are not taken, before parts join earlier ones
	redact  map[string]*redact.Parts // by stream
	pieces  []piece                  // not yet taken
	size    int                      // of all pieces so far
	full    bool
	dropped int64 // bytes behind the limit
}

func newOutput(r *redact.Redactor) *output {
	return &output{most: mostPieces, news: make(chan struct{}, 1), redact: map[string]*redact.Parts{
		thread.StreamStdout: r.Parts(), thread.StreamStderr: r.Parts(),
	}}
}

// write takes a part of a stream. It never waits.
func (o *output) write(stream string, b []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.add(stream, o.redact[stream].Next(b))
}

// close ends the output: what is held is not the beginning of more.
func (o *output) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, stream := range []string{thread.StreamStdout, thread.StreamStderr} {
		o.add(stream, o.redact[stream].Rest())
	}
}

// add adds a redacted part as pieces. The caller holds mu.
func (o *output) add(stream, part string) {
	if len(part) == 0 {
		return
	}
	if o.full {
		o.dropped += int64(len(part))
		return
	}
	text := strings.ToValidUTF8(part, "\uFFFD")
	if left := mostOutput - o.size; len(text) > left {
		o.full, o.dropped = true, int64(len(text)-left)
		text = strings.ToValidUTF8(text[:left], "")
	}
	o.size += len(text)
	for len(text) > 0 {
		if p := o.open(stream); p != nil {
			k := whole(text, mostText-len(p.text))
			p.text, text = p.text+text[:k], text[k:]
		}
		if len(text) == 0 {
			break
		}
		k := whole(text, mostText)
		o.pieces, text = append(o.pieces, piece{stream: stream, text: text[:k]}), text[k:]
	}
	if o.full {
		if n := len(o.pieces); n == 0 || o.pieces[n-1].stream != stream {
			o.pieces = append(o.pieces, piece{stream: stream})
		}
		o.pieces[len(o.pieces)-1].last = true
	}
	select {
	case o.news <- struct{}{}:
	default:
	}
}

// open returns the piece that takes more of a stream; nil for a new one. The caller holds mu.
func (o *output) open(stream string) *piece {
	for i := len(o.pieces) - 1; i >= 0; i-- {
		switch p := &o.pieces[i]; {
		case p.stream == stream && len(p.text) < mostText:
			return p
		case p.stream == stream || len(o.pieces) < o.most:
			return nil
		}
	}
	return nil
}

// few lets the pieces that are not taken be as few as the streams.
func (o *output) few() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.most = 2
}

// whole returns the length of the longest beginning of text of at most n bytes that ends with a whole character.
func whole(text string, n int) int {
	if len(text) <= n {
		return len(text)
	}
	return len(strings.ToValidUTF8(text[:n], ""))
}

// take returns the pieces that have come, and forgets them.
func (o *output) take() []piece {
	o.mu.Lock()
	defer o.mu.Unlock()
	pieces := o.pieces
	o.pieces = nil
	return pieces
}

// cut returns how many bytes of the output are in no piece.
func (o *output) cut() int64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.dropped
}
