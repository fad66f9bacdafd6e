package runfolder_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"arbe.0sk.ar/runner/runner/runfolder"
)

// The next worker of a run reads what earlier ones have recorded and records more, whatever became of the folder;
// also after one that was killed in the middle of a record.
func TestInherit(t *testing.T) {
	t.Parallel()
	aside := func(path string) error {
		return errors.Join(os.Rename(path, path+"-aside"), os.WriteFile(path, nil, 0o600))
	}
	for _, tt := range []struct {
		name  string
		spoil func(state, path string) error
		disk  bool // facts of the next worker are on the disk, too
	}{
		{"as it was", func(string, string) error { return nil }, true},
		{"another path", func(state, _ string) error { return aside(filepath.Join(state, "runs")) }, true},
		{"gone", func(_, path string) error { return errors.Join(aside(path), os.RemoveAll(path+"-aside")) }, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			state := t.TempDir()
			keeper, err := runfolder.New(state, "t1", "r1")
			if err != nil {
				t.Fatal(err)
			}
			defer keeper.Close()
			path, files := keeper.Path, []*os.File(nil)
			if err := errors.Join(keeper.Hold(), keeper.WriteFile("run.json", []byte(`{"run":"r1"}`)),
				keeper.Note(runfolder.Fact{Fact: runfolder.FactOpened})); err != nil {
				t.Fatal(err)
			}
			for _, f := range keeper.Files() {
				files = append(files, dup(t, f))
			}
			if _, err := files[2].WriteString(`{"fact":{"fa`); err != nil { // by a worker that is killed
				t.Fatal(err)
			}
			if err := tt.spoil(state, path); err != nil {
				t.Fatal(err)
			}
			next := runfolder.Inherit(path, files[0], files[1], files[2])
			defer next.Close()
			if err := next.Note(runfolder.Fact{Fact: runfolder.FactTaken}); (err == nil) != tt.disk {
				t.Errorf("note: %v", err)
			}
			rec, err := next.Record()
			if err != nil || rec.Run != "r1" {
				t.Errorf("record %+v, %v", rec, err)
			}
			if _, err := next.ReadFile("terminal.json"); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("a file that nobody wrote: %v", err)
			}
			for _, f := range []*runfolder.Folder{keeper, next} {
				facts, err := f.Facts()
				if p := runfolder.Replay(facts); err != nil || len(facts) != 2 || !p.Opened || !p.Taken {
					t.Errorf("facts %+v, %v", facts, err)
				}
			}
		})
	}
}

// dup is a file as a child process inherits it.
func dup(t *testing.T, f *os.File) *os.File {
	t.Helper()
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	return os.NewFile(uintptr(fd), f.Name())
}
