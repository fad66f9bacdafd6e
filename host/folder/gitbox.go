package folder

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"path"
	"slices"
	"strconv"
	"strings"

	"arbe.0sk.ar/runner/host/folder/repository"
	"arbe.0sk.ar/runner/host/sandbox"
)

// stateScript reports what git has recorded of the repository at $2, below the working directory $3, into the folder
// $1: "state", the lengths of its parts, and the length and SHA-256 of the file with all; "other" for a repository
// whose records are elsewhere, as those of a linked worktree are; or "none" and why there is no report. It repeats a
// report of which the beginning has changed meanwhile.
var stateScript = `dir=$1 top=$3
rm -rf "$dir"; (umask 077; mkdir -p "$dir") || exit
exec </dev/null
cd -- "$2" || exit` + sandbox.GitPrelude + `
export GIT_OPTIONAL_LOCKS=0
none() { echo "none $(tail -n 1 "$dir/said" | head -c 300)"; exit 0; }
command -v git >/dev/null || { echo "none git is missing in the box"; exit 0; }
records=$(g rev-parse --absolute-git-dir 2>"$dir/said") && records=$(cd "$records" && pwd -P) &&
	common=$(g rev-parse --git-common-dir 2>"$dir/said") && common=$(cd "$common" && pwd -P) || none
[ "$records" = "$common" ] || { echo other; exit 0; }
case $records/ in "$(cd "$top" && pwd -P)"/*) ;; *) echo other; exit 0 ;; esac
heads() { ` + sh(repository.HeadCommand) + `; ` + sh(repository.CommitCommand) + `; }
look() { heads; ` + sh(repository.RefsCommand) + `; cat "$records/index" 2>/dev/null; }
for try in 1 2 3; do
	before=$(look | sha256sum)
	` + sh(repository.HeadCommand) + ` >"$dir/0"
	` + sh(repository.CommitCommand) + ` >"$dir/1"
	` + sh(repository.RefsCommand) + ` >"$dir/2" 2>"$dir/said" || none
	` + sh(repository.IndexCommand) + ` >"$dir/3" 2>"$dir/said" || none
	for name in ` + strings.Join(repository.Operations, " ") + `; do
		[ ! -e "$records/$name" ] || { echo "$name"; break; }
	done >"$dir/4"
	g rev-list -g refs/stash -- >"$dir/5" 2>/dev/null
	[ "$before" != "$(look | sha256sum)" ] || break
done
cat "$dir"/[0-5] >"$dir/state" || exit
echo state $(for n in 0 1 2 3 4 5; do wc -c <"$dir/$n"; done) $(wc -c <"$dir/state") $(sha256sum <"$dir/state" | cut -c1-64)`

// sh returns a command of git as a script has it. No argument has a quote.
func sh(args []string) string { return "g '" + strings.Join(args, "' '") + "'" }

// objectsScript packs the objects of the repository at $2 that the list $1/want names, without what the commits of
// $1/have need.
const objectsScript = `dir=$1
exec </dev/null
cd -- "$2" || exit` + sandbox.GitPrelude + `
g cat-file --batch-check <"$dir/have" >"$dir/known" 2>"$dir/said" &&
	sed -n 's/^\([0-9a-f]*\) commit .*/^\1/p' "$dir/known" >"$dir/revs" && cat "$dir/want" >>"$dir/revs" &&
	g pack-objects --revs --stdout -q --delta-base-offset <"$dir/revs" >"$dir/pack" 2>"$dir/said" ||
	{ tail -c 2000 "$dir/said" >&2; exit 1; }
echo $(wc -c <"$dir/pack") $(sha256sum <"$dir/pack" | cut -c1-64)`

// records returns what git has recorded of a repository in the box; nil and why for one that can't be read, and nil and
// "" for one of which the records are elsewhere.
func (r *remote) records(ctx context.Context, dir string) (s *repository.State, why string, err error) {
	work := r.box.WorkDir()
	out, err := script(ctx, r.box, scriptTimeout, stateScript, r.place(), path.Join(work, dir), work)
	if err != nil {
		return nil, "", fmt.Errorf("look at the box's repository %s: %w", shown(dir), err)
	}
	kind, rest, _ := strings.Cut(strings.TrimSpace(out), " ")
	words := strings.Fields(rest)
	switch {
	case kind == "other":
		return nil, "", nil
	case kind == "none":
		return nil, rest, nil
	case kind != "state" || len(words) < 3:
		return nil, "", fmt.Errorf("look at the box's repository %s: unexpected output %.100q", shown(dir), out)
	}
	sizes, is := words[:len(words)-2], words[len(words)-2:]
	err = r.fetch(ctx, "state", is, func(b *bufio.Reader) error {
		var parts [][]byte
		for _, text := range sizes {
			n, err := strconv.ParseInt(text, 10, 64)
			if err != nil {
				return err
			}
			part, err := io.ReadAll(io.LimitReader(b, n))
			if err != nil {
				return err
			}
			parts = append(parts, part)
		}
		got, err := repository.Parse(parts)
		s = &got
		return err
	})
	return s, "", err
}

// objects brings the objects of a repository in the box that the user's repository lacks. refused is why that one does
// not take them.
func (r *remote) objects(
	ctx context.Context, dir string, to *repository.Repo, wants, haves []string,
) (refused, err error) {
	var files []sandbox.File
	for name, list := range map[string][]string{"want": wants, "have": haves} {
		text := []byte(strings.Join(append(list, ""), "\n"))
		files = append(files, sandbox.File{
			Path: r.dir + "/" + name, InHome: true, Content: bytes.NewReader(text), Size: int64(len(text)), Mode: 0o600,
		})
	}
	if err := r.box.Upload(ctx, files...); err != nil {
		return nil, err
	}
	out, err := script(ctx, r.box, scriptTimeout, objectsScript, r.place(), path.Join(r.box.WorkDir(), dir))
	is := strings.Fields(out)
	if err == nil && len(is) != 2 {
		err = fmt.Errorf("unexpected output %.100q", out)
	}
	if err != nil {
		return nil, fmt.Errorf("pack the commits of the box's repository %s: %w", shown(dir), err)
	}
	err = r.fetch(ctx, "pack", is, func(b *bufio.Reader) error {
		refused = to.Add(ctx, b, wants)
		return nil
	})
	return refused, err
}

// shown is a folder's path for a message.
func shown(dir string) string { return cmp.Or(dir, ".") }

// repositories returns the folders of a manifest that have a .git, the deepest first: a submodule is before the
// repository that names its commit.
func repositories(all ...Manifest) (dirs []string) {
	found := map[string]bool{}
	for _, m := range all {
		for name := range m {
			if dir, is := repositoryOf(name); is && path.Base(name) == ".git" && !found[dir] {
				found[dir] = true
				dirs = append(dirs, dir)
			}
		}
	}
	depth := func(dir string) int { return strings.Count("/"+dir, "/") + min(len(dir), 1) }
	slices.SortFunc(dirs, func(a, b string) int {
		return cmp.Or(cmp.Compare(depth(b), depth(a)), strings.Compare(a, b))
	})
	return dirs
}

// repositoryOf returns the folder with the .git that a path is in, or is.
func repositoryOf(name string) (dir string, is bool) {
	before, _, is := strings.Cut("/"+name+"/", "/.git/")
	return strings.TrimPrefix(before, "/"), is
}

// states returns what git has recorded of the box's repositories that can be read, by their folders.
func (r *remote) states(ctx context.Context, dirs []string) (map[string]repository.State, error) {
	all := map[string]repository.State{}
	for _, dir := range dirs {
		s, _, err := r.records(ctx, dir)
		if err != nil {
			return nil, err
		}
		if s != nil {
			all[dir] = *s
		}
	}
	return all, nil
}

// Base is the state that a folder and its copy in a box began with, or the copy's state after the last Pull.
type Base struct {
	Manifest
	Repositories map[string]repository.State // by their folders; without those that could not be read
}
