package reconcile

import (
	"testing"
	"time"
)

func TestJudge(t *testing.T) {
	const limit = 30 * time.Minute
	for _, tt := range []struct {
		name string
		e    evidence
		want string
	}{
		{"gone, and silent", evidence{Gone: true, Silence: 2 * time.Minute}, reasonGone},
		{"gone, and heard of", evidence{Gone: true, Silence: 2*time.Minute - 1}, ""},
		{"dead, and silent", evidence{Runner: dead, Silence: 30 * time.Second}, reasonLost},
		{"dead, and heard of", evidence{Runner: dead, Silence: 30*time.Second - 1}, ""},
		{"alive", evidence{Runner: alive, Silence: 100 * time.Hour}, ""},
		{"not known", evidence{Silence: limit}, reasonSilent},
		{"not known, not for long", evidence{Silence: limit - 1}, ""},
		{"no answer", evidence{NoAnswer: true, Silence: 2*limit - 1}, ""},
		{"no answer for long", evidence{NoAnswer: true, Silence: 2 * limit}, reasonSilent},
	} {
		if got := judge(tt.e, limit); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
	// A shorter limit bounds the others, too.
	if got := judge(evidence{Gone: true, Silence: time.Second}, time.Second); got != reasonGone {
		t.Errorf("with a limit of a second: %q", got)
	}
}

func TestDecide(t *testing.T) {
	const reapAfter = 24 * time.Hour
	free := need{Ephemeral: true, Alive: dead}
	for _, tt := range []struct {
		name   string
		change func(*need)
		want   decision
	}{
		{"nobody needs it", func(*need) {}, release},
		{"kept by hand", func(n *need) { n.Ephemeral = false; n.Broken = true }, stay},
		{"a run is open", func(n *need) { n.Open = "r1"; n.Broken = true }, later},
		{"broken", func(n *need) { n.Broken, n.Unsaved, n.Alive = true, "work", lifeUnknown }, release},
		{"its runner is alive", func(n *need) { n.Alive, n.Since = alive, 100*reapAfter }, later},
		{"its runner may be alive", func(n *need) { n.Alive, n.Since = lifeUnknown, 100*reapAfter }, later},
		{"work is wanted", func(n *need) { n.Wanted = "a push" }, keep},
		{"work is unsaved", func(n *need) { n.Unsaved, n.Since = "changes", reapAfter-1 }, keep},
		{"unsaved for long", func(n *need) { n.Unsaved, n.Wanted, n.Since = "changes", "a push", reapAfter }, release},
	} {
		n := free
		tt.change(&n)
		if got, why := decide(n, reapAfter); got != tt.want {
			t.Errorf("%s: %d (%s), want %d", tt.name, got, why, tt.want)
		}
	}
}
