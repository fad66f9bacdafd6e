package procfs_test

import (
	"errors"
	"io/fs"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"arbe.0sk.ar/runner/internal/procfs"
)

func TestRead(t *testing.T) {
	st, err := procfs.Read(os.Getpid())
	if err != nil || st.PID != os.Getpid() || st.Parent != os.Getppid() || st.RSS < 1<<20 || st.Started == 0 ||
		!st.Alive() {
		t.Errorf("got %+v, %v", st, err)
	}
	// In a PID namespace of its own a process may be in a session from outside, which the kernel gives as 0.
	if sid, err := unix.Getsid(0); err != nil || st.Session != sid {
		t.Errorf("session %d, want %d (%v)", st.Session, sid, err)
	}
	if _, err := procfs.Read(1 << 30); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}

func TestParse(t *testing.T) {
	const rest = " 41 42 43 0 -1 0 0 0 0 0 150 50 0 0 20 0 1 0 777 0 2 18446744073709551615\n"
	want := procfs.Stat{
		PID: 7, Parent: 41, Session: 43, State: 'S', CPU: 2 * time.Second, RSS: int64(2 * os.Getpagesize()),
		Started: 777,
	}
	for _, name := range []string{"sh", "a b", ") R 1 2 (", "(", ")"} {
		if got, err := procfs.Parse("7 (" + name + ") S" + rest); err != nil || got != want {
			t.Errorf("%q: got %+v, %v", name, got, err)
		}
	}
	if st, err := procfs.Parse("7 (sh) Z" + rest); err != nil || st.Alive() {
		t.Errorf("a zombie: got %+v, %v", st, err)
	}
	for _, line := range []string{"", "gone", "7 (sh) S 1 2", "x (sh) S" + rest, "7 (sh) S x" + rest, ") S" + rest} {
		if st, err := procfs.Parse(line); err == nil {
			t.Errorf("%q: got %+v", line, st)
		}
	}
}
