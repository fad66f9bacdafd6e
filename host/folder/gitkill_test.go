package folder_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"arbe.0sk.ar/runner/host/sandbox/local"
)

// TestGitKilled kills a sync of a repository before each of its changes. The user's next commit undoes nothing then,
// and the next sync comes to the same state as one that was not killed.
func TestGitKilled(t *testing.T) { killGit(t, gitCases[:1]) }

// TestFullGitKilled is TestGitKilled for the other cases.
func TestFullGitKilled(t *testing.T) { killGit(t, gitCases[1:]) }

// gitCase has the steps of a user and an agent: git commands, and "edit FILE", which writes one.
type gitCase struct {
	name        string
	user, agent [][]string
	followed    bool // HEAD follows the agent's
}

var gitCases = []gitCase{
	{
		"it follows",
		[][]string{{"edit", "u"}, {"add", "u"}, {"edit", "w"}},
		[][]string{
			{"edit", "a"},
			{"edit", "n"},
			{"add", "-A"},
			{"rm", "-q", "gone"},
			{"commit", "-qam", "by the agent"},
			{"tag", "t"},
			{"branch", "topic"},
			{"edit", "b"},
			{"add", "b"},
		},
		true,
	},
	{
		"to another branch",
		[][]string{{"edit", "u"}, {"add", "u"}},
		[][]string{
			{"edit", "a"},
			{"commit", "-qam", "on main"},
			{"checkout", "-qb", "feature"},
			{"edit", "b"},
			{"commit", "-qam", "by the agent"},
		},
		true,
	},
	{
		"it stays",
		[][]string{{"edit", "u"}, {"add", "u"}, {"commit", "-qm", "by the user"}},
		[][]string{
			{"edit", "a"},
			{"commit", "-qam", "by the agent"},
			{"branch", "topic"},
			{"edit", "b"},
			{"stash", "push", "-q"},
		},
		false,
	},
}

func killGit(t *testing.T, cases []gitCase) {
	t.Parallel()
	for _, tt := range cases {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			boxes := t.TempDir()
			s := newScene(t, local.New(boxes))
			s.Name = "thread1"
			write(t, s.Path, "a", "a\n", "b", "b\n", "gone", "g\n", "u", "u\n", "w", "w\n")
			do := func(dir, by string, deeds ...[]string) {
				t.Helper()
				for _, d := range deeds {
					if d[0] == "edit" {
						write(t, dir, d[1], by+"\n")
					} else if out, ok := gitIn(t, dir, append([]string{"-c", "user.name=" + by}, d...)...); !ok {
						t.Fatalf("git %v: %s", d, out)
					}
				}
			}
			do(s.Path, "user", []string{"init", "-q", "-b", "main"}, []string{"add", "-A"},
				[]string{"commit", "-qm", "one"})
			s.copyIn(t)
			do(s.Path, "user", tt.user...)
			do(s.work(), "agent", tt.agent...)
			must(t, s.Base.Save(filepath.Join(boxes, "base")))
			start := filepath.Join(t.TempDir(), "start")
			clone := func(from, to string) {
				t.Helper()
				must(t, os.RemoveAll(to))
				if out, err := exec.Command("cp", "-a", from, to).CombinedOutput(); err != nil {
					t.Fatalf("%v: %s", err, out)
				}
			}
			clone(s.Path, start)
			base := s.Base
			s.pull(t)
			want := take(t, s.Path)
			commit := take(t, s.work()).commit
			if (want.commit == commit) != tt.followed {
				t.Fatalf("HEAD is %v", want)
			}
			e := errand{
				Boxes: boxes, ID: s.box.Ref().ID, Path: s.Path, State: s.State, Base: filepath.Join(boxes, "base"),
				Name: s.Name,
			}
			for e.Kill = 1; ; e.Kill++ {
				must(t, os.RemoveAll(s.State))
				clone(start, s.Path)
				if !killed(t, e) {
					break
				}
				for _, how := range []string{"-qm", "-qam"} {
					next := filepath.Join(t.TempDir(), "next")
					clone(s.Path, next)
					_ = os.Remove(filepath.Join(next, ".git/index.lock")) // as git asks the user to
					gitIn(t, next, "-c", "user.name=user", "commit", how, "next")
					if _, has := gitIn(t, next, "merge-base", "--is-ancestor", commit, "HEAD"); !has {
						continue
					}
					for _, name := range []string{"a", "n", "gone"} { // which nobody changes after that commit
						theirs, _ := gitIn(t, next, "ls-tree", commit, name)
						if now, _ := gitIn(t, next, "ls-tree", "HEAD", name); now != theirs {
							t.Errorf("killed before change %d: git commit %s has %q, not %q", e.Kill, how, now, theirs)
						}
					}
				}
				if e.Kill%2 == 0 {
					second := e
					second.Kill = 1 + e.Kill%3
					killed(t, second)
				}
				s.Base = base
				s.pull(t)
				if got := take(t, s.Path); !got.equal(want) {
					t.Errorf("killed before change %d: got\n%v\nwant\n%v", e.Kill, got, want)
				}
				for _, name := range []string{"index.lock", "index.arbe", "index.arbe-old"} {
					if _, err := os.Stat(s.dir(".git", name)); err == nil {
						t.Errorf("killed before change %d: %s is left", e.Kill, name)
					}
				}
			}
			if e.Kill < 6 {
				t.Errorf("there were only %d changes", e.Kill-1)
			}
		})
	}
}
