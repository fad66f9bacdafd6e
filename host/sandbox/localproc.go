package sandbox

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// detachedFile is the list of what was detached in a box, for whoever destroys it: a line of JSON for each process.
const detachedFile = "detached"

func (b *localBox) noteDetached(p Process) error {
	line, err := json.Marshal(p)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(filepath.Join(b.dir, detachedFile), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(append(line, '\n'))
	return errors.Join(err, f.Close())
}

func (b *localBox) readDetached() ([]Process, error) {
	data, err := os.ReadFile(filepath.Join(b.dir, detachedFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var procs []Process
	for lines := bufio.NewScanner(bytes.NewReader(data)); lines.Scan(); {
		var p Process
		// A torn line is of a Detach that failed, which has ended what it began. No process outlives its boot.
		if json.Unmarshal(lines.Bytes(), &p) == nil && sameBoot(p) {
			procs = append(procs, p)
		}
	}
	return procs, err
}

// sameBoot reports whether p was begun since this machine's last boot, as far as that is known.
func sameBoot(p Process) bool {
	if p.Boot == "" {
		return true
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return err != nil || strings.TrimSpace(string(boot)) == p.Boot
}

// readStat is what the kernel says of a process; false where there is none.
func readStat(pid int) (s stat, there bool, err error) {
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
		return stat{}, false, nil
	}
	if err == nil {
		s, err = parseStat(string(line))
	}
	return s, err == nil, err
}

// endAll kills the processes, all of their sessions and all that descends from them, and returns when they are gone. A child may leave its parent's group and
// session and then lose its parent, so whoever was seen once is looked for until it is gone.
func endAll(ctx context.Context, procs []Process) error {
	if len(procs) == 0 {
		return nil
	}
	known := map[Process]bool{}
	for _, p := range procs {
		known[Process{PID: p.PID, Start: p.Start}] = true
	}
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		alive, err := family(known)
		if err != nil || len(alive) == 0 {
			return err
		}
		for _, p := range alive {
			known[p] = true
			if err := syscall.Kill(p.PID, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
				return fmt.Errorf("kill %d: %w", p.PID, err)
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("%d processes are still there: %w", len(alive), ctx.Err())
		}
	}
}

// family are the living among known, their sessions and their descendants.
func family(known map[Process]bool) ([]Process, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	var all []stat
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil {
			if s, there, err := readStat(pid); err == nil && there && s.is(s.process()) {
				all = append(all, s)
			}
		}
	}
	ours := map[int]bool{}
	// A session's id is not given away again while somebody is in it, so a known leader's number stands for its session even when the leader is gone, unless
	// another process has the number now.
	for p := range known {
		ours[p.PID] = true
	}
	for _, s := range all {
		if ours[s.pid] && !known[s.process()] {
			delete(ours, s.pid)
		}
	}
	for grown := true; grown; {
		grown = false
		for _, s := range all {
			if !ours[s.pid] && (ours[s.parent] || ours[s.session]) {
				ours[s.pid], grown = true, true
			}
		}
	}
	var alive []Process
	for _, s := range all {
		if ours[s.pid] {
			alive = append(alive, s.process())
		}
	}
	return alive, nil
}

func (s stat) process() Process { return Process{PID: s.pid, Start: s.start} }
