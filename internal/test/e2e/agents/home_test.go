package agents_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"arbe.0sk.ar/runner/internal/test/scene"
)

// Without HOME an agent keeps its session in its account's home, and the runner finds it there. The list of
// accounts is another one for these processes alone, in a mount namespace of their own.
func TestFullNoHome(t *testing.T) {
	if err := exec.Command("unshare", "-m", "true").Run(); err != nil {
		t.Skipf("a mount namespace can't be made here: %v", err)
	}
	for _, name := range scene.OtherNames(t) {
		version := scene.Others(t)[name]
		for _, set := range []string{"unset", "empty"} {
			t.Run(name+"/"+set, func(t *testing.T) {
				t.Parallel()
				s := scene.NewOf(
					t,
					name,
					version,
					scene.Calling(name, "echo the-tool-says-$((40+2))"),
					scene.Say("Seen."),
				)
				passwd := filepath.Join(s.Dir, "passwd")
				me := fmt.Appendf(nil, "me:x:%d:%d::%s:/bin/sh\n", os.Getuid(), os.Getgid(), s.Dir)
				if err := os.WriteFile(passwd, me, 0o644); err != nil {
					t.Fatal(err)
				}
				r := &scene.Runner{}
				r.Cmd = exec.CommandContext(t.Context(), "unshare", slices.Concat(
					[]string{
						"-m", "sh", "-c", `mount --bind "$PASSWD" /etc/passwd && exec "$0" "$@"`,
						filepath.Join(scene.Bin, "arbe-pi-runner"), "run",
					},
					s.Args, []string{"--", s.Prompt})...)
				home := func(kv string) bool { return strings.HasPrefix(kv, "HOME=") }
				r.Env = slices.DeleteFunc(slices.Clone(s.Env), home)
				r.Env = append(r.Env, "PASSWD="+passwd)
				if set == "empty" {
					r.Env = append(r.Env, "HOME=")
				}
				r.Stderr = &r.Log
				if err := r.Start(); err != nil {
					t.Fatal(err)
				}
				if got := s.Status(r); got != 0 {
					t.Fatalf("exit status %d", got)
				}
				s.Complete(s.Entries())
				// The state is in the account's home, too.
				if file := s.Known("r1").Session; !strings.HasPrefix(file, s.Dir) {
					t.Errorf("the session is %s", file)
				}
			})
		}
	}
}
