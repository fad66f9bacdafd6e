package log

import (
	"bytes"
	"errors"
	"log/slog"
	"testing"

	"arbe.0sk.ar/runner/host/log/pebble"
)

// A stream takes no more than its quota, but for small posts at its end. What was there when the quota came counts, and
// another server, which has not seen the stream, counts the same.
func TestQuota(t *testing.T) {
	engine, err := pebble.Open(t.TempDir(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	l := New(engine)
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	body := func(size int) []byte { return bytes.Repeat([]byte("x"), size) }
	if _, _, err := l.Create(t.Context(), "s", Want{Type: "text/plain", Body: body(1 << 20)}); err != nil {
		t.Fatal(err)
	}
	l.Quota = 3 << 20
	post := func(size int) bool {
		t.Helper()
		_, err := l.Post(t.Context(), "s", Post{Type: "text/plain", Body: body(size)})
		if err != nil && !errors.As(err, new(*QuotaError)) {
			t.Fatal(err)
		}
		return err == nil
	}
	for i, want := range []bool{true, false, false} {
		if got := post(1_500_000); got != want {
			t.Errorf("post %d: got %v, want %v", i, got, want)
		}
	}
	for n := 0; post(60_000); n++ {
		if n > 100 {
			t.Fatal("small posts have no end")
		}
	}
	again := New(l.engine)
	v, err := again.Stat(t.Context(), "s")
	if err != nil {
		t.Fatal(err)
	}
	size, err := again.sizeOf(t.Context(), v)
	if known := l.streams.Peek("s").Value.size; err != nil || size != known || size < 3<<20 {
		t.Errorf("the stream has %d bytes, %v; it was known to have %d", size, err, known)
	}
}
