package local

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"arbe.0sk.ar/runner/host/sandbox"
	"arbe.0sk.ar/runner/host/sandbox/kit"
)

// Provider is the provider whose boxes are folders of this machine. Its methods may be used concurrently.
type Provider struct {
	dir    string
	place  place
	prefix string // of the ids of its boxes
}

// New returns the provider whose boxes are folders in dir, which it creates when needed. A box has the folders home and
// work, a record with its options, and a list of detached processes. It ignores AutoStop: a folder costs nothing.
//
// The ids of its boxes name this machine and dir. Boxes of another machine or folder are foreign: Probe reports them as
// Unknown, Open and Destroy refuse them (ErrForeign), and List leaves them out.
func New(dir string) *Provider {
	if abs, err := filepath.Abs(dir); err == nil {
		dir = abs // an error means that the working directory is gone, and dir with it
	}
	p := &Provider{dir: dir, place: here(dir)}
	p.prefix = p.place.prefix()
	return p
}

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
func (p *Provider) tidy() {
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
func (p *Provider) Check(o sandbox.Options) error {
	_, err := p.check(o)
	return err
}

// check is Check, and returns the record of a box with the options.
func (p *Provider) check(o sandbox.Options) (rec record, err error) {
	if err := Kind().Refuse(o); err != nil {
		return rec, err
	}
	rec = record{place: p.place, Labels: o.AllLabels(), Env: o.Env, Created: time.Now().UTC()}
	if err := sandbox.CheckEnv(o.Env); err != nil {
		return rec, err
	}
	if o.Repo != "" {
		if rec.Repo, err = localRepo(o.Repo, o.GitHub); err != nil {
			return rec, err
		}
	}
	if err := sandbox.CheckBranch(o.Branch); err != nil {
		return rec, err
	}
	rec.Work, err = o.CheckWork()
	return rec, err
}

func (p *Provider) Create(ctx context.Context, o sandbox.Options) (_ sandbox.Sandbox, err error) {
	rec, err := p.check(o)
	if err != nil {
		return nil, err
	}
	o.Token = sandbox.TokenFor(rec.Repo, o.GitHub, o.Token)
	there, err := kit.HasBranch(ctx, rec.Repo, o.Branch, o.Token)
	if err != nil {
		return nil, fmt.Errorf("create a local box: %w", err)
	}
	p.tidy()
	id, err := p.newID()
	if err != nil {
		return nil, err
	}
	o.Step("creating the box")
	b := &box{id: id, dir: filepath.Join(p.dir, id), rec: rec}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("create a local box: %w", err), b.destroy(context.WithoutCancel(ctx)))
		}
	}()
	if err := b.make(); err != nil {
		return nil, err
	}
	if rec.Repo != "" {
		o.Step("cloning " + kit.Plain(rec.Repo))
		if err := b.clone(ctx, o.Branch, there, o.Token); err != nil {
			return nil, err
		}
	}
	return b, nil
}

// localRepo returns repo as an argument for git: the absolute path of a folder, or the address of org/repo on server.
func localRepo(repo, server string) (string, error) {
	_, err := os.Stat(repo)
	if err == nil {
		return filepath.Abs(repo)
	}
	if sandbox.IsPath(repo) {
		return "", err
	}
	if owner, name, err := sandbox.ParseRepo(repo, server); err == nil {
		return sandbox.RepoAddress(server, owner, name), nil
	}
	if strings.HasPrefix(repo, "-") {
		return "", fmt.Errorf("not a repository: %q", repo)
	}
	return repo, nil
}

// Open returns the box with the id; ErrGone if there is no such box, ErrForeign if it is not of this machine and
// folder.
func (p *Provider) Open(_ context.Context, id string) (sandbox.Sandbox, error) {
	dir, err := p.at(id)
	if err != nil {
		return nil, err
	}
	rec, err := readRecord(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("open the local box %s: %w", id, sandbox.ErrGone)
	}
	if err != nil {
		return nil, fmt.Errorf("open the local box %s: %w", id, err)
	}
	return &box{id: id, dir: dir, rec: rec}, nil
}

func (p *Provider) Destroy(ctx context.Context, id string) error {
	dir, err := p.at(id)
	if err != nil {
		return err
	}
	return (&box{id: id, dir: dir}).destroy(ctx)
}

func readRecord(dir string) (rec record, err error) {
	data, err := os.ReadFile(filepath.Join(dir, recordFile))
	if err == nil {
		err = json.Unmarshal(data, &rec)
	}
	return rec, err
}

func (p *Provider) Probe(_ context.Context, id string) (sandbox.Health, string, error) {
	dir, err := p.at(id)
	if err != nil {
		return sandbox.Unknown, "", err
	}
	if _, err := os.Stat(p.dir); err != nil { // a disk that is not mounted hides all boxes
		return sandbox.Unknown, "", fmt.Errorf("look at the local box %s: %w", id, err)
	}
	for _, part := range []string{recordFile, homeFolder} { // created first, and removed late
		_, err := os.Stat(filepath.Join(dir, part))
		if err == nil {
			return sandbox.Live, "its folder is there", nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return sandbox.Unknown, "", fmt.Errorf("look at the local box %s: %w", id, err)
		}
	}
	return sandbox.Gone, "its folder is gone", nil
}

func (p *Provider) List(_ context.Context, labels map[string]string) ([]sandbox.Box, error) {
	entries, err := os.ReadDir(p.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list the local boxes: %w", err)
	}
	var boxes []sandbox.Box
	for _, e := range entries {
		dir, err := p.at(e.Name())
		if err != nil {
			continue // no box, or a foreign one
		}
		rec, err := readRecord(dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue // being created or deleted
		}
		b := sandbox.Box{
			Ref: sandbox.Ref{Provider: Name, ID: e.Name()}, State: "live", Health: sandbox.Live, Labels: rec.Labels,
			Created: rec.Created,
		}
		if err != nil { // one damaged record hides no other box
			b.State, b.Health = "damaged: "+err.Error(), sandbox.Unknown
		}
		if sandbox.Matches(b.Labels, labels) {
			boxes = append(boxes, b)
		}
	}
	return boxes, nil
}
