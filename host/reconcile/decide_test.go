package reconcile

import (
	"testing"
	"time"

	"arbe.0sk.ar/runner/host/reap"
)

func TestJudge(t *testing.T) {
	const limit = 30 * time.Minute
	seen := func(gone bool, runner reap.Life, silence time.Duration) evidence {
		return evidence{Evidence: reap.Evidence{Gone: gone, Runner: runner}, Silence: silence}
	}
	for _, tt := range []struct {
		name string
		e    evidence
		want string
	}{
		{"gone, and silent", seen(true, reap.LifeUnknown, 2*time.Minute), reasonGone},
		{"gone, and heard of", seen(true, reap.LifeUnknown, 2*time.Minute-1), ""},
		{"gone with its process", seen(true, reap.Dead, 30*time.Second), reasonGone},
		{"gone, and its process is alive", seen(true, reap.Alive, 100*time.Hour), ""},
		{"dead, and silent", seen(false, reap.Dead, 30*time.Second), reasonLost},
		{"dead, and heard of", seen(false, reap.Dead, 30*time.Second-1), ""},
		{"alive", seen(false, reap.Alive, 100*time.Hour), ""},
		{"not known", seen(false, reap.LifeUnknown, limit), reasonSilent},
		{"not known, not for long", seen(false, reap.LifeUnknown, limit-1), ""},
		{"no answer", evidence{NoAnswer: true, Silence: 2*limit - 1}, ""},
		{"no answer for long", evidence{NoAnswer: true, Silence: 2 * limit}, reasonSilent},
	} {
		if got := judge(tt.e, limit); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
	// A shorter limit bounds the others, too.
	if got := judge(seen(true, reap.LifeUnknown, time.Second), time.Second); got != reasonGone {
		t.Errorf("with a limit of a second: %q", got)
	}
}
