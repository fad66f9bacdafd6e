package folder_test

import (
	"math/rand/v2"
	"strings"
	"testing"

	"arbe.0sk.ar/runner/host/sandbox/local"
)

// TestCopyInOfAUsedRepository has a user use git while the repository is copied into a box. The copy has what the
// repository had at one moment, with all objects of it.
func TestCopyInOfAUsedRepository(t *testing.T) {
	t.Parallel()
	boxes := local.New(t.TempDir())
	played := 0
	for seed := range 5 {
		r := rand.New(rand.NewPCG(uint64(seed), 29))
		s := newScene(t, boxes)
		user := &player{t: t, r: r, dir: s.Path, by: "user"}
		user.start()
		user.play(6, heavy)
		moments := []taken{take(t, s.Path)}
		deeds := 0
		s.OnRead(func(name string) {
			if deeds == 3 || !strings.Contains(name, ".git") || r.IntN(25) > 0 {
				return
			}
			deeds++
			user.play(1, heavy)
			if r.IntN(2) == 0 {
				gitIn(t, s.Path, strings.Fields([]string{"gc -q", "repack -adq", "pack-refs --all"}[r.IntN(3)])...)
			}
			moments = append(moments, take(t, s.Path))
		})
		s.copyIn(t)
		copied := take(t, s.work())
		is := false
		for _, m := range moments {
			copied.files = m.files // which are of another moment each
			is = is || copied.equal(m)
		}
		if !is {
			t.Errorf("seed %d: the copy is of no moment:\n%v\nnot one of\n%v\nuser: %s", seed, copied, moments, user)
		}
		if out, ok := gitIn(t, s.work(), "fsck", "--connectivity-only", "--no-dangling"); !ok || out != "" {
			t.Errorf("seed %d: fsck: %s\nuser: %s", seed, out, user)
		}
		played += deeds
	}
	if played < 5 {
		t.Errorf("only %d deeds were played", played)
	}
}
