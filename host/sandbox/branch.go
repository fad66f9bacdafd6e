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

// BranchMode decides where the branch of a new box starts if the remote repository has a branch of that name.
type BranchMode int

// The modes. If the remote has no such branch, both start it at the default branch.
const (
	BranchContinue BranchMode = iota // start at the remote's branch, so that it can be pushed again
	BranchNew                        // refuse: Create returns ErrBranchExists and makes no box
)

// ErrBranchExists is returned if the remote repository has the branch already.
var ErrBranchExists = errors.New("the branch exists on the remote")

// Branch is the start of a new box's branch.
type Branch struct {
	Name     string
	Existing bool   // the remote has it, and the box's starts there
	Commit   string // of the remote's branch if Existing
}

// Branch returns where the box's branch begins: the zero Branch for a box that Open returned, and for one without
// Options.Branch.
func (b *localBox) Branch() Branch { return b.branch }

// Branch returns where the box's branch begins: the zero Branch for a box that Open returned, and for one without
// Options.Branch.
func (b *daytonaBox) Branch() Branch { return b.branch }

// lookTimeout bounds the query of a remote repository for a branch.
const lookTimeout = time.Minute

// beginBranch finds the start of o.Branch. git asks the remote from this machine, without the machine's credentials and
// its user's configuration.
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
	cmd.Env = append(cmd.Env, "GIT_TERMINAL_PROMPT=0", "GIT_CONFIG_GLOBAL="+os.DevNull,
		"GIT_CEILING_DIRECTORIES=/", "LC_ALL=C")
	for key, value := range env {
		cmd.Env = append(cmd.Env, key+"="+value)
	}
	cmd.WaitDelay = outputGrace
	var out, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &stderr
	if err := cmd.Run(); err != nil && !errors.Is(err, exec.ErrWaitDelay) {
		err = fmt.Errorf("look for the branch %s of %s: %w%s", o.Branch, plain(address), err, after(stderr.String()))
		err = errors.Join(err, ctx.Err())
		return begin, redacted(err, o.Token)
	}
	for line := range strings.Lines(out.String()) { // git also lists a/refs/heads/BRANCH
		if commit, name, _ := strings.Cut(strings.TrimSpace(line), "\t"); name == ref {
			begin.Existing, begin.Commit = true, commit
		}
	}
	if begin.Existing && o.BranchMode == BranchNew {
		return begin, fmt.Errorf("the branch %s of %s: %w", o.Branch, plain(address), ErrBranchExists)
	}
	return begin, nil
}
