package shortid

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestUUIDPrefix(t *testing.T) {
	for text, want := range map[string]bool{
		"0": true, "01a1fe57": true, "01a1fe57-": true, "01a1fe57-27a9-7058-90a6-9a5db6aeb558": true,
		"01a1fe57-27a9-7058-90a6-9a5db6aeb5581": false, "01a1fe5727": false, "01a1fe5-": false, "01A1": false,
		"demo": false, "": false, "deadbeef": true, "-": false,
	} {
		if got := UUIDPrefix(text); got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}

// Each abbreviation is the beginning of one id alone.
func TestShort(t *testing.T) {
	for _, ids := range [][]string{
		{"01a1fe57-27a9-7058-90a6-9a5db6aeb558", "01a1fe57-27aa-7058-90a6-9a5db6aeb558", "demo", "demo-2"},
		{
			"01a1fe57-27a9-7058-90a6-9a5db6aeb558", "01a1fe57-27a9-7058-90a6-9a5db6aeb559",
			"01a1fe57-27a9-7058-90b6-9a5db6aeb558", "01a1fe57-27a9-7158-90a6-9a5db6aeb558",
			"01a1fe57-27a9-7058-90a6-9a5db6aeb558",
		},
	} {
		short := Shorten(ids)
		for _, id := range ids {
			s := short[id]
			if len(s) < min(len(id), shortUUID) || s != id[:len(s)] || UUIDPrefix(id) && s[len(s)-1] == '-' {
				t.Errorf("%s is shortened to %q", id, s)
			}
			for _, other := range ids {
				if UUIDPrefix(id) && other != id && len(other) >= len(s) && other[:len(s)] == s {
					t.Errorf("%q is the beginning of %s and of %s", s, id, other)
				}
			}
		}
	}
	got := Shorten([]string{"01a1fe57-27a9-7058-90a6-9a5db6aeb558", "01a1fe57-27a9-7158-90a6-9a5db6aeb558", "demo"})
	want := map[string]string{
		"01a1fe57-27a9-7058-90a6-9a5db6aeb558": "01a1fe57-27a9-70",
		"01a1fe57-27a9-7158-90a6-9a5db6aeb558": "01a1fe57-27a9-71", "demo": "demo",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestBornAfter(t *testing.T) {
	now := time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC)
	for prefix, want := range map[string]time.Time{
		"demo": {}, "019e7": {}, "f47ac10b-58cc": {}, "00000000-58cc": {}, // too short, or no time of a thread
		"019e7ea2-3400":         now.AddDate(0, 0, -33).Add(-clockSkew),
		"019e7ea2-3400-4058-90": {}, // of version 4
	} {
		got := BornAfter(prefix, now)
		if want.IsZero() != got.IsZero() || got.After(now) {
			t.Errorf("%s: %v", prefix, got)
		}
	}
	const ms = 0x019e7ea23400
	if got, want := BornAfter("019e7ea2-3400", now), time.UnixMilli(ms).Add(-clockSkew); !got.Equal(want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got, want := BornAfter("019e7ea2", now), time.UnixMilli(ms&^0xffff).Add(-clockSkew); !got.Equal(want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
