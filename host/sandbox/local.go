package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// LocalName is the local provider's part of a Ref.
const LocalName = "local"

// Local is the provider whose boxes are folders of this machine. What runs in one is kept apart from others by its
// folders alone. Its methods may be used concurrently.
type Local struct {
	dir    string
	place  place
	prefix string // of the ids of its boxes
}

// NewLocal returns the provider whose boxes are folders in dir, which it creates when needed. A box has the folders
// home and work, a record with its options, and a list of detached processes. It ignores region and AutoStop, and
// refuses image, snapshot, resources and volumes.
//
// The ids of its boxes name this machine and dir. Boxes of another machine or folder are foreign: Probe reports them as
// Unknown, Open and Destroy refuse them (ErrForeign), and List leaves them out.
func NewLocal(dir string) *Local {
	if abs, err := filepath.Abs(dir); err == nil {
		dir = abs // an error means that the working directory is gone, and dir with it
	}
	p := &Local{dir: dir, place: here(dir)}
	p.prefix = p.place.prefix()
	return p
}

func (p *Local) Name() string { return LocalName }

// record is the content of a box's box.json. It is written first and removed last, so List has every box.
type record struct {
	place
	Labels  map[string]string `json:"labels,omitempty"`
	Env     map[string]string `json:"env,omitempty"`
	Repo    string            `json:"repo,omitempty"` // the address of the clone
	Work    string            `json:"work,omitempty"` // the working directory, below the workspace
	Created time.Time         `json:"created"`
}

const recordFile = "box.json"

// Prefixes of the folders of boxes that are not whole yet, or any more.
const (
	madePrefix = ".new-"
	gonePrefix = ".old-"
)

// unmade returns the folder of a box that is not whole.
func unmade(dir, prefix string) string {
	return filepath.Join(filepath.Dir(dir), prefix+filepath.Base(dir))
}

// leftAfter is the age at which a folder of a box that is not whole counts as left by a process that was killed. Such a
// folder exists for moments.
const leftAfter = time.Hour

// tidy removes what processes that were killed have left: folders of boxes that are not whole, and empty ones of
// earlier versions. What can't be removed now is left to the next call.
func (p *Local) tidy() {
	entries, _ := os.ReadDir(p.dir) // none: nothing is left
	for _, e := range entries {
		path := filepath.Join(p.dir, e.Name())
		info, err := e.Info()
		if err != nil || time.Since(info.ModTime()) < leftAfter {
			continue
		}
		switch {
		case strings.HasPrefix(e.Name(), madePrefix), strings.HasPrefix(e.Name(), gonePrefix):
			_ = removeAll(path)
		case strings.HasPrefix(e.Name(), p.prefix):
			_ = os.Remove(path) // fails for one that is not empty
		}
	}
}

// Check returns an error for options that no local box can have. Create refuses them, too.
func (p *Local) Check(o Options) error {
	_, err := p.check(o)
	return err
}

// check is Check, and returns the record of a box with the options.
func (p *Local) check(o Options) (rec record, err error) {
	rec = record{place: p.place, Labels: boxLabels(o), Env: o.Env, Created: time.Now().UTC()}
	if err := checkEnv(o.Env); err != nil {
		return rec, err
	}
	if o.Repo != "" {
		if rec.Repo, err = localRepo(o.Repo, o.GitHub); err != nil {
			return rec, err
		}
	}
	if err := checkBranch(o.Branch); err != nil {
		return rec, err
	}
	if err := o.checkLocal(); err != nil {
		return rec, err
	}
	rec.Work, err = o.checkWork()
	return rec, err
}

func (p *Local) Create(ctx context.Context, o Options) (_ Sandbox, err error) {
	rec, err := p.check(o)
	if err != nil {
		return nil, err
	}
	o.Token = tokenFor(rec.Repo, o.GitHub, o.Token)
	there, err := hasBranch(ctx, rec.Repo, o.Branch, o.Token)
	if err != nil {
		return nil, fmt.Errorf("create a local box: %w", err)
	}
	p.tidy()
	id, err := p.newID()
	if err != nil {
		return nil, err
	}
	o.step("creating the box")
	b := &localBox{id: id, dir: filepath.Join(p.dir, id), rec: rec}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("create a local box: %w", err), b.destroy(context.WithoutCancel(ctx)))
		}
	}()
	if err := b.make(); err != nil {
		return nil, err
	}
	if rec.Repo != "" {
		o.step("cloning " + plain(rec.Repo))
		if err := b.clone(ctx, o.Branch, there, o.Token); err != nil {
			return nil, err
		}
	}
	return b, nil
}

// step reports a step to Progress.
func (o Options) step(what string) {
	if o.Progress != nil {
		o.Progress(what)
	}
}

// boxLabels returns the labels of a box with these options.
func boxLabels(o Options) map[string]string {
	labels := map[string]string{}
	maps.Copy(labels, o.Labels)
	if o.Ephemeral {
		labels[LabelEphemeral] = "true"
	}
	return labels
}

// localRepo returns repo as an argument for git: the absolute path of a folder, or the address of org/repo on server.
func localRepo(repo, server string) (string, error) {
	_, err := os.Stat(repo)
	if err == nil {
		return filepath.Abs(repo)
	}
	if isPath(repo) {
		return "", err
	}
	if owner, name, err := ParseRepo(repo, server); err == nil {
		return RepoAddress(server, owner, name), nil
	}
	if strings.HasPrefix(repo, "-") {
		return "", fmt.Errorf("not a repository: %q", repo)
	}
	return repo, nil
}

// Open returns the box with the id; ErrGone if there is no such box, ErrForeign if it is not of this machine and
// folder.
func (p *Local) Open(_ context.Context, id string) (Sandbox, error) {
	dir, err := p.at(id)
	if err != nil {
		return nil, err
	}
	rec, err := readRecord(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("open the local box %s: %w", id, ErrGone)
	}
	if err != nil {
		return nil, fmt.Errorf("open the local box %s: %w", id, err)
	}
	return &localBox{id: id, dir: dir, rec: rec}, nil
}

func (p *Local) Destroy(ctx context.Context, id string) error {
	dir, err := p.at(id)
	if err != nil {
		return err
	}
	return (&localBox{id: id, dir: dir}).destroy(ctx)
}

func readRecord(dir string) (rec record, err error) {
	data, err := os.ReadFile(filepath.Join(dir, recordFile))
	if err == nil {
		err = json.Unmarshal(data, &rec)
	}
	return rec, err
}

func (p *Local) Probe(_ context.Context, id string) (Health, string, error) {
	dir, err := p.at(id)
	if err != nil {
		return Unknown, "", err
	}
	if _, err := os.Stat(p.dir); err != nil { // a disk that is not mounted hides all boxes
		return Unknown, "", fmt.Errorf("look at the local box %s: %w", id, err)
	}
	for _, part := range []string{recordFile, homeFolder} { // created first, and removed late
		_, err := os.Stat(filepath.Join(dir, part))
		if err == nil {
			return Live, "its folder is there", nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return Unknown, "", fmt.Errorf("look at the local box %s: %w", id, err)
		}
	}
	return Gone, "its folder is gone", nil
}

func (p *Local) List(_ context.Context, labels map[string]string) ([]Box, error) {
	entries, err := os.ReadDir(p.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list the local boxes: %w", err)
	}
	var boxes []Box
	for _, e := range entries {
		dir, err := p.at(e.Name())
		if err != nil {
			continue // no box, or a foreign one
		}
		rec, err := readRecord(dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue // being created or deleted
		}
		b := Box{Ref: Ref{LocalName, e.Name()}, State: "live", Health: Live, Labels: rec.Labels, Created: rec.Created}
		if err != nil { // one damaged record hides no other box
			b.State, b.Health = "damaged: "+err.Error(), Unknown
		}
		if has(b.Labels, labels) {
			boxes = append(boxes, b)
		}
	}
	return boxes, nil
}

// has reports whether all of want are among labels.
func has(labels, want map[string]string) bool {
	return !slices.ContainsFunc(slices.Collect(maps.Keys(want)), func(key string) bool {
		v, there := labels[key]
		return !there || v != want[key]
	})
}
