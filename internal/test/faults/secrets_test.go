package faults_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"arbe.0sk.ar/runner/internal/test/program"
)

// To an agent of the same user the runner's memory and environment are closed. (Nothing is closed to one that is root.)
func TestSecrets(t *testing.T) {
	t.Parallel()
	s := newScene(t, "secrets")
	spy := s.path("spy")
	program.Write(t, spy, []byte(`#!/bin/sh
worker=$PPID
keeper=$(cut -d ' ' -f 4 /proc/$worker/stat)
for p in $worker $keeper; do
	for f in environ mem maps fd/3; do
		if cat /proc/$p/$f >/dev/null 2>&1; then echo "$f of $p is open" >>seen; fi
	done
	tr '\0' ' ' </proc/$p/cmdline >>seen
done
env >>seen
`))
	s.args = []string{"--agent-bin", spy}
	var user *syscall.Credential // nil for this one
	switch {
	case os.Getenv(rootVar) != "": // one user, who must not have root's capabilities
		s.wrap = `exec setpriv --bounding-set=-all --inh-caps=-all -- "$0" "$@"`
	case os.Getuid() == 0:
		user = s.nobody()
	}
	cmd := s.command("run")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: user}
	if out, err := cmd.CombinedOutput(); cmd.ProcessState == nil ||
		cmd.ProcessState.ExitCode() != 1 { // such an agent has no output
		t.Fatalf("%v\n%s", err, out)
	}
	b, err := os.ReadFile(s.path("seen"))
	s.try(err)
	seen := string(b)
	if strings.Contains(seen, "is open") || strings.Contains(seen, s.server.Token) {
		t.Errorf("the agent has seen\n%s", seen)
	}
	if !strings.Contains(seen, "work secrets ") || !strings.Contains(seen, "keep secrets ") ||
		!strings.Contains(seen, "ARBE_RUN_ID=secrets") {
		t.Errorf("the agent has looked at something else:\n%s", seen)
	}
}

// nobody makes the scene one of a user who is not root: the folder is that user's, with a copy of the runner in it.
func (s *scene) nobody() *syscall.Credential {
	s.t.Helper()
	const nobody = 65534
	b, err := os.ReadFile(s.program)
	s.try(err)
	s.program = s.path("arbe-pi-runner")
	program.Write(s.t, s.program, b)
	s.try(os.Chmod(filepath.Dir(s.dir), 0o755))
	s.try(os.Chown(s.dir, nobody, nobody))
	return &syscall.Credential{Uid: nobody, Gid: nobody}
}
