package runner_test

import (
	"syscall"
	"testing"
	"time"

	"arbe.0sk.ar/runner/runner"
)

// Workers that die are brought back ten times in a row; starts that find no room are tried for minutes.
func TestRestarts(t *testing.T) {
	died, noRoom, steady, never := runner.Life{Asked: true}, runner.Life{Err: syscall.EAGAIN},
		runner.Life{Asked: true, Lasted: 2 * time.Minute}, runner.Life{Err: syscall.ENOENT}
	for _, tt := range []struct {
		name  string
		lives []runner.Life
		more  int // workers after the first, before it is given up
		least time.Duration
	}{
		{"dies", []runner.Life{died}, 10, 20 * time.Second},
		{"is killed before it has its job", []runner.Life{{Killed: true}}, 10, 20 * time.Second},
		{"finds no room", []runner.Life{noRoom}, 39, 2 * time.Minute},
		{"ends as it starts", []runner.Life{{}}, 39, 2 * time.Minute},
		{"can't be started at all", []runner.Life{never}, 0, 0},
		{"dies after a while, each time", []runner.Life{steady}, 1000, 0},
		{"dies, then finds no room, by turns", []runner.Life{died, noRoom}, 20, 10 * time.Second},
	} {
		if more, waited := runner.Restarts(1000, tt.lives...); more != tt.more || waited < tt.least {
			t.Errorf("%s: %d more after %v, want %d after %v at least", tt.name, more, waited, tt.more, tt.least)
		}
	}
}

// A stopped worker is continued, and replaced where that does not help; a keeper that was stopped with it waits first.
func TestStillness(t *testing.T) {
	const look = runner.LookEvery
	var looks []time.Duration
	for i := range 25 {
		looks = append(looks, time.Duration(i)*look)
	}
	want := map[int]syscall.Signal{5: syscall.SIGCONT, 10: syscall.SIGCONT, 15: syscall.SIGCONT, 20: syscall.SIGKILL}
	for i, sig := range runner.Stillness(looks...) {
		if i < 21 && sig != want[i] {
			t.Errorf("look %d: %v, want %v", i, sig, want[i])
		}
	}
	asleep := append([]time.Duration{}, looks[:4]...)
	for i := range 6 {
		asleep = append(asleep, time.Hour+time.Duration(i)*look)
	}
	for i, sig := range runner.Stillness(asleep...) {
		if want := map[int]syscall.Signal{9: syscall.SIGCONT}[i]; sig != want {
			t.Errorf("with an hour's gap, look %d: %v, want %v", i, sig, want)
		}
	}
}
