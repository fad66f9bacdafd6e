// Package output takes what a program or a server under test writes: as a text that may be read meanwhile, or line by
// line.
package output

import (
	"bytes"
	"encoding/json"
	"strings"
	"sync"
	"testing"
	"time"
)

// Buffer is a text that several goroutines may write and read. The zero value is empty.
type Buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// Write appends to the text.
func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

// String returns the text so far.
func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// Lines is a log of JSON lines, each written at once, that a test reads one by one. A write waits where it is full.
type Lines chan string

// Write sends a line.
func (l Lines) Write(b []byte) (int, error) {
	l <- string(b)
	return len(b), nil
}

// mostWait is how long Next waits for a line. A test that waits for so long has failed.
const mostWait = 5 * time.Minute

// Next returns the next line, parsed. It fails the test where that is no JSON object in one line, or none comes.
func (l Lines) Next(t testing.TB) map[string]any {
	t.Helper()
	select {
	case text := <-l:
		var v map[string]any
		if err := json.Unmarshal([]byte(text), &v); err != nil || strings.Count(text, "\n") != 1 ||
			!strings.HasSuffix(text, "\n") {
			t.Fatalf("no line of JSON: %q, %v", text, err)
		}
		return v
	case <-time.After(mostWait):
		t.Fatal("nothing was logged")
		return nil
	}
}
