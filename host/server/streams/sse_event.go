package streams

import (
	"bufio"
	"bytes"
)

// eventData writes data as that of a server-sent event, a data line for each line of it: a carriage return, a line feed
// and the two together each end one. It buffers nothing.
type eventData struct {
	w     *bufio.Writer // keeps its error
	begun bool          // a line has begun
	cr    bool          // the last byte was a carriage return, which a line feed may complete
}

// Write implements io.Writer.
func (e *eventData) Write(p []byte) (int, error) {
	n := len(p)
	for len(p) > 0 {
		if e.cr && p[0] == '\n' {
			e.cr, p = false, p[1:]
			continue
		}
		e.cr = false
		if !e.begun {
			e.w.WriteString("data:")
			if p[0] == ' ' {
				e.w.WriteByte(' ') // readers remove one
			}
			e.begun = true
		}
		i := bytes.IndexAny(p, "\r\n")
		if i < 0 {
			_, err := e.w.Write(p)
			return n, err
		}
		e.w.Write(p[:i])
		if err := e.w.WriteByte('\n'); err != nil {
			return 0, err
		}
		e.begun, e.cr, p = false, p[i] == '\r', p[i+1:]
	}
	return n, nil
}

// end ends the event.
func (e *eventData) end() error {
	if !e.begun {
		e.w.WriteString("data:")
	}
	_, err := e.w.WriteString("\n\n")
	return err
}
