package session_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"arbe.0sk.ar/runner/session"
)

// wait returns how long Wait took.
func wait(t *testing.T, w *session.Watch, atMost time.Duration) time.Duration {
	t.Helper()
	began := time.Now()
	w.Wait(t.Context(), atMost)
	return time.Since(began)
}

func TestWatch(t *testing.T) {
	path := filepath.Join(t.TempDir(), "late", "s.jsonl")
	w := session.NewWatch(path)
	defer w.Close()
	if d := wait(t, w, 50*time.Millisecond); d < 50*time.Millisecond {
		t.Errorf("without a folder it waited %v", d)
	}
	if err := os.Mkdir(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	wait(t, w, time.Minute) // returns once it watches
	for i := range 3 {
		done := make(chan time.Duration, 1)
		go func() { done <- wait(t, w, time.Minute) }()
		write(t, filepath.Join(filepath.Dir(path), "another"), os.O_APPEND, []byte("x")) // does not count
		write(t, path, os.O_APPEND, []byte("x"))
		if d := <-done; d >= time.Minute { // the end of its wait
			t.Errorf("write %d was seen after %v", i, d)
		}
	}
}

func TestWatchEndsWithItsContext(t *testing.T) {
	for name, path := range map[string]string{
		"watching": filepath.Join(t.TempDir(), "s"),
		"polling":  "/no/such/dir/s",
	} {
		w := session.NewWatch(path)
		defer w.Close()
		w.Wait(t.Context(), time.Millisecond)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		began := time.Now()
		w.Wait(ctx, time.Minute)
		if d := time.Since(began); d >= time.Minute { // the end of its wait
			t.Errorf("%s: waited %v", name, d)
		}
	}
}

// With more events than the kernel keeps, the watch reports a change, and continues.
func TestWatchOverflow(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "s.jsonl")
	w := session.NewWatch(path)
	defer w.Close()
	wait(t, w, time.Minute)
	for i := range 12_000 { // two or three events each, and room for 16,384
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprint(i%7)), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(t, path, 0, []byte("x"))
	if d := wait(t, w, time.Minute); d >= time.Minute { // the end of its wait
		t.Errorf("waited %v", d)
	}
}
