package sandbox

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Repository is a repository to clone. At most one of Branch, Tag and Commit is set; none is the default branch.
type Repository struct {
	Repo   string // org/repo of GitHub, an address for git, or, for a local box, an absolute path
	Branch string
	Tag    string
	Commit string
	Depth  int    // the commits to fetch; 0: all
	Work   string // a branch to check out: the remote's if it exists, else a new one from what is cloned; "" for none

	GitHub string // the server of org/repo; "" for the provider's
	Token  string // for GitHub; no other server gets it
}

// source returns the repository's address for git, and its token if that is for the address.
func (r Repository) source(github string) (address, token string, err error) {
	github = cmp.Or(r.GitHub, github)
	for _, ref := range []string{r.Branch, r.Tag, r.Work} {
		if err := checkBranch(ref); err != nil {
			return "", "", err
		}
	}
	switch {
	case filepath.IsAbs(r.Repo), strings.Contains(r.Repo, "://"):
		address = r.Repo
	default:
		owner, name, err := ParseRepo(r.Repo, github)
		if err != nil {
			return "", "", err
		}
		address = RepoAddress(github, owner, name)
	}
	return address, tokenFor(address, github, r.Token), nil
}

// begin finds the start of r.Work: the remote's branch replaces what was to be cloned.
func (r *Repository) begin(ctx context.Context, address, token string) error {
	there, err := hasBranch(ctx, address, r.Work, token)
	if there {
		r.Branch, r.Tag, r.Commit, r.Work = r.Work, "", "", ""
	}
	return err
}

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

// cloneByGit clones with the box's own git into the working directory of the box, which has to be there.
func cloneByGit(ctx context.Context, box Sandbox, r Repository, address, token string) error {
	env, err := credential(address, token)
	if err != nil {
		return err
	}
	c := Command{Env: map[string]string{
		"GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C", "GIT_CEILING_DIRECTORIES": filepath.Dir(box.WorkDir()),
	}, Timeout: transfer}
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
	_, err = Shell(ctx, box, c, script, address, depth, ref)
	switch failed, is := errors.AsType[*ExitError](err); {
	case err == nil:
		return nil
	case is && failed.Code == 127:
		err = errors.New("the box has no git" + after(failed.Output))
	case is:
		err = fmt.Errorf("git: exit status %d%s", failed.Code, after(failed.Output))
	}
	return fmt.Errorf("clone %s: %w", plain(address), redacted(err, token))
}

// At returns the box with another working directory, path below the workspace. The directory need not exist.
func (b *localBox) At(path string) (Sandbox, error) {
	if _, err := confineFile(b.workspace(), path); err != nil || filepath.IsAbs(path) {
		return nil, &ConfinedError{Path: path, Root: b.workspace()}
	}
	at := &localBox{id: b.id, dir: b.dir, rec: b.rec}
	at.rec.Work = path
	return at, nil
}

// Clone clones a repository into the working directory, which is made if it is missing, and else has to be empty.
func (b *localBox) Clone(ctx context.Context, r Repository) error {
	address, token, err := r.source(GitHub)
	if err != nil {
		return err
	}
	if err := b.there(); err != nil {
		return err
	}
	if err := r.begin(ctx, address, token); err != nil {
		return err
	}
	if err := os.MkdirAll(b.WorkDir(), 0o755); err != nil {
		return err
	}
	if filepath.IsAbs(address) && r.Depth > 0 {
		address = "file://" + address // git ignores a depth for a plain path
	}
	if err := cloneByGit(ctx, b, r, address, token); err != nil || r.Work == "" {
		return err
	}
	if _, err := b.git(ctx, nil, "checkout", "--quiet", "--no-track", "-B", r.Work); err != nil {
		return fmt.Errorf("make the branch %s: %w", r.Work, err)
	}
	return nil
}

// clone clones the box's repository and checks a branch out: the remote's if that is there, or a new one from the
// default branch.
func (b *localBox) clone(ctx context.Context, branch string, there bool, token string) error {
	env, err := credential(b.rec.Repo, token)
	if err != nil {
		return err
	}
	if _, err := b.git(ctx, env, "clone", "--quiet", "--", b.rec.Repo, "."); err != nil {
		return fmt.Errorf("clone %s: %w", plain(b.rec.Repo), redacted(err, token))
	}
	args := []string{"checkout", "--quiet", "--no-track", "-B", branch}
	switch {
	case branch == "":
		return nil
	case there:
		args = []string{"checkout", "--quiet", "--track", "-B", branch, "refs/remotes/origin/" + branch}
	}
	if _, err := b.git(ctx, nil, args...); err != nil {
		return fmt.Errorf("check out the branch %s: %w", branch, err)
	}
	return nil
}

// git runs git in the working directory. It never prompts for a password.
func (b *localBox) git(ctx context.Context, env map[string]string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "git", append([]string{"-c", "credential.helper="}, args...)...)
	cmd.Dir = b.WorkDir()
	cmd.Env = append(b.env(env), "GIT_TERMINAL_PROMPT=0", "GIT_CEILING_DIRECTORIES="+b.dir)
	cmd.WaitDelay = outputGrace
	var out, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &stderr
	if err := cmd.Run(); err != nil && !errors.Is(err, exec.ErrWaitDelay) {
		return "", errors.Join(fmt.Errorf("git: %w%s", err, after(stderr.String())), ctx.Err())
	}
	return out.String(), nil
}

// At returns the box with another working directory, path below the workspace. The directory need not exist.
func (b *daytonaBox) At(path string) (Sandbox, error) {
	work, err := confineFile(b.workspace(), path)
	if err != nil || filepath.IsAbs(path) {
		return nil, &ConfinedError{Path: path, Root: b.workspace()}
	}
	return &daytonaBox{p: b.p, id: b.id, toolbox: b.toolbox, home: b.home, work: work}, nil
}

// Clone clones a repository into the working directory, which is made if it is missing, and else has to be empty. The
// daemon clones branches, so that the box needs no git for those. It knows no tags, and no commit that the default
// branch lacks.
func (b *daytonaBox) Clone(ctx context.Context, r Repository) error {
	if filepath.IsAbs(r.Repo) {
		return fmt.Errorf("%s is a folder of this host, which a box at Daytona can't reach", r.Repo)
	}
	address, token, err := r.source(b.p.conf.GitHub)
	if err != nil {
		return err
	}
	if err := r.begin(ctx, address, token); err != nil {
		return err
	}
	if r.Tag == "" && r.Commit == "" {
		return b.cloneByDaemon(ctx, address, r, token)
	}
	if err := b.folder(ctx, b.work, 0o755); err != nil {
		return err
	}
	if err := cloneByGit(ctx, b, r, address, token); err != nil {
		return err
	}
	return b.newBranch(ctx, r.Work)
}

// transfer bounds a clone or a snapshot.
const transfer = 20 * time.Minute

// cloneByDaemon clones a branch, and makes r.Work from it.
func (b *daytonaBox) cloneByDaemon(ctx context.Context, address string, r Repository, token string) error {
	body := map[string]any{"url": address, "path": b.work}
	if r.Branch != "" {
		body["branch"] = r.Branch
	}
	if r.Depth > 0 {
		body["depth"] = r.Depth // older daemons ignore it
	}
	if token != "" {
		body["username"], body["password"] = "git", token // GitHub checks the token alone, but needs a name
	}
	if err := b.git(ctx, "clone "+plain(address), "clone", body, transfer, token); err != nil {
		return err
	}
	return b.newBranch(ctx, r.Work)
}

// newBranch makes a branch at HEAD and checks it out. An empty name means no branch.
func (b *daytonaBox) newBranch(ctx context.Context, branch string) error {
	if branch == "" {
		return nil
	}
	body := map[string]string{"path": b.work, "name": branch}
	if err := b.git(ctx, "make the branch "+branch, "branches", body, attempt); err != nil {
		return err
	}
	body = map[string]string{"path": b.work, "branch": branch}
	return b.git(ctx, "check out "+branch, "checkout", body, attempt)
}

// git sends the daemon a git operation.
func (b *daytonaBox) git(
	ctx context.Context, doing, what string, body any, limit time.Duration, secrets ...string,
) error {
	return b.call(ctx, request{
		doing: doing, method: http.MethodPost, url: "/git/" + what, body: body, once: true,
		attempt: limit, secrets: secrets,
	})
}
