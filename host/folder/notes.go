package folder

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
)

// note is the change in progress, for the next Pull if this one is killed.
type note struct {
	Temp []byte `json:"temp,omitempty"` // a temporary file of Pull in the folder
	// Path does not exist for a moment, because its type changes. Its former content is at Old, or was an empty folder
	// with the mode Dir.
	Path []byte      `json:"path,omitempty"`
	Old  []byte      `json:"old,omitempty"`
	Dir  fs.FileMode `json:"dir,omitempty"`
}

// notes is the file with the note. A write survives a kill of this process, but not a crash of the machine.
type notes struct{ file *os.File }

// openNotes opens the file, and undoes the change in progress if the last Pull was killed.
func openNotes(path string, root *os.Root) (*notes, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	var last note
	// After the first JSON value stands the rest of an older note. A damaged note means that its change had not begun.
	if err := json.NewDecoder(f).Decode(&last); err != nil {
		last = note{}
	}
	if err := last.undo(root); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &notes{f}, nil
}

// undo restores Path, and removes the temporary file.
func (n note) undo(root *os.Root) error {
	if path := string(n.Path); path != "" {
		at, err := blocked(root, path)
		if err != nil {
			return err
		}
		if at == "" {
			if err := n.restore(root, path); err != nil {
				return err
			}
		}
	}
	if len(n.Temp) > 0 {
		_ = root.Remove(string(n.Temp)) // mostly it is gone; one that stays is harmless
	}
	return nil
}

func (n note) restore(root *os.Root, path string) error {
	_, err := root.Lstat(path)
	free := errors.Is(err, fs.ErrNotExist)
	switch {
	case err != nil && !free:
		return err
	case len(n.Old) > 0 && free:
		err = root.Rename(string(n.Old), path)
	case len(n.Old) > 0:
		_ = root.Remove(string(n.Old)) // as with a temporary file
	case free:
		if err = root.Mkdir(path, n.Dir); err == nil {
			err = root.Chmod(path, n.Dir)
		}
	default:
		return nil
	}
	if errors.Is(err, fs.ErrNotExist) { // the change had not begun, or was done
		return nil
	}
	return err
}

// write replaces the note. It writes the new one before it cuts the rest of the old one.
func (n *notes) write(v note) error {
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
