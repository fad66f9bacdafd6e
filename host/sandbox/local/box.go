package local

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"arbe.0sk.ar/runner/host/sandbox"
	"arbe.0sk.ar/runner/host/sandbox/kit"
	"arbe.0sk.ar/runner/internal/durable"
)

// localBox is a box of the local provider.
type box struct {
	kit.Running

	id  string
	dir string
	rec record
}

func (b *box) Ref() sandbox.Ref { return sandbox.Ref{Provider: Name, ID: b.id} }
func (b *box) WorkDir() string  { return filepath.Join(b.workspace(), b.rec.Work) }
func (b *box) Home() string     { return filepath.Join(b.dir, homeFolder) }

// workspace returns the folder that the working directory is in; for a box without a path for it, that directory.
func (b *box) workspace() string { return filepath.Join(b.dir, workspaceName) }

// The folders of a box.
const (
	homeFolder    = "home"
	workspaceName = sandbox.WorkFolder
)

// make creates the box's folders, which only this user can read. The box is there with its record, or not at all.
func (b *box) make() error {
	data, err := json.Marshal(b.rec)
	if err != nil {
		return err
	}
	made := box{dir: unmade(b.dir, madePrefix), rec: b.rec}
	if err := durable.MkdirAll(made.dir); err != nil {
		return err
	}
	if err := durable.WriteFile(filepath.Join(made.dir, recordFile), append(data, '\n')); err != nil {
		return err
	}
	if err := errors.Join(os.Mkdir(made.Home(), 0o755), os.MkdirAll(made.WorkDir(), 0o755)); err != nil {
		return err
	}
	return durable.Rename(made.dir, b.dir)
}

// there returns ErrGone if the box does not exist any more.
func (b *box) there() error {
	if _, err := os.Stat(filepath.Join(b.dir, recordFile)); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("the local box %s: %w", b.id, sandbox.ErrGone)
	}
	return nil
}

// root opens the box's folder. No link in the box leads out of a root.
func (b *box) root() (*os.Root, error) {
	if err := b.there(); err != nil {
		return nil, err
	}
	return os.OpenRoot(b.dir)
}

// BoxVar is the variable that marks all processes of a local box: children inherit it, whatever session they move to,
// and the runner passes it on to its agent.
const BoxVar = "AGENT_BOX"

// env returns the environment of a command in the box. Of this process's own environment it has PATH and TMPDIR only.
func (b *box) env(more map[string]string) []string {
	env := map[string]string{"HOME": b.Home(), "PATH": os.Getenv("PATH"), "LANG": "C.UTF-8"}
	if dir := os.Getenv("TMPDIR"); dir != "" {
		env["TMPDIR"] = dir
	}
	maps.Copy(env, b.rec.Env)
	maps.Copy(env, more)
	env[BoxVar] = b.id
	var list []string
	for _, key := range slices.Sorted(maps.Keys(env)) {
		list = append(list, key+"="+env[key])
	}
	return list
}

func (b *box) Upload(_ context.Context, files ...sandbox.File) (err error) {
	places := make([]string, len(files))
	for i, f := range files {
		if places[i], err = f.Place(b.WorkDir(), b.Home()); err != nil {
			return err
		}
	}
	root, err := b.root()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	staged := map[string]string{}
	defer func() {
		for temp := range staged {
			_ = root.Remove(temp) // left of an upload that failed; the caller has that error
		}
	}()
	for i, f := range files {
		rel, err := filepath.Rel(b.dir, places[i])
		if err != nil {
			return err
		}
		temp := kit.TempName(rel)
		staged[temp] = rel
		if err := stage(root, temp, f); err != nil {
			return fmt.Errorf("upload %s: %w", f.Path, err)
		}
	}
	for temp, rel := range staged {
		if err := root.Rename(temp, rel); err != nil {
			return fmt.Errorf("upload %s: %w", rel, err)
		}
		delete(staged, temp)
	}
	return nil
}

// stage writes f's content to the file temp.
func stage(root *os.Root, temp string, f sandbox.File) error {
	if err := root.MkdirAll(filepath.Dir(temp), 0o755); err != nil {
		return err
	}
	if f.Perm()&0o111 != 0 {
		// A child that another launch forks meanwhile would have the program open for writing until its exec is
		// complete, and the kernel starts no such program (ETXTBSY).
		syscall.ForkLock.RLock()
		defer syscall.ForkLock.RUnlock()
	}
	file, err := root.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	n, err := io.Copy(file, f.Reader())
	if err == nil && n != f.Size {
		err = fmt.Errorf("the content has %d bytes, not %d", n, f.Size)
	}
	return errors.Join(err, file.Chmod(f.Perm()), file.Close())
}

// family returns the processes that Destroy ends: the detached ones, and those with the box's mark.
func (b *box) family(procs []sandbox.Process) *family {
	f := &family{mark: []byte(BoxVar + "=" + b.id), dir: resolve(b.dir), known: map[sandbox.Process]bool{}}
	for _, p := range procs {
		f.known[sandbox.Process{PID: p.PID, Start: p.Start}] = true
	}
	return f
}

// destroy ends the box's processes and removes its folder.
func (b *box) destroy(ctx context.Context) error {
	procs, err := b.readDetached()
	if err != nil {
		return fmt.Errorf("destroy the local box %s: %w", b.id, err)
	}
	if err := b.family(procs).end(ctx); err != nil {
		return fmt.Errorf("destroy the local box %s: %w", b.id, err)
	}
	// The record goes last: a removal that is cut short leaves a box that is still listed.
	rest := unmade(b.dir, gonePrefix)
	err = errors.Join(removeAll(filepath.Join(b.dir, workspaceName)), removeAll(filepath.Join(b.dir, homeFolder)))
	if err == nil {
		err = os.Rename(b.dir, rest)
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = nil // it is gone already
	}
	if err = errors.Join(err, removeAll(rest), removeAll(unmade(b.dir, madePrefix))); err != nil {
		return fmt.Errorf("destroy the local box %s: %w", b.id, err)
	}
	return nil
}

// removeAll removes dir, also if its folders are read-only, as in Go's module cache.
func removeAll(dir string) error {
	err := os.RemoveAll(dir)
	if errors.Is(err, fs.ErrPermission) {
		err = errors.Join(unlock(dir), os.RemoveAll(dir))
	}
	return err
}

// unlock makes the folders below dir writable, so that they can be emptied.
func unlock(dir string) error {
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if d != nil && d.IsDir() {
			if e := os.Chmod(path, 0o700); e != nil {
				return e
			}
			if errors.Is(err, fs.ErrPermission) {
				return unlock(path) // it could not be read before
			}
		}
		return err
	})
}

func (b *box) Download(_ context.Context, path string, w io.Writer) (err error) {
	place, err := sandbox.ConfineFile(b.Home(), path)
	if err != nil {
		return err
	}
	root, err := b.root()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	rel, err := filepath.Rel(b.dir, place)
	if err != nil {
		return err
	}
	f, err := root.OpenFile(rel, os.O_RDONLY|syscall.O_NONBLOCK, 0) // opening a FIFO would block
	if err != nil {
		return fmt.Errorf("download %s: %w", path, err)
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = errors.New("not a regular file")
	}
	if err == nil {
		_, err = io.Copy(w, f)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("download %s: %w", path, err)
	}
	return nil
}
