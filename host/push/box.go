package push

import (
	"bufio"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"time"

	"arbe.0sk.ar/runner/host/sandbox"
	"arbe.0sk.ar/runner/internal/git"
)

// gatherScript commits what is uncommitted on the branch $1, and writes its commits into the bundle $2: all of them
// where $3 is "whole", else those that no remote-tracking branch has. The message of the commit comes on its input.
// It prints "refuse REASON…", "ready COMMIT" with a bundle, or "known COMMIT" without one. One host at a time runs it.
const gatherScript = sandbox.GitPrelude + `
branch=$1 bundle=$2 whole=$3
exec 3<&0 </dev/null
refuse() { echo "refuse $*"; exit 0; }
mkdir -p "${bundle%/*}" || exit
exec 9>"${bundle%/*}/push.lock" || exit
! command -v flock >/dev/null || flock -w 300 9 || { echo "another push is at work in the box" >&2; exit 1; }
said=$(g rev-parse --is-inside-work-tree 2>&1) && [ "$said" = true ] || refuse repository "$said"
on=$(g symbolic-ref -q HEAD)
dirty=$(g status --porcelain) || exit
if [ -n "$dirty" ] && [ "$on" = "refs/heads/$branch" ]; then
	[ -z "$(g ls-files --unmerged)" ] || refuse conflicts
	: "${GIT_AUTHOR_NAME:=$(git config user.name || echo arbe)}"
	: "${GIT_AUTHOR_EMAIL:=$(git config user.email || echo arbe@localhost)}"
	: "${GIT_COMMITTER_NAME:=$GIT_AUTHOR_NAME}" "${GIT_COMMITTER_EMAIL:=$GIT_AUTHOR_EMAIL}"
	export GIT_AUTHOR_NAME GIT_AUTHOR_EMAIL GIT_COMMITTER_NAME GIT_COMMITTER_EMAIL
	g add --all . || exit
	g diff --cached --quiet --no-ext-diff || g commit --quiet --no-verify --cleanup=whitespace -F - <&3 || exit
fi
commit=$(g rev-parse -q --verify "refs/heads/$branch^{commit}") || {
	[ "$on" != "refs/heads/$branch" ] || refuse unborn
	refuse missing "${on#refs/heads/}"
}
if [ "$on" != "refs/heads/$branch" ]; then
	[ -z "$dirty" ] || refuse elsewhere "${on#refs/heads/}"
	ahead=$(g rev-list --count HEAD --not "$commit" 2>/dev/null || echo 0)
	[ "$ahead" = 0 ] || refuse elsewhere "${on#refs/heads/}"
fi
if [ "$whole" != whole ]; then
	[ "$(g rev-list --count --max-count=1 "$commit" --not --remotes)" = 1 ] || { echo "known $commit"; exit 0; }
	g bundle create --quiet "$bundle" "refs/heads/$branch" --not --remotes || exit
else
	g bundle create --quiet "$bundle" "refs/heads/$branch" || exit
fi
echo "ready $commit"`

// discardScript removes the bundle $1. Where the commit $3 was pushed as the branch $2, the box learns it as it would
// from a push of its own, so that Unsaved counts it no more.
const discardScript = sandbox.GitPrelude + `
rm -f "$1"
[ -z "$3" ] || g update-ref "refs/remotes/origin/$2" "$3"`

// work is the branch in the box.
type work struct {
	box    Box
	o      Options
	path   string // of the bundle, relative to the box's home; "" before it is made
	pushed string // the commit that was pushed; "" for none
}

// Bounds of the work in the box.
const (
	mostMessage = 64 << 10
	cleanupTime = time.Minute // of the cleanup in the box
)

// bundle commits uncommitted changes and packs the branch. packed is false if the box's remote-tracking branches have
// all of its commits.
func (w *work) bundle(ctx context.Context, whole bool) (commit string, packed bool, err error) {
	if w.path == "" {
		w.path = ".arbe/push-" + rand.Text() + ".bundle" // another host may push at the same time
	}
	how := "based"
	if whole {
		how = "whole"
	}
	message := cmp.Or(strings.TrimSpace(w.o.Intent), "what the run left uncommitted")
	message = strings.ToValidUTF8(message[:min(len(message), mostMessage)], "")
	c := sandbox.Command{Stdin: strings.NewReader(message + "\n"), Timeout: transfer, MaxOutput: mostOutput}
	res, err := sandbox.Shell(ctx, w.box, c, gatherScript, w.o.Branch, w.box.Home()+"/"+w.path, how)
	if err != nil {
		return "", false, fmt.Errorf("pack the branch %s in the box: %w", w.o.Branch, err)
	}
	word, rest, _ := strings.Cut(strings.TrimSpace(string(res.Stdout)), " ")
	switch {
	case word == "refuse":
		return "", false, w.refused(rest)
	case (word == "ready" || word == "known") && git.IsObject(rest):
		return rest, word == "ready", nil
	}
	return "", false, fmt.Errorf("pack the branch %s in the box: the answer is %.100q", w.o.Branch, res.Stdout)
}

// refused is the error of a branch that gatherScript refuses to pack.
func (w *work) refused(why string) error {
	why, detail, _ := strings.Cut(why, " ")
	place := "a detached HEAD"
	if detail != "" {
		place = "the branch " + detail
	}
	switch branch := w.o.Branch; why {
	case "repository":
		return fmt.Errorf("the box's working directory is not a git repository: %.300s", detail)
	case "conflicts":
		return errors.New("the working directory has unresolved merge conflicts, which are not committed")
	case "unborn":
		return errNothing
	case "missing":
		return fmt.Errorf("the box has no branch %s: its working directory is on %s", branch, place)
	case "elsewhere":
		return fmt.Errorf("the box's working directory is on %s, with work that the branch %s lacks", place, branch)
	}
	return fmt.Errorf("the box refused: %.300q", why)
}

// discard removes the bundle from the box. It ignores an error: the push has its result.
func (w *work) discard(ctx context.Context) {
	if w.path == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTime)
	defer cancel()
	c := sandbox.Command{Timeout: cleanupTime, MaxOutput: mostOutput}
	_, _ = sandbox.Shell(ctx, w.box, c, discardScript, w.box.Home()+"/"+w.path, w.o.Branch, w.pushed)
}

// Unsaved is the work in a box's working directory that may exist there only.
type Unsaved struct {
	Git     bool // the working directory is a repository; if not, the rest is unknown
	Commits int  // of any branch, stash or detached HEAD, that no remote-tracking branch has
	Changes int  // paths that are changed or untracked, without the ignored ones; a new folder is one
}

// Any reports whether there is such work.
func (u Unsaved) Any() bool { return u.Commits > 0 || u.Changes > 0 }

const unsavedScript = sandbox.GitPrelude + `
exec </dev/null
export GIT_OPTIONAL_LOCKS=0
said=$(g rev-parse --is-inside-work-tree 2>&1) && [ "$said" = true ] || {
	[ ! -e .git ] || { echo "$said" >&2; exit 1; }
	echo "none 0 0"
	exit 0
}
head=$(g rev-parse -q --verify HEAD)
commits=$(g rev-list --count $head --all --not --remotes) || exit
changes=$(g status --porcelain) || exit
echo "git $commits $(printf %s "$changes" | grep -c '')"`

var unsavedAnswer = regexp.MustCompile(`\A(git|none) (\d{1,9}) (\d{1,9})\n\z`)

// unsavedTimeout bounds CountUnsaved.
const unsavedTimeout = 2 * time.Minute

// CountUnsaved counts the work that may exist in the box only. All of it runs in the box. After an error the count is
// unknown, and the box must be kept.
func CountUnsaved(ctx context.Context, b Box) (Unsaved, error) {
	c := sandbox.Command{Timeout: unsavedTimeout, MaxOutput: mostOutput}
	res, err := sandbox.Shell(ctx, b, c, unsavedScript)
	if err != nil {
		return Unsaved{}, fmt.Errorf("look for unsaved work in the box: %w", err)
	}
	m := unsavedAnswer.FindStringSubmatch(string(res.Stdout))
	if m == nil {
		return Unsaved{}, fmt.Errorf("look for unsaved work in the box: the answer is %.100q", res.Stdout)
	}
	u := Unsaved{Git: m[1] == "git"}
	u.Commits, _ = strconv.Atoi(m[2]) // digits, few enough
	u.Changes, _ = strconv.Atoi(m[3])
	return u, nil
}

// header is the beginning of a bundle: the commits that it needs, and the refs that it has. The pack follows it.
type header struct {
	needs []string          // commits that are not in the pack
	tips  map[string]string // refs, and their commits
}

// Bounds of a header. A branch of a run needs far fewer commits than mostNeeds.
const (
	mostHeader = 1 << 20
	mostNeeds  = 1000
)

// readHeader reads a bundle's header, and returns the pack behind it. The format is that of gitformat-bundle(5).
func readHeader(from io.Reader) (h header, pack io.Reader, err error) {
	in := bufio.NewReaderSize(from, mostHeader)
	h.tips = map[string]string{}
	for read, first := 0, true; ; first = false {
		line, err := in.ReadSlice('\n')
		if read += len(line); err != nil || read > mostHeader {
			return h, nil, errors.New("the bundle's header is cut short")
		}
		text := strings.TrimSuffix(string(line), "\n")
		switch {
		case first:
			if text != "# v2 git bundle" && text != "# v3 git bundle" {
				return h, nil, errors.New("the box's bundle is malformed")
			}
		case text == "":
			if len(h.needs) > mostNeeds {
				return h, nil, fmt.Errorf("the bundle builds on %d commits", len(h.needs))
			}
			return h, in, nil
		case text[0] == '@':
			if text != "@object-format=sha1" {
				return h, nil, fmt.Errorf("a bundle with %s is not supported", text[1:])
			}
		case text[0] == '-':
			oid, _, _ := strings.Cut(text[1:], " ")
			if !git.IsObject(oid) {
				return h, nil, fmt.Errorf("the bundle's header names no commit in %q", text)
			}
			h.needs = append(h.needs, oid)
		default:
			oid, ref, _ := strings.Cut(text, " ")
			if !git.IsObject(oid) {
				return h, nil, fmt.Errorf("the bundle's header names no commit in %q", text)
			}
			h.tips[ref] = oid
		}
	}
}
