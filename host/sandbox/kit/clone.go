package kit

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"strconv"
	"time"

	"arbe.0sk.ar/runner/host/sandbox"
)

// Begin finds the start of r.Work: the remote's branch replaces what was to be cloned.
func Begin(ctx context.Context, r *sandbox.Repository, address, token string) error {
	there, err := HasBranch(ctx, address, r.Work, token)
	if there {
		r.Branch, r.Tag, r.Commit, r.Work = r.Work, "", "", ""
	}
	return err
}

// TransferTimeout bounds a clone or a snapshot.
const TransferTimeout = 20 * time.Minute

// cloneScript clones $1 with depth $2 and branch $3 into the working directory.
const cloneScript = `exec git clone --quiet ${2:+--depth="$2"} ${3:+--branch="$3"} -- "$1" .`

// fetchScript makes a repository of $1 in the working directory, with depth $2, at the ref $3 and without a branch. Its
// remote-tracking branch has the same commit, so that this is not taken for work that is nowhere else. A server that
// does not give a commit by its id gives all branches.
const fetchScript = `git init --quiet && git remote add origin "$1" || exit
case $3 in
refs/*) git fetch --quiet ${2:+--depth="$2"} origin "+$3:$3" "+$3:refs/remotes/origin/arbe-base" || exit ;;
*)
	git fetch --quiet ${2:+--depth="$2"} origin "+$3:refs/remotes/origin/arbe-base" 2>/dev/null ||
		{ git fetch --quiet origin && git update-ref refs/remotes/origin/arbe-base "$3^{commit}"; } || exit ;;
esac
exec git checkout --quiet --detach refs/remotes/origin/arbe-base`

// Clone clones with the box's own git into the working directory of the box, which has to be there.
func Clone(ctx context.Context, box sandbox.Sandbox, r sandbox.Repository, address, token string) error {
	env, err := Credential(address, token)
	if err != nil {
		return err
	}
	c := sandbox.Command{Env: map[string]string{
		"GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C", "GIT_CEILING_DIRECTORIES": filepath.Dir(box.WorkDir()),
	}, Timeout: TransferTimeout}
	maps.Copy(c.Env, env)
	depth := ""
	if r.Depth > 0 {
		depth = strconv.Itoa(r.Depth)
	}
	script, ref := cloneScript, r.Branch
	switch {
	case r.Tag != "":
		script, ref = fetchScript, "refs/tags/"+r.Tag
	case r.Commit != "":
		script, ref = fetchScript, r.Commit
	}
	_, err = sandbox.Shell(ctx, box, c, script, address, depth, ref)
	switch failed, is := errors.AsType[*sandbox.ExitError](err); {
	case err == nil:
		return nil
	case is && failed.Code == 127:
		err = errors.New("the box has no git" + After(failed.Output))
	case is:
		err = fmt.Errorf("git: exit status %d%s", failed.Code, After(failed.Output))
	}
	return fmt.Errorf("clone %s: %w", Plain(address), Redacted(err, token))
}
