package folder

import (
	"bufio"
	"context"
	"errors"
	"strings"
)

// packRefs removes files of branches and tags that git has moved into packed-refs in the box. They count as no
// deletions: with the old file here, git would use the old commit of the branch. packRefs removes a file only if the
// host's packed-refs is the box's and the file is in the state that was sent.
func (m *merge) packRefs(ctx context.Context, changes []change) error {
	packed := map[string]map[string]bool{} // by the path of packed-refs
	for _, c := range changes {
		file, ref := looseRef(c.path)
		if c.box.Type != Absent || c.base.Type != File || file == "" || m.box[file].Type != File {
			continue
		}
		if err := context.Cause(ctx); err != nil {
			return err
		}
		if packed[file] == nil {
			refs, err := m.refs(file)
			if err != nil {
				return err
			}
			packed[file] = refs
		}
		if !packed[file][ref] {
			continue
		}
		if at, err := m.blocked(c.path); err != nil || at != "" {
			if err != nil {
				return err
			}
			continue
		}
		host, _, err := look(m.root, c.path)
		if err != nil {
			return err
		}
		if host != c.base {
			continue
		}
		if err := m.change(); err != nil {
			return err
		}
		if err := m.root.Remove(c.path); err != nil {
			return err
		}
		delete(m.base, c.path)
	}
	return nil
}

// looseRef returns the packed-refs and the ref that a path below a .git belongs to; "" for another path.
func looseRef(name string) (file, ref string) {
	repo, rest, ok := strings.Cut("/"+name, "/.git/refs/")
	if !ok {
		return "", ""
	}
	return strings.TrimPrefix(repo+"/.git/packed-refs", "/"), "refs/" + rest
}

// refs returns the refs in the host's packed-refs, if it is the box's.
func (m *merge) refs(file string) (refs map[string]bool, err error) {
	refs = map[string]bool{}
	at, err := m.blocked(file)
	if err != nil || at != "" {
		return refs, err
	}
	host, _, err := look(m.root, file)
	if err != nil || host != m.base[file] || host.Type != File {
		return refs, err
	}
	f, _, err := openFile(m.root, file)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	s := bufio.NewScanner(f)
	for s.Scan() {
		if _, ref, ok := strings.Cut(s.Text(), " "); ok && !strings.HasPrefix(s.Text(), "#") {
			refs[ref] = true
		}
	}
	return refs, s.Err()
}
