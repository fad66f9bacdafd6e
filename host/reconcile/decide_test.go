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
	unbegun := func(runner reap.Life, silence time.Duration) evidence {
		e := seen(false, runner, silence)
		e.Unbegun = true
		return e
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
		{"alive, and never began", unbegun(reap.Alive, 5*time.Minute), reasonUnbegun},
		{"alive, and may begin", unbegun(reap.Alive, 5*time.Minute-1), ""},
		{"not known, and never began", unbegun(reap.LifeUnknown, 5*time.Minute), ""},
		{"not known", seen(false, reap.LifeUnknown, limit), reasonSilent},
		{"not known, not for long", seen(false, reap.LifeUnknown, limit-1), ""},
		{"no answer", evidence{NoAnswer: true, Silence: 2*limit - 1}, ""},
		{"no answer for long", evidence{NoAnswer: true, Silence: 2 * limit}, reasonSilent},
		{"frozen", evidence{Evidence: reap.Evidence{Live: true, Frozen: true}, Silence: 100 * time.Hour}, ""},
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

func TestJudgeExec(t *testing.T) {
	const limit = 30 * time.Minute
	of := func(gone bool, runner reap.Life, silence, goneFor time.Duration) execEvidence {
		return execEvidence{
			Begun: true, Silence: silence, Timeout: time.Hour, GoneFor: goneFor,
			Evidence: reap.Evidence{Gone: gone, Runner: runner},
		}
	}
	for _, tt := range []struct {
		name string
		e    execEvidence
		ends bool
	}{
		{"gone at each look for 2 min", of(true, reap.LifeUnknown, 2*time.Minute, 2*time.Minute), true},
		{"gone at one look", of(true, reap.LifeUnknown, limit-1, 0), false},
		{"gone, and heard of", of(true, reap.LifeUnknown, 2*time.Minute-1, time.Hour), false},
		{"gone, and silent for long", of(true, reap.LifeUnknown, limit, 0), true},
		{"gone with its process", of(true, reap.Dead, 30*time.Second, 0), true},
		{"gone, and its process is alive", of(true, reap.Alive, 10*limit, 10*limit), false},
		{"its process is dead", of(false, reap.Dead, 30*time.Second, 0), true},
		{"its process is alive", of(false, reap.Alive, 10*limit, 0), false},
		{"its box is frozen", execEvidence{
			Age: 100 * time.Hour, Silence: 100 * time.Hour, Evidence: reap.Evidence{Live: true, Frozen: true},
		}, false},
	} {
		if why := judgeExec(tt.e, limit); (why != "") != tt.ends {
			t.Errorf("%s: %q", tt.name, why)
		}
	}
}

func TestJudgeReaction(t *testing.T) {
	const limit = 30 * time.Minute
	for _, tt := range []struct {
		silence, orphanAfter time.Duration
		ends                 bool
	}{
		{limit - 1, limit, false},
		{limit, limit, true},
		{time.Hour, 2 * time.Hour, false},
		{time.Minute, time.Second, false}, // another host may take it over still
		{2 * time.Minute, time.Second, true},
	} {
		if why := judgeReaction(tt.silence, tt.orphanAfter); (why != "") != tt.ends {
			t.Errorf("%v of %v: %q", tt.silence, tt.orphanAfter, why)
		}
	}
}
