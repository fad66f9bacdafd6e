package sandbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"
)

// BranchMode says where a new box's branch begins if the remote repository has a branch of that name.
type BranchMode int

// The modes. Where the remote has no such branch, both begin it at the default branch.
const (
	BranchContinue BranchMode = iota // at the remote's branch, so that it can be pushed again
	BranchNew                        // nowhere: Create refuses it with ErrBranchExists, before it makes a box
)

// ErrBranchExists says that the remote repository has the branch already.
var ErrBranchExists = errors.New("the branch exists on the remote")

// Branch is where a new box's branch begins.
type Branch struct {
	Name     string
	Existing bool   // the remote had it, and it begins there
	Commit   string // of the remote's branch, where it is Existing
}

// Branch returns where the box's branch begins: the zero Branch for a box that Open returned, and for one without
// Options.Branch.
func (b *localBox) Branch() Branch { return b.branch }

// Branch returns where the box's branch begins: the zero Branch for a box that Open returned, and for one without
// Options.Branch.
func (b *daytonaBox) Branch() Branch { return b.branch }

// lookTimeout bounds the question after a branch of a remote repository.
const lookTimeout = time.Minute

// beginBranch finds out where o.Branch is to begin. git asks the remote from this machine, with none of the machine's own
// credentials and none of its user's configuration.
func (o Options) beginBranch(ctx context.Context, address string) (Branch, error) {
	begin := Branch{Name: o.Branch}
	if o.Branch == "" || address == "" {
		return begin, nil
	}
	env, err := credential(address, o.Token)
	if err != nil {
		return begin, err
	}
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	ref := "refs/heads/" + o.Branch
	cmd := exec.CommandContext(ctx, "git", "-c", "credential.helper=", "ls-remote", "--", address, ref)
	cmd.Dir = "/"
	cmd.Env = slices.DeleteFunc(os.Environ(), func(kv string) bool { return strings.HasPrefix(kv, "GIT_") })
	cmd.Env = append(cmd.Env, "GIT_TERMINAL_PROMPT=0", "GIT_CONFIG_GLOBAL="+os.DevNull, "GIT_CEILING_DIRECTORIES=/", "LC_ALL=C")
	for key, value := range env {
		cmd.Env = append(cmd.Env, key+"="+value)
	}
	cmd.WaitDelay = lingering
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	if err := cmd.Run(); err != nil && !errors.Is(err, exec.ErrWaitDelay) {
		err = errors.Join(fmt.Errorf("look for the branch %s of %s: %w: %s", o.Branch, plain(address), err, clip(said.String())), ctx.Err())
		return begin, redacted(err, o.Token)
	}
	for line := range strings.Lines(out.String()) { // the pattern also matches a/refs/heads/BRANCH
		if commit, name, _ := strings.Cut(strings.TrimSpace(line), "\t"); name == ref {
			begin.Existing, begin.Commit = true, commit
		}
	}
	if begin.Existing && o.BranchMode == BranchNew {
		return begin, fmt.Errorf("the branch %s of %s: %w", o.Branch, plain(address), ErrBranchExists)
	}
	return begin, nil
}
