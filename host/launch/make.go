package launch

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io/fs"
	"maps"
	"strconv"
	"strings"
	"time"

	"arbe.0sk.ar/runner/host/recipe"
	"arbe.0sk.ar/runner/host/sandbox"
	"arbe.0sk.ar/runner/thread"
)

// Make is the content of a new box, by its environment. A box of an earlier run has it already. Paths are below the
// workspace, the folder that the working directory is in.
type Make struct {
	Repositories []Repository // the first is the working directory
	Folders      []Folder     // without a repository, the first is the working directory
	Files        []File
	Setup        []recipe.Command
}

// Repository is a repository, and where it is cloned to.
type Repository struct {
	sandbox.Repository
	Path string
}

// Folder is a folder of this host, and where it is copied to.
type Folder struct {
	Tree
	Path string
	Sync bool // its changes are wanted back
}

// File is a file to make.
type File struct {
	Path    string // below the workspace, or below the home folder if it begins with ~/
	Content []byte
	Mode    fs.FileMode

	Sensitive bool // its content is a secret
}

// Follow makes the task's box by an environment. Fields already set on the task win: image, snapshot, resources,
// repository, folder, and the time that a live run waits. Repositories are on the GitHub of the task's box. The paths
// of this host that the environment names are the caller's to add.
func (t *Task) Follow(r recipe.Recipe) {
	if t.Box.Image == "" && t.Box.Snapshot == "" {
		t.Box.Image, t.Box.Snapshot = r.Image, r.Snapshot
	}
	if t.Box.Resources == (sandbox.Resources{}) && r.Resources != nil {
		t.Box.Resources = sandbox.Resources(*r.Resources)
	}
	t.Box.Target = cmp.Or(r.Target, t.Box.Target)
	t.Box.Env = r.Env
	for _, v := range r.Volumes {
		t.Box.Volumes = append(t.Box.Volumes, sandbox.Volume(v))
	}
	if l := r.Limits; l != nil {
		t.Limit = time.Duration(l.Run)
		if t.Live {
			t.Idle = cmp.Or(t.Idle, time.Duration(l.Idle))
		}
		t.Box.AutoStop = time.Duration(l.AutoStop)
	}
	if t.Box.Repo == "" && t.Dir == nil {
		for i, p := range r.Repositories {
			to := Repository{
				sandbox.Repository{
					Repo: p.Repo, Branch: p.Branch, Tag: p.Tag, Commit: p.Commit, Depth: p.Depth, GitHub: t.Box.GitHub,
				},
				p.Path,
			}
			if i == 0 {
				to.Work = t.Box.Branch
			}
			t.Make.Repositories = append(t.Make.Repositories, to)
		}
	}
	for _, f := range r.Files {
		if f.Content != nil {
			t.Make.Files = append(t.Make.Files, File{f.Path, []byte(*f.Content), ModeOf(f), f.Sensitive})
		}
	}
	t.Make.Setup = append(t.Make.Setup, r.Setup...)
}

// ModeOf returns the mode of an environment's file.
func ModeOf(f recipe.File) fs.FileMode {
	mode, err := strconv.ParseUint(f.Mode, 8, 12)
	if err != nil {
		return 0o600 // the package recipe refuses such a mode
	}
	return fs.FileMode(mode)
}

// work returns the path of the working directory; "" for the provider's own.
func (m Make) work() string {
	switch {
	case len(m.Repositories) > 0:
		return m.Repositories[0].Path
	case len(m.Folders) > 0:
		return m.Folders[0].Path
	}
	return ""
}

// label lists the repositories and folders of the workspace in a box's labels. The search for unsaved work reads them.
func (m Make) label(labels map[string]string) {
	var repositories, folders []string
	for _, r := range m.Repositories {
		repositories = append(repositories, r.Path)
	}
	for _, f := range m.Folders {
		if f.Sync {
			folders = append(folders, f.Path)
		}
	}
	if repositories != nil {
		labels[sandbox.LabelTree] = sandbox.TreeRepository
		labels[sandbox.LabelRepositories] = strings.Join(repositories, ",")
	}
	if len(m.Folders) > 0 {
		labels[sandbox.LabelTree] = cmp.Or(labels[sandbox.LabelTree], sandbox.TreeFolder)
	}
	if folders != nil {
		labels[sandbox.LabelFolders] = strings.Join(folders, ",")
	}
}

// Step runs a step of making a box, and notes it with its kind and name.
type Step func(ctx context.Context, kind, name string, do func() error) error

// placer is a box with a workspace.
type placer interface {
	At(path string) (sandbox.Sandbox, error)
}

// cloner is a box that can clone.
type cloner interface {
	Clone(ctx context.Context, r sandbox.Repository) error
}

// Fill brings repositories, folders and files into a new box, each a step.
func (m Make) Fill(ctx context.Context, box sandbox.Sandbox, step Step) error {
	for _, r := range m.Repositories {
		if err := step(ctx, thread.StepRepository, r.Repo, func() error {
			b, err := within(box, r.Path)
			if err != nil {
				return err
			}
			c, is := b.(cloner)
			if !is {
				return fmt.Errorf("the sandbox %s can't clone a repository", box.Ref())
			}
			return c.Clone(ctx, r.Repository)
		}); err != nil {
			return fmt.Errorf("repository %s: %w", r.Repo, err)
		}
	}
	for _, f := range m.Folders {
		if err := step(ctx, thread.StepFolder, f.String(), func() error {
			b, err := within(box, f.Path)
			if err != nil {
				return err
			}
			c := sandbox.Command{Timeout: time.Minute}
			if _, err := sandbox.Shell(ctx, box, c, `mkdir -p -- "$1"`, b.WorkDir()); err != nil {
				return err
			}
			return f.CopyIn(ctx, b, true)
		}); err != nil {
			return fmt.Errorf("copy %s into the sandbox: %w", f, err)
		}
	}
	if err := noteSecrets(ctx, box, m.Files); err != nil {
		return err
	}
	for _, f := range m.Files {
		if err := step(ctx, thread.StepFile, f.Path, func() error { return f.put(ctx, box) }); err != nil {
			return fmt.Errorf("put %s into the sandbox: %w", f.Path, err)
		}
	}
	return nil
}

// SetUp runs the environment's commands in a new box, each a step. secrets are those of the environment.
func (m Make) SetUp(
	ctx context.Context, box sandbox.Sandbox, secrets map[string]string, step Step,
	output func(sandbox.Stream, []byte),
) error {
	for _, c := range m.Setup {
		env := map[string]string{}
		for _, name := range c.Secrets {
			if value, has := secrets[name]; has {
				env[name] = value
			}
		}
		maps.Copy(env, c.Env)
		limits := sandbox.Command{Env: env, Timeout: time.Duration(c.Timeout), Output: output}
		if err := setUp(ctx, box, c.Run, limits, step); err != nil {
			return err
		}
	}
	return nil
}

// setUp runs a shell command in the working directory of a box, as a step. c is the command without its Argv.
func setUp(ctx context.Context, box sandbox.Sandbox, run string, c sandbox.Command, step Step) error {
	err := step(ctx, thread.StepCommand, run, func() error {
		_, err := sandbox.Shell(ctx, box, c, inPath+run)
		return err
	})
	if err != nil {
		return fmt.Errorf("setup command %q: %w", run, err)
	}
	return nil
}

// within returns the box with the working directory path.
func within(box sandbox.Sandbox, path string) (sandbox.Sandbox, error) {
	p, is := box.(placer)
	if !is {
		return nil, fmt.Errorf("the sandbox %s has no workspace", box.Ref())
	}
	return p.At(path)
}

// inHome begins the path of a file below the home folder.
const inHome = "~/"

// put makes the file.
func (f File) put(ctx context.Context, box sandbox.Sandbox) error {
	file := sandbox.File{
		Path: f.Path, Content: bytes.NewReader(f.Content), Size: int64(len(f.Content)), Mode: f.Mode,
	}
	if path, is := strings.CutPrefix(f.Path, inHome); is {
		file.Path, file.InHome = path, true
		return box.Upload(ctx, file)
	}
	// Upload takes paths below the working directory: that is the workspace's folder which the path begins with.
	first, rest, below := strings.Cut(f.Path, "/")
	b, err := within(box, first)
	switch {
	case err != nil:
		return err
	case below:
		file.Path = rest
		return b.Upload(ctx, file)
	}
	// The file is in the workspace itself.
	c := sandbox.Command{Timeout: time.Minute, Stdin: bytes.NewReader(f.Content)}
	mode := fmt.Sprintf("%04o", f.Mode.Perm())
	_, err = sandbox.Shell(ctx, box, c, `umask 077; cat >"$1" && chmod "$2" "$1"`, b.WorkDir(), mode)
	return err
}
