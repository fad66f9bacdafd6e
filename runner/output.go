package runner

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Sizes of what is kept of the agent's output.
const (
	maxOutput  = 16 << 20 // of each of stdout and stderr
	tailWindow = 64 << 10 // of stderr, redacted before the tail is taken, so that no half secret is left at its beginning
	maxTail    = 4 << 10  // of stderr, on the thread
	maxMessage = 4 << 10  // of what the agent says of its failure
)

// output is one of the agent's output streams: a file that the agent writes by itself. No pipe is between them, so that the agent outlives us,
// and nobody who keeps the other end open can make us wait.
type output struct {
	path string
	file *os.File // the agent's end
	size int64
}

func newOutput(folder, name string) (*output, error) {
	path := filepath.Join(folder, name)
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	return &output{path: path, file: f}, err
}

// grown reports whether something was written since it was last asked, and keeps the file within its bounds: what is older than the last half
// of maxOutput gives its blocks back. The offsets stay, so whoever follows the file is not confused.
func (o *output) grown() (bool, error) {
	st, err := os.Stat(o.path)
	if err != nil {
		return false, err
	}
	grew := st.Size() > o.size
	o.size = st.Size()
	if blocks := st.Sys().(*syscall.Stat_t).Blocks * 512; blocks > maxOutput {
		err = unix.Fallocate(int(o.file.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, o.size-maxOutput/2)
		if errors.Is(err, unix.EOPNOTSUPP) {
			err = o.file.Truncate(0) // such a file system gives blocks back in no other way
			o.size = 0
		}
	}
	return grew, err
}

// settle makes the file as small as what is kept of it. It is for an agent that is gone.
func (o *output) settle() error {
	st, err := o.file.Stat()
	if err != nil || st.Size() <= maxOutput {
		return errors.Join(err, o.file.Close())
	}
	tail, err := tailOf(o.path, maxOutput/2)
	if err == nil {
		err = writeFile(o.path, tail, false)
	}
	return errors.Join(err, o.file.Close())
}

// tailOf is the last n bytes of a file.
func tailOf(path string, n int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close() // read only: nothing to lose
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	return io.ReadAll(io.NewSectionReader(f, max(0, st.Size()-n), n))
}

// copyOutput writes what comes into the file to w until ctx is done, and then what is still there.
func copyOutput(ctx context.Context, path string, w io.Writer) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close() // read only: nothing to lose
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		if _, err := io.Copy(w, f); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			_, err := io.Copy(w, f)
			return err
		case <-tick.C:
		}
	}
}
