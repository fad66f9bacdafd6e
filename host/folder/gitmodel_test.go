package folder_test

import (
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"arbe.0sk.ar/runner/host/folder"
	"arbe.0sk.ar/runner/host/sandbox"
	"arbe.0sk.ar/runner/host/sandbox/local"
)

// seedVar is the variable with the first seed that TestRepositories plays.
const seedVar = "ARBE_SYNC_SEED"

// TestRepositories has a user and an agent use git at random in two copies of a repository, and merges, three times in
// a row. checkMerge has what must be then.
func TestRepositories(t *testing.T) { playRepositories(t, 6) }

// TestFullRepositories is TestRepositories with more seeds.
func TestFullRepositories(t *testing.T) { playRepositories(t, 30) }

func playRepositories(t *testing.T, seeds int) {
	t.Parallel()
	first := 0
	if n, err := strconv.Atoi(os.Getenv(seedsVar)); err == nil {
		seeds = n
	}
	if n, err := strconv.Atoi(os.Getenv(seedVar)); err == nil {
		first = n
	}
	boxes := local.New(t.TempDir())
	var sum outcome
	for seed := first; seed < first+seeds; seed++ {
		playRepository(t, boxes, uint64(seed), &sum)
	}
	t.Logf("%d merges: HEAD has followed %d times, stayed %d times, and had nothing to follow %d times; %d names",
		sum.merges, sum.followed, sum.stayed, sum.still, sum.stored)
	if seeds > 5 && (sum.followed == 0 || sum.stayed == 0 || sum.stored == 0) {
		t.Error("the seeds do not play all cases")
	}
}

// outcome counts what the merges came to.
type outcome struct{ merges, followed, stayed, still, stored int }

func playRepository(t *testing.T, boxes sandbox.Provider, seed uint64, sum *outcome) {
	r := rand.New(rand.NewPCG(seed, 28))
	s := newScene(t, boxes)
	s.Name, s.Delete = "thread1", seed%3 == 2
	s.Impatient()
	user := &player{t: t, r: r, dir: s.Path, by: "user"}
	agent := &player{t: t, r: r, dir: s.work(), by: "agent"}
	user.start()
	user.play(6, heavy)
	s.copyIn(t)
	base := take(t, s.work()) // what was sent, before anybody works on
	delivered := map[string]bool{}
	for round := range 3 {
		user.log, agent.log = nil, nil
		user.play(r.IntN(8), []work{idle, light, heavy}[r.IntN(3)])
		agent.play(2+r.IntN(8), heavy)
		before, box := take(t, s.Path), take(t, s.work())
		named := commitsOf(t, s.Path)
		res, err := s.Pull(t.Context(), s.box)
		if err != nil {
			t.Fatalf("seed %d, round %d: %v\nuser: %s\nagent: %s", seed, round, err, user, agent)
		}
		files := s.Base.Manifest
		s.Base = res.Base
		s.clean(t)
		m := merged{
			base: base, user: before, box: box, after: take(t, s.Path), files: files, res: res, dir: s.Path,
			boxDir: s.work(), deletes: s.Delete, named: named, delivered: delivered,
		}
		if faults := m.check(t); len(faults) > 0 {
			t.Fatalf("seed %d, round %d:\n%s\nuser: %s\nagent: %s\nbase %v\nuser %v\nbox  %v\nnow  %v\n%+v",
				seed, round, strings.Join(faults, "\n"), user, agent, base, before, box, m.after, res.Stored)
		}
		m.count(sum)
		again, err := s.Pull(t.Context(), s.box)
		if now := take(t, s.Path); err != nil || !now.equal(m.after) || len(again.Stored) > 0 {
			t.Fatalf("seed %d, round %d: a second sync: %v, %+v\nwas %v\nis  %v", seed, round, err, again.Stored,
				m.after, now)
		}
		s.Base = again.Base
		base = box
	}
}

// gitIn runs git in a folder, and returns its output and whether it has succeeded.
func gitIn(t *testing.T, dir string, args ...string) (string, bool) {
	t.Helper()
	cmd := exec.Command("git", append([]string{"-c", "core.editor=true", "-c", "gc.auto=0"}, args...)...)
	cmd.Dir = dir
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + os.DevNull, "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=" + os.DevNull,
		"GIT_AUTHOR_EMAIL=a@example.org", "LC_ALL=C",
		"GIT_COMMITTER_EMAIL=a@example.org", "GIT_CEILING_DIRECTORIES=" + filepath.Dir(dir),
	}
	out, err := cmd.CombinedOutput()
	return strings.TrimSpace(string(out)), err == nil
}

// taken is the state of git and the working tree at a moment, read by git itself.
type taken struct {
	head, commit string
	refs         map[string]string
	index        map[string]string // "mode object stage"
	intents      map[string]bool   // entries of git add -N
	stash        string
	busy         string
	files        folder.Manifest // without .git
}

func take(t *testing.T, dir string) taken {
	t.Helper()
	s := taken{refs: map[string]string{}, index: map[string]string{}, intents: map[string]bool{}}
	if head, ok := gitIn(t, dir, "symbolic-ref", "-q", "HEAD"); ok {
		s.head = head
	}
	if commit, ok := gitIn(t, dir, "rev-parse", "-q", "--verify", "HEAD"); ok {
		s.commit = commit
	}
	refs, _ := gitIn(t, dir, "for-each-ref", "--format=%(refname) %(objectname)")
	for line := range strings.Lines(refs) {
		name, oid, _ := strings.Cut(strings.TrimSpace(line), " ")
		s.refs[name] = oid
	}
	index, ok := gitIn(t, dir, "ls-files", "-s", "-z")
	if !ok {
		t.Fatal(index)
	}
	for record := range strings.SplitSeq(index, "\x00") {
		if entry, path, is := strings.Cut(record, "\t"); is {
			s.index[path] += entry + ";"
		}
	}
	intents, _ := gitIn(t, dir, "diff-files", "--name-only", "-z", "--diff-filter=A")
	for path := range strings.SplitSeq(intents, "\x00") {
		s.intents[path] = true
	}
	s.stash, _ = gitIn(t, dir, "stash", "list", "--format=%H")
	for _, name := range []string{"MERGE_HEAD", "REVERT_HEAD", "CHERRY_PICK_HEAD", "rebase-merge"} {
		if _, err := os.Stat(filepath.Join(dir, ".git", name)); err == nil {
			s.busy += name
		}
	}
	s.files = scan(t, dir)
	maps.DeleteFunc(s.files, func(name string, _ folder.Entry) bool {
		return name == ".git" || strings.HasPrefix(name, ".git/")
	})
	return s
}

func (s taken) equal(o taken) bool {
	return s.head == o.head && s.commit == o.commit && maps.Equal(s.refs, o.refs) && maps.Equal(s.index, o.index) &&
		s.stash == o.stash && s.busy == o.busy && maps.Equal(s.files, o.files)
}

func (s taken) String() string {
	short := func(m map[string]string) string {
		var all []string
		for _, name := range slices.Sorted(maps.Keys(m)) {
			all = append(all, fmt.Sprintf("%s=%.18s", name, m[name]))
		}
		return strings.Join(all, " ")
	}
	return fmt.Sprintf("%s %.7s %s\n  refs %s\n  index %s\n  files %v", s.head, s.commit, s.busy, short(s.refs),
		short(s.index), slices.Sorted(maps.Keys(s.files)))
}

// merged is a merge to check.
type merged struct {
	base, user, box, after taken
	files                  folder.Manifest // of the base
	res                    folder.Result
	dir, boxDir            string
	deletes                bool
	named, delivered       map[string]bool // the agent's commits that the user had before the merge, and ever
}

// followed reports whether HEAD has followed the box.
func (m merged) followed() bool {
	return (m.box.head != m.user.head || m.box.commit != m.user.commit) && m.after.head == m.box.head &&
		m.after.commit == m.box.commit
}

func (m merged) count(sum *outcome) {
	sum.merges++
	sum.stored += len(m.res.Stored)
	switch {
	case m.box.head == m.base.head && m.box.commit == m.base.commit:
		sum.still++
	case m.followed():
		sum.followed++
	default:
		sum.stayed++
	}
}

// check returns what must not be after a merge.
func (m merged) check(t *testing.T) (faults []string) {
	t.Helper()
	bad := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	descends := func(commit, from string) bool {
		_, is := gitIn(t, m.dir, "merge-base", "--is-ancestor", from, commit)
		return is
	}
	same := func(a, b taken) bool { return a.head == b.head && a.commit == b.commit }

	// Nothing of the user's is lost.
	for name, oid := range m.user.refs {
		switch now := m.after.refs[name]; {
		case strings.HasPrefix(name, "refs/arbe/"), now == oid:
		case now != m.box.refs[name] || oid != m.base.refs[name]:
			bad("%s is %.7s, was %.7s here and %.7s in the box", name, now, oid, m.box.refs[name])
		case !descends(now, oid):
			bad("%s has lost %.7s", name, oid)
		}
	}
	if m.after.stash != m.user.stash || m.after.busy != m.user.busy {
		bad("the stash or what is in progress has changed: %q, %q", m.after.stash, m.after.busy)
	}
	for name, e := range m.user.files {
		if e.Type != folder.Dir && e != m.files[name] && m.after.files[name] != e && m.box.files[name] != e {
			bad("the user's file %s has changed", name)
		}
		if !m.deletes && m.after.files[name].Type == folder.Absent {
			bad("the file %s was deleted", name)
		}
	}
	for name, e := range m.user.index {
		if e != m.base.index[name] && m.after.index[name] != e && !m.user.intents[name] {
			bad("the index has %s for %s, and the user staged %s", m.after.index[name], name, e)
		}
	}
	out, ok := gitIn(t, m.dir, "fsck", "--connectivity-only", "--no-dangling")
	if !ok || strings.Contains(out, "missing") {
		bad("fsck: %s", out)
	}

	// HEAD, its branch and the index move as one, or not at all.
	switch {
	case m.followed():
		if !same(m.user, m.base) || m.user.busy != "" || m.box.busy != "" {
			bad("HEAD has followed, although it had moved here or something was in progress")
		}
		for _, name := range paths(m.base.index, m.user.index, m.box.index, m.after.index) {
			want := m.box.index[name]
			if m.user.index[name] != m.base.index[name] && m.box.index[name] == m.base.index[name] {
				want = m.user.index[name]
			}
			if m.after.index[name] != want && !m.user.intents[name] && !m.box.intents[name] {
				bad("HEAD has followed, and the index has %q for %s, not %q", m.after.index[name], name, want)
			}
		}
	case !same(m.user, m.after):
		bad("HEAD is %s %.7s", m.after.head, m.after.commit)
	default:
		for _, name := range paths(m.user.index, m.after.index) {
			if m.after.index[name] != m.user.index[name] && m.after.index[name] != m.box.index[name] {
				bad("the index has %q for %s", m.after.index[name], name)
			}
		}
	}
	if m.untouched() && m.box.busy == "" && m.box.head == m.base.head && m.box.commit != m.base.commit &&
		(m.base.commit == "" || descends(m.box.commit, m.base.commit)) && !m.followed() && !m.user.same(m.box) {
		bad("HEAD has not followed, although the user has done nothing")
	}

	// All that the agent has committed has a name, unless the user has dropped it since an earlier merge.
	now := commitsOf(t, m.dir)
	for commit := range commitsOf(t, m.boxDir) {
		if !now[commit] && (!m.delivered[commit] || m.named[commit]) {
			bad("the agent's commit %.7s has no name", commit)
		}
	}
	maps.Copy(m.delivered, now)
	for _, n := range m.res.Stored {
		if m.after.refs[n.Ref] != n.Object || n.Why == "" {
			bad("%+v is at %s", n, m.after.refs[n.Ref])
		}
	}
	return append(faults, m.undoes(t)...)
}

func (s taken) same(o taken) bool { return s.head == o.head && s.commit == o.commit }

// untouched reports whether the user has changed nothing of what the merge looks at.
func (m merged) untouched() bool {
	u, b := m.user, m.base
	files := maps.Clone(u.files)
	for name := range u.files {
		if m.files[name].Type == folder.Absent && m.box.files[name].Type == folder.Absent {
			delete(files, name)
		}
	}
	sent := maps.Clone(m.files)
	maps.DeleteFunc(sent, func(name string, _ folder.Entry) bool {
		return name == ".git" || strings.HasPrefix(name, ".git/")
	})
	return u.same(b) && maps.Equal(u.index, b.index) && u.busy == "" && maps.Equal(files, sent)
}

// commitsOf returns the agent's commits that a ref or HEAD of a repository has.
func commitsOf(t *testing.T, dir string) map[string]bool {
	t.Helper()
	all := map[string]bool{}
	for _, from := range []string{"--all", "HEAD"} { // before the first commit there is no HEAD
		out, _ := gitIn(t, dir, "log", "--format=%H %an", from)
		for line := range strings.Lines(out) {
			if commit, is := strings.CutSuffix(strings.TrimSpace(line), " agent"); is {
				all[commit] = true
			}
		}
	}
	return all
}

// paths returns the sorted paths of indexes.
func paths(all ...map[string]string) []string {
	union := map[string]string{}
	for _, m := range all {
		maps.Copy(union, m)
	}
	return slices.Sorted(maps.Keys(union))
}

// undoes returns what the user's next commit, of the index or of all files, would undo of what the agent has committed:
// a path that it sets back to what it was before the agent's commit, unless the agent's own next commit did so, too.
func (m merged) undoes(t *testing.T) (faults []string) {
	t.Helper()
	if !m.followed() || m.base.commit == "" || m.after.busy != "" {
		return nil
	}
	entry := func(dir, commit, name string) string {
		out, _ := gitIn(t, dir, "ls-tree", commit, "--", name)
		out, _, _ = strings.Cut(out, "\t")
		return out
	}
	changed, _ := gitIn(t, m.dir, "diff-tree", "-r", "-z", "--name-only", "--no-renames", m.user.commit, m.box.commit)
	for _, how := range [][]string{{"commit", "-qm", "next"}, {"commit", "-qam", "next"}} {
		mine, its := filepath.Join(t.TempDir(), "mine"), filepath.Join(t.TempDir(), "its")
		for to, from := range map[string]string{mine: m.dir, its: m.boxDir} {
			if out, err := exec.Command("cp", "-a", from, to).CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			gitIn(t, to, how...) // fails where there is nothing to commit
		}
		for name := range strings.SplitSeq(changed, "\x00") {
			old, next := entry(m.dir, m.user.commit, name), entry(mine, "HEAD", name)
			if name != "" && next == old && entry(its, "HEAD", name) != old {
				faults = append(faults, fmt.Sprintf("git %v undoes the agent's commit of %s", how, name))
			}
		}
	}
	return faults
}

// player uses git in a folder at random.
type player struct {
	t   *testing.T
	r   *rand.Rand
	dir string
	by  string
	n   int
	log []string
}

func (p *player) String() string { return strings.Join(p.log, "; ") }

// work is a way to work: how likely each deed is.
type work int

const (
	idle  work = iota // what an editor does: look
	light             // and edit, stage
	heavy
)

// start makes a repository with some commits.
func (p *player) start() {
	p.git("init", "-q", "-b", "main")
	for i := range 3 {
		write(p.t, p.dir, fmt.Sprintf("f%d", i), fmt.Sprintln("first", i), "d/g", fmt.Sprintln("g", i))
		p.git("add", "-A")
		p.git("commit", "-qm", fmt.Sprint("commit ", i))
	}
	p.git("branch", "side", "HEAD~1")
	p.git("tag", "v1", "HEAD~1")
}

// git runs git, which may fail.
func (p *player) git(args ...string) bool {
	out, ok := gitIn(p.t, p.dir, append([]string{"-c", "user.name=" + p.by}, args...)...)
	line := "git " + strings.Join(args, " ")
	if !ok {
		line += " (" + out[:min(len(out), 40)] + ")"
	}
	p.log = append(p.log, strings.ReplaceAll(line, "\n", " "))
	return ok
}

// any returns one of the tracked or other files.
func (p *player) any() string {
	var all []string
	must(p.t, filepath.WalkDir(p.dir, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && d.Name() == ".git":
			return filepath.SkipDir
		case d.Type().IsRegular():
			rel, _ := filepath.Rel(p.dir, path)
			all = append(all, rel)
		}
		return nil
	}))
	if len(all) == 0 {
		return "f0"
	}
	return all[p.r.IntN(len(all))]
}

// branch returns one of the branches.
func (p *player) branch() string {
	out, _ := gitIn(p.t, p.dir, "for-each-ref", "--format=%(refname:short)", "refs/heads/")
	all := strings.Fields(out)
	if len(all) == 0 {
		return "main"
	}
	return all[p.r.IntN(len(all))]
}

func (p *player) edit() {
	name := p.any()
	if p.r.IntN(3) == 0 {
		name = []string{"n0", "n1", "d/n", "e/n", "f9"}[p.r.IntN(5)]
	}
	content := fmt.Sprintf("%s %d\n", p.by, p.n)
	if p.r.IntN(5) == 0 {
		content = "the same\n"
	}
	if err := os.MkdirAll(filepath.Join(p.dir, filepath.Dir(name)), 0o755); err != nil {
		return // a file is there
	}
	if os.WriteFile(filepath.Join(p.dir, name), []byte(content), 0o644) == nil {
		p.log = append(p.log, "edit "+name)
	}
}

// play does n deeds.
func (p *player) play(n int, how work) {
	for range n {
		p.n++
		p.deed(p.r.IntN([]int{3, 9, 32}[how]))
	}
}

func (p *player) deed(n int) {
	name := fmt.Sprintf("%s-%d", p.by, p.n)
	pick := func(all ...string) string { return all[p.r.IntN(len(all))] }
	switch n {
	case 0, 1: // git status writes the index where a file's time has changed
		path := filepath.Join(p.dir, p.any())
		if b, err := os.ReadFile(path); err == nil {
			_ = os.WriteFile(path+"~", b, 0o644)
			_ = os.Rename(path+"~", path)
		}
		p.git("status", "-s")
	case 2:
		p.git(strings.Fields(pick("pack-refs --all", "gc -q", "gc -q --prune=now", "repack -adq"))...)
	case 3, 4, 5, 6:
		p.edit()
	case 7:
		p.git("add", "-A")
	case 8:
		p.git("add", "--", p.any())
	case 9, 10, 11:
		p.git("commit", "-qm", name)
	case 12, 13, 14:
		p.edit()
		p.git("commit", "-qam", name)
	case 15:
		p.git("checkout", "-q", "-b", name)
	case 16:
		p.git("checkout", "-q", p.branch())
	case 17:
		p.git("reset", "-q", pick("--soft", "--mixed", "--hard"), pick("HEAD", "HEAD~1"))
	case 18:
		p.git(strings.Fields(pick("stash push -q", "stash push -q -u", "stash pop -q"))...)
	case 19:
		p.git("rm", "-q", "-f", "--", p.any())
	case 20:
		p.git("mv", "--", p.any(), "moved-"+name)
	case 21:
		p.git("commit", "-q", "--amend", "-m", name)
	case 22, 23:
		p.git("merge", "-q", "--no-edit", p.branch())
	case 24:
		p.git(strings.Fields(pick("merge --abort", "merge --continue", "revert --abort"))...)
	case 25:
		p.git("tag", name)
	case 26:
		p.git("branch", "-D", p.branch())
	case 27:
		p.git("rm", "-q", "--cached", "--", p.any())
	case 28:
		p.git("checkout", "-q", "--", p.any())
	case 29:
		p.git("revert", "--no-edit", "HEAD")
	case 30:
		p.git("branch", "-f", p.branch(), pick("HEAD", "HEAD~1"))
	case 31:
		p.git(strings.Fields(
			pick("checkout -q --detach", "add -N .", "checkout -q --orphan "+name, "notes add -m x"))...)
	}
}
