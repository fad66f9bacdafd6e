package faults_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// cgroup makes a cgroup for the scene in which a controller works, of v1 where that is mounted, else of v2. With "" any
// of v2 does. It is removed when the test ends.
func (s *scene) cgroup(controller string) (dir string, err error) {
	parent := filepath.Join("/sys/fs/cgroup", controller)
	if controller == "" || !exists(parent) {
		if parent, err = unified(controller); err != nil {
			return "", err
		}
	}
	dir = filepath.Join(parent, "arbe-test-"+s.run)
	if err := s.makeGroup(dir); err != nil {
		return "", err
	}
	return dir, nil
}

func (s *scene) makeGroup(dir string) error {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	s.t.Cleanup(func() {
		s.sweep()
		s.until("the cgroup is empty", func() bool { return os.Remove(dir) == nil })
	})
	return nil
}

// unified returns the cgroup of v2 whose children have the controller: this process's own. It enables the controller
// there, which the kernel allows in the root alone while there are processes in it.
func unified(controller string) (dir string, err error) {
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(mounts)) {
		if f := strings.Fields(line); len(f) > 2 && f[2] == "cgroup2" {
			dir = f[1]
		}
	}
	if dir == "" {
		return "", errors.New("no cgroup of v2 is mounted")
	}
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(own)) {
		if path, is := strings.CutPrefix(strings.TrimSpace(line), "0::"); is && exists(filepath.Join(dir, path)) {
			dir = filepath.Join(dir, path)
		}
	}
	if controller == "" {
		return dir, nil
	}
	children := filepath.Join(dir, "cgroup.subtree_control")
	b, err := os.ReadFile(children)
	if err == nil && !slices.Contains(strings.Fields(string(b)), controller) {
		err = os.WriteFile(children, []byte("+"+controller), 0)
	}
	if err != nil {
		return "", fmt.Errorf("enable %s in %s: %w", controller, dir, err)
	}
	return dir, nil
}

// memory makes a cgroup that has no more than so many bytes.
func (s *scene) memory(limit int) string {
	dir, err := s.cgroup("memory")
	if err == nil {
		file := filepath.Join(dir, "memory.limit_in_bytes")
		if !exists(file) { // v2, where what does not fit would go to the swap
			file = filepath.Join(dir, "memory.max")
			if swap := filepath.Join(dir, "memory.swap.max"); exists(swap) {
				err = os.WriteFile(swap, []byte("0"), 0)
			}
		}
		err = errors.Join(err, os.WriteFile(file, fmt.Append(nil, limit), 0))
	}
	if err != nil {
		s.missing("a limit on memory", err)
	}
	return dir
}

// unkillable makes the cgroup in which KILL does nothing. In a frozen cgroup of v2 it does.
func (s *scene) unkillable() {
	if !exists("/sys/fs/cgroup/freezer") {
		s.missing("a v1 freezer", os.ErrNotExist)
	}
	dir, err := s.cgroup("freezer")
	if err != nil {
		s.missing("a v1 freezer", err)
	}
	s.group = dir
	s.t.Cleanup(func() { s.freeze(false) }) // before it is removed
}

// freezable returns what puts a shell into a cgroup that can be frozen.
func (s *scene) freezable() string {
	controller := ""
	if exists("/sys/fs/cgroup/freezer") {
		controller = "freezer"
	}
	dir, err := s.cgroup(controller)
	if err != nil {
		s.missing("a freezer", err)
	}
	s.group = dir
	s.t.Cleanup(func() { s.freeze(false) })
	return "echo $$ > " + dir + "/cgroup.procs"
}

func (s *scene) freeze(on bool) {
	file, text := filepath.Join(s.group, "freezer.state"), map[bool]string{true: "FROZEN", false: "THAWED"}[on]
	if !exists(file) {
		file, text = filepath.Join(s.group, "cgroup.freeze"), map[bool]string{true: "1", false: "0"}[on]
	}
	s.put(file, text)
}

// limited returns what puts a shell into a cgroup with a limit on processes.
func (s *scene) limited() string {
	dir, err := s.cgroup("pids")
	if err != nil {
		s.missing("a limit on processes", err)
	}
	s.group = dir
	return "echo $$ > " + dir + "/cgroup.procs"
}

// fillProcesses leaves room for so many more processes and threads. The agent, which needs some itself, is taken out
// first: into the cgroup above, or beside it, as v2 has processes in leaves alone.
func (s *scene) fillProcesses(m moment, room int) {
	if agentLives(m) {
		outside := filepath.Dir(s.group)
		if exists(filepath.Join(outside, "cgroup.controllers")) {
			outside = s.group + "-agent"
			if !exists(outside) {
				s.try(s.makeGroup(outside))
			}
		}
		for _, pid := range s.leftovers() {
			_ = os.WriteFile(filepath.Join(outside, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0) // it may have ended
		}
	}
	b, err := os.ReadFile(filepath.Join(s.group, "pids.current"))
	s.try(err)
	now, err := strconv.Atoi(strings.TrimSpace(string(b)))
	s.try(err)
	s.put(filepath.Join(s.group, "pids.max"), strconv.Itoa(now+room))
	if room == 0 {
		s.put(filepath.Join(s.group, "pids.max"), "1") // what ends gives no room to others
	}
}

func (s *scene) freeProcesses() { s.put(filepath.Join(s.group, "pids.max"), "max") }
