package sandbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// executor runs commands in a box. Each Sandbox is one.
type executor interface {
	Exec(ctx context.Context, c Command) (Result, error)
}

// Shell runs a shell script with arguments in a box. c is the command without its Argv. A script that times out, or
// fails, is an error: an *ExitError if it fails.
func Shell(ctx context.Context, box executor, c Command, script string, args ...string) (Result, error) {
	c.Argv = append([]string{"sh", "-c", script, "sh"}, args...)
	res, err := box.Exec(ctx, c)
	switch {
	case err != nil:
		return res, err
	case res.TimedOut:
		return res, fmt.Errorf("timed out after %v", res.Duration.Round(time.Second))
	case res.ExitCode != 0:
		words := cmp.Or(strings.TrimSpace(string(res.Stderr)), strings.TrimSpace(string(res.Stdout)))
		return res, &ExitError{res.ExitCode, words}
	}
	return res, nil
}

// ExitError is returned for a script that has failed.
type ExitError struct {
	Code   int
	Output string // its standard error, or else its standard output
}

func (e *ExitError) Error() string {
	if e.Output == "" {
		return fmt.Sprintf("exit status %d, without output", e.Code)
	}
	return fmt.Sprintf("exit status %d: %s", e.Code, e.Last())
}

// mostWords is how many bytes of a script's output an error contains.
const mostWords = 2000

// Last returns the end of the output.
func (e *ExitError) Last() string {
	text := e.Output
	if len(text) <= mostWords {
		return text
	}
	text = text[len(text)-mostWords:]
	for len(text) > 0 && !utf8.RuneStart(text[0]) {
		text = text[1:]
	}
	return "…" + text
}

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

// CheckEnv refuses names that a shell could misread, and values that no environment can hold.
func CheckEnv(env map[string]string) error {
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
