// Package program writes programs for tests that start them.
package program

import (
	"bytes"
	"os/exec"
	"testing"
)

// Write writes a program, or the script of one, that a test starts.
//
// The kernel starts no program that is open for writing (ETXTBSY), and a child that another test starts meanwhile has a
// copy of each open file of this process until its exec is complete. So a process of its own writes: it has ended when
// Write returns, and this process never has the file open.
func Write(t testing.TB, path string, content []byte) {
	t.Helper()
	cmd := exec.Command("sh", "-c", `cat >"$0" && chmod 755 "$0"`, path)
	cmd.Stdin = bytes.NewReader(content)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("write %s: %v: %s", path, err, out)
	}
}
