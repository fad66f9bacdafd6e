// Package push pushes the branch that a run has left in its box, and makes a pull request of it.
//
// The commits leave the box as a git bundle, and are pushed from a bare repository in a temporary folder of the host,
// with a configuration of this package only. The box never gets the token, and no configuration in the box decides
// where the commits go. The token is sent to GitHub only: the server and the API that the host's environment names.
//
// A push is never forced: a branch with commits of others stays as it is, and the Outcome reports it. The
// result of a push is an Outcome and not an error, because a push that fails does not fail the run. No error holds the
// token.
package push

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"arbe.0sk.ar/runner/host/sandbox"
)

// Box is the part of a sandbox.Sandbox that a push needs. Its answers may be the agent's, and are not trusted.
type Box interface {
	Home() string
	Exec(ctx context.Context, c sandbox.Command) (sandbox.Result, error)
	Download(ctx context.Context, path string, w io.Writer) error
}

// Options are the branch to push, its remote, and the text of the pull request.
type Options struct {
	Remote      Remote
	Branch      string
	Intent      string // the task in a few words: title, and message of the commit of what was uncommitted; may be ""
	Thread, Run string // of the work

	Token   string // of GitHub: sent to a Remote there and to the API, and to no other server
	BaseURL string // of the API; "" for that of the remote's server
	NoPR    bool   // push only

	MaxBundle int64 // bytes of commits to accept from the box; 0: DefaultMaxBundle
	// HTTPClient sends requests to GitHub and the remote; nil for one with a timeout of 30 s.
	HTTPClient *http.Client
}

// DefaultMaxBundle is the default of Options.MaxBundle, in bytes.
const DefaultMaxBundle = 2 << 30

// Outcome is the result of a push, as signal.dispatch.push carries it.
//
// Without Error the branch is on the remote, and PRURL is its pull request where one was wanted and the remote is on
// GitHub. With Pushed and Error the branch is there and the pull request failed. Without Pushed nothing was changed on
// the remote.
type Outcome struct {
	Pushed bool   `json:"pushed"`
	Branch string `json:"branch,omitempty"`
	Commit string `json:"commit,omitempty"` // of the branch in the box, once that is known
	PRURL  string `json:"prUrl,omitempty"`
	Error  string `json:"error,omitempty"`

	// Nothing reports that there was nothing to push: the branch has no commit that the remote lacks, and the working
	// directory no change.
	Nothing bool `json:"-"`
}

// errNothing is returned if the run has made no commit and no change.
var errNothing = errors.New("nothing to push")

// Push commits what is uncommitted in the box, pushes the branch, and makes sure that it has a pull request. It may be
// repeated, also by two hosts at once: a branch that is pushed already stays, and an open pull request is found.
func Push(ctx context.Context, b Box, o Options) Outcome {
	out := Outcome{Branch: o.Branch}
	o.Token = strings.TrimSpace(o.Token)
	if o.Token == "" && o.wantsToken() {
		out.Error = "GITHUB_TOKEN required for push"
		return out
	}
	var err error
	switch out.Commit, err = push(ctx, b, o); {
	case errors.Is(err, errNothing):
		out.Nothing = true
		out.Error = fmt.Sprintf("nothing to push: the branch %s has no commit that the remote lacks", o.Branch)
		return out
	case err != nil:
		out.Error = "git push failed: " + reason(err, o.Token)
		return out
	}
	out.Pushed = true
	if o.NoPR || o.Remote.Owner == "" {
		return out
	}
	if out.PRURL, err = pullRequest(ctx, o); err != nil {
		out.Error = "PR creation failed: " + reason(err, o.Token)
	}
	return out
}

// wantsToken reports whether o needs a token.
func (o Options) wantsToken() bool {
	return o.Remote.Owner != "" && (o.Remote.overHTTP() || !o.NoPR)
}

// push takes the branch from the box to the remote, and returns its commit.
func push(ctx context.Context, b Box, o Options) (commit string, err error) {
	r, err := newRepository(ctx, o)
	if err != nil {
		return "", err
	}
	defer r.remove()
	refs, err := r.look(ctx)
	if err != nil {
		return "", err
	}
	w := work{box: b, o: o}
	defer w.discard(ctx)
	commit, err = r.take(ctx, &w, refs, false)
	if errors.Is(err, errWhole) {
		commit, err = r.take(ctx, &w, refs, true)
	}
	if err != nil {
		return commit, err
	}
	if refs[r.ref] == commit {
		w.pushed = commit
		return commit, nil
	}
	if err := r.push(ctx, commit); err != nil {
		// Another host may have been first, or the remote's answer was lost.
		if now, lookErr := r.look(ctx); lookErr != nil || now[r.ref] != commit {
			return commit, err
		}
	}
	w.pushed = commit
	return commit, nil
}

// errWhole is returned if the box's remote-tracking branches don't agree with the remote: then all of the branch's
// history is taken from the box, and not just the commits that those branches lack.
var errWhole = errors.New("the remote lacks commits of the box's remote-tracking branches")

// take gets the branch's commits out of the box and into r, and returns the newest.
func (r *repository) take(ctx context.Context, w *work, refs map[string]string, whole bool) (commit string, err error) {
	commit, packed, err := w.bundle(ctx, whole)
	if err != nil {
		return commit, err
	}
	if !packed {
		return commit, r.judgeNothing(ctx, commit, refs)
	}
	file, err := r.download(ctx, w)
	if err != nil {
		return commit, err
	}
	defer file.Close() // read only: nothing to lose
	h, body, err := readHeader(file)
	if err != nil {
		return commit, err
	}
	if len(h.tips) != 1 || h.tips[r.ref] == "" {
		return commit, fmt.Errorf("the bundle is not one of %s alone", r.ref)
	}
	commit = h.tips[r.ref]
	if len(h.needs) > 0 {
		if err := r.fetch(ctx, h.needs); err != nil {
			if ctx.Err() != nil || whole {
				return commit, err
			}
			return commit, errWhole
		}
	}
	return commit, r.unpack(ctx, body)
}

// judgeNothing handles a branch whose commits are all in the box's remote-tracking branches. The agent may have pushed
// the branch, or changed the remote-tracking branches, so judgeNothing asks the remote.
func (r *repository) judgeNothing(ctx context.Context, commit string, refs map[string]string) error {
	if refs[r.ref] == commit {
		return nil // it is pushed already
	}
	for _, tip := range refs {
		if tip == commit {
			return errNothing
		}
	}
	has, err := r.remoteHas(ctx, commit)
	switch {
	case err != nil:
		return err
	case has:
		return errNothing
	}
	return errWhole
}
