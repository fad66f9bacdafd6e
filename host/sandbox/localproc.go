package sandbox

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"arbe.0sk.ar/runner/internal/procfs"
)

// detachedFile lists the detached processes of a box, for Destroy: a line of JSON for each.
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
		// A torn line is left of a Detach that failed, which has killed its process. No process outlives its boot.
		if json.Unmarshal(lines.Bytes(), &p) == nil && sameBoot(p) {
			procs = append(procs, p)
		}
	}
	return procs, err
}

// sameBoot reports whether p was started since this machine's last boot; true if that is unknown.
func sameBoot(p Process) bool {
	if p.Boot == "" {
		return true
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return err != nil || strings.TrimSpace(string(boot)) == p.Boot
}

// readStat reads the stat of a process; false where there is none.
func readStat(pid int) (s procfs.Stat, there bool, err error) {
	s, err = procfs.Read(pid)
	if errors.Is(err, fs.ErrNotExist) {
		return procfs.Stat{}, false, nil
	}
	return s, err == nil, err
}
