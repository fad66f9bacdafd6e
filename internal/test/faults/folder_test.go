package faults_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
)

// folderFaults are the faults of the run's folder, on which the worker that follows a killed one relies.
var folderFaults = []fault{
	{
		name: "state folder: not to be reached, and worker: KILL",
		hit: func(s *scene, _ moment) {
			s.sessionFile()
			runs := filepath.Join(s.state, "runs")
			s.moved = runs + "-moved"
			s.try(os.Rename(runs, s.moved))
			s.try(os.WriteFile(runs, nil, 0o600))
			kill(s.worker(), syscall.SIGKILL)
		},
	},
	{
		name: "run's folder: gone, a file in its place, and worker: KILL",
		hit: func(s *scene, _ moment) {
			s.sessionFile()
			gone := s.path("gone")
			s.try(os.Rename(s.folder(), gone))
			s.try(os.WriteFile(s.folder(), nil, 0o600))
			s.try(os.RemoveAll(gone)) // nobody makes a file there any more
			kill(s.worker(), syscall.SIGKILL)
		},
		want: noOutputs, exit: noOutputsExit,
	},
	{
		name: "state folder: read-only, and worker: KILL",
		prep: func(s *scene) { s.disk(); s.file = s.path("session.jsonl") },
		hit: func(s *scene, _ moment) {
			s.sessionFile()
			s.try(syscall.Mount(s.state, s.state, "", syscall.MS_BIND, ""))
			s.t.Cleanup(func() { s.try(syscall.Unmount(s.state, syscall.MNT_DETACH)) })
			s.try(syscall.Mount("", s.state, "", syscall.MS_REMOUNT|syscall.MS_BIND|syscall.MS_RDONLY, ""))
			kill(s.worker(), syscall.SIGKILL)
		},
		want: noOutputs, exit: noOutputsExit,
	},
	{
		name: "no folder can be written, and worker: KILL", on: at(beforeAgent, midTerminal, after), torn: true,
		prep: func(s *scene) {
			const mount = "mount -t tmpfs -o ro none /dev/shm"
			if err := exec.Command("unshare", "-m", "sh", "-c", mount).Run(); err != nil {
				s.missing("a mount namespace can't be made here", err)
			}
			s.write("state", "")
			s.env["TMPDIR"] = s.path("nowhere")
			s.wrap = `exec unshare -m sh -c '` + mount + ` && exec "$0" "$@"' "$0" "$@"`
		},
		hit:  func(s *scene, _ moment) { kill(s.worker(), syscall.SIGKILL) },
		want: func(moment) string { return "failed: spawn" },
		exit: func(moment, string) int { return 69 },
	},
}

// noOutputs is the verdict of a run whose agent's output has no file.
func noOutputs(m moment) string {
	if m == beforeAgent {
		return "failed: spawn"
	}
	return undisturbed(m)
}

func noOutputsExit(m moment, verdict string) int {
	if m == beforeAgent {
		return 69
	}
	return exitOf(m, verdict)
}
