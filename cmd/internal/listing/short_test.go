package main

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
		if got := uuidPrefix(text); got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}

// Each abbreviation is the beginning of one id alone.
func TestShortIDs(t *testing.T) {
	for _, ids := range [][]string{
		{"01a1fe57-27a9-7058-90a6-9a5db6aeb558", "01a1fe57-27aa-7058-90a6-9a5db6aeb558", "demo", "demo-2"},
		{
			"01a1fe57-27a9-7058-90a6-9a5db6aeb558", "01a1fe57-27a9-7058-90a6-9a5db6aeb559",
			"01a1fe57-27a9-7058-90b6-9a5db6aeb558", "01a1fe57-27a9-7158-90a6-9a5db6aeb558",
			"01a1fe57-27a9-7058-90a6-9a5db6aeb558",
		},
	} {
		short := shortIDs(ids)
		for _, id := range ids {
			if s := short[id]; len(s) < min(len(id), shortUUID) || s != id[:len(s)] || uuidPrefix(id) && s[len(s)-1] == '-' {
				t.Errorf("%s is shortened to %q", id, s)
			}
			for _, other := range ids {
				s := short[id]
				if uuidPrefix(id) && other != id && len(other) >= len(s) && other[:len(s)] == s {
					t.Errorf("%q is the beginning of %s and of %s", s, id, other)
				}
			}
		}
	}
	got := shortIDs([]string{"01a1fe57-27a9-7058-90a6-9a5db6aeb558", "01a1fe57-27a9-7158-90a6-9a5db6aeb558", "demo"})
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
		got := bornAfter(prefix, now)
		if want.IsZero() != got.IsZero() || got.After(now) {
			t.Errorf("%s: %v", prefix, got)
		}
	}
	const ms = 0x019e7ea23400
	if got, want := bornAfter("019e7ea2-3400", now), time.UnixMilli(ms).Add(-clockSkew); !got.Equal(want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got, want := bornAfter("019e7ea2", now), time.UnixMilli(ms&^0xffff).Add(-clockSkew); !got.Equal(want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// A token serves its subject until it expires. One that can't be parsed is the server's to judge.
func TestUnfitFor(t *testing.T) {
	at := time.Unix(1_700_000_000, 0)
	// {"sub":"arbe-thread-t1","exp":1700000060}
	const token = "x.eyJzdWIiOiJhcmJlLXRocmVhZC10MSIsImV4cCI6MTcwMDAwMDA2MH0.x"
	for _, tt := range []struct {
		token, want string
		now         time.Time
		unfit       bool
	}{
		{token, "arbe-thread-t1", at, false},
		{token, "arbe-thread-t1", at.Add(time.Minute), true},
		{token, "arbe-thread-t2", at, true},
		{token, "threads", at, true},
		{"nonsense", "threads", at, false},
	} {
		if got := unfitFor(tt.token, tt.want, tt.now); (got != "") != tt.unfit {
			t.Errorf("for %s at %v: %q", tt.want, tt.now, got)
		}
	}
}
