package main

import (
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// namespace is the purpose of a signature: one for another purpose, as for a commit, is refused.
const namespace = "arbe-release"

// sums writes SHA256SUMS of all files in dir, for sha256sum -c.
func (r *release) sums(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	var text strings.Builder
	for _, e := range entries {
		b, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return err
		}
		fmt.Fprintf(&text, "%x  %s\n", sha256.Sum256(b), e.Name())
	}
	if err := os.WriteFile(filepath.Join(dir, "SHA256SUMS"), []byte(text.String()), 0o644); err != nil {
		return err
	}
	_, err = io.WriteString(r.log, text.String())
	return err
}

// sign writes a signature of SHA256SUMS in dir beside it. ssh-keygen may ask on the terminal for the key's passphrase,
// or an agent for its use.
func (r *release) sign(dir string) error {
	sums := filepath.Join(dir, "SHA256SUMS")
	cmd := exec.Command("ssh-keygen", "-q", "-Y", "sign", "-f", r.key, "-n", namespace, sums)
	cmd.Stdin, cmd.Stderr = os.Stdin, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("sign SHA256SUMS with %s: %w", r.key, err)
	}
	return nil
}
