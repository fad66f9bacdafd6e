package folder

import (
	"encoding/json"
	"errors"
	"io"
	"os"
)

// note is what the next Pull needs to know of this one, should it be killed.
type note struct {
	Temp []byte `json:"temp,omitempty"` // the temporary file of ours in the folder, to be removed
	// Gaps are paths where nothing stands for a moment, because their type changes.
	Gaps [][]byte `json:"gaps,omitempty"`
}

// notes is the file with the note. A write survives a kill of this process. It need not survive a crash of the machine:
// without it at most a temporary file stays, or the box's version of a path comes beside it.
type notes struct {
	file *os.File
	gaps map[string]bool
}

// openNotes opens the file, and removes the temporary file that the last Pull has left.
func openNotes(path string, root *os.Root) (*notes, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	n := &notes{file: f, gaps: map[string]bool{}}
	var last note
	// What is behind the first JSON value is the rest of an older note.
	if err := json.NewDecoder(f).Decode(&last); err != nil && !errors.Is(err, io.EOF) {
		return n, nil // a damaged note counts as none
	}
	for _, path := range last.Gaps {
		n.gaps[string(path)] = true
	}
	if len(last.Temp) > 0 {
		_ = root.Remove(string(last.Temp)) // mostly it is gone; if it can't be removed, it stays and stands in no one's way
	}
	return n, nil
}

// write replaces the note. The new one is there before the rest of the old one goes.
func (n *notes) write(temp string) error {
	v := note{Temp: []byte(temp)}
	for path := range n.gaps {
		v.Gaps = append(v.Gaps, []byte(path))
	}
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if _, err := n.file.WriteAt(append(data, '\n'), 0); err != nil {
		return err
	}
	return n.file.Truncate(int64(len(data) + 1))
}

func (n *notes) Close() error { return n.file.Close() }
