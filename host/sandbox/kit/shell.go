package kit

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"syscall"

	"arbe.0sk.ar/runner/host/sandbox"
)

// Exports returns a script that sets env.
func Exports(env map[string]string) (string, error) {
	var b strings.Builder
	for _, key := range slices.Sorted(maps.Keys(env)) {
		value, err := sandbox.ShellQuote([]string{env[key]})
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&b, "export %s=%s\n", key, value)
	}
	return b.String(), nil
}

// ExitCode returns -1 for a shell's status of a command that was killed by a signal. Statuses that programs also use
// themselves (git exits with 129) are returned as they are.
func ExitCode(code int) int {
	switch syscall.Signal(code - 128) {
	case syscall.SIGKILL, syscall.SIGTERM, syscall.SIGSEGV, syscall.SIGABRT, syscall.SIGBUS, syscall.SIGFPE,
		syscall.SIGILL:
		return -1
	}
	return code
}
