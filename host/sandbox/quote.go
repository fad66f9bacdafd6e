package sandbox

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// ShellQuote quotes argv for a POSIX shell, which reads back the same words. This package passes no argv to a shell in
// any other way.
func ShellQuote(argv []string) (string, error) {
	if len(argv) == 0 {
		return "", errors.New("empty argv")
	}
	words := make([]string, len(argv))
	for i, arg := range argv {
		if strings.ContainsRune(arg, 0) {
			return "", fmt.Errorf("argument %d holds a zero byte, which no argument of a process can", i)
		}
		// Only the single quote has a meaning within single quotes, so it stands outside of them.
		words[i] = "'" + strings.ReplaceAll(arg, "'", `'\''`) + "'"
	}
	return strings.Join(words, " "), nil
}

var envKey = regexp.MustCompile(`\A[A-Za-z_][A-Za-z0-9_]*\z`)

// checkEnv refuses names that a shell could misread, and values that no environment can hold.
func checkEnv(env map[string]string) error {
	for _, key := range slices.Sorted(maps.Keys(env)) {
		if !envKey.MatchString(key) {
			return fmt.Errorf("invalid env key %q — must match [A-Za-z_][A-Za-z0-9_]*", key)
		}
		if strings.ContainsRune(env[key], 0) {
			return fmt.Errorf("the value of %s holds a zero byte", key)
		}
	}
	return nil
}

// exports returns a script that sets env.
func exports(env map[string]string) (string, error) {
	var b strings.Builder
	for _, key := range slices.Sorted(maps.Keys(env)) {
		value, err := ShellQuote([]string{env[key]})
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&b, "export %s=%s\n", key, value)
	}
	return b.String(), nil
}
