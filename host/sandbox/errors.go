package sandbox

import (
	"slices"
	"strconv"
	"strings"
)

// redactedError is an error whose text held a secret.
type redactedError struct {
	err  error
	text string
}

func (e *redactedError) Error() string { return e.text }
func (e *redactedError) Unwrap() error { return e.err }

// redacted returns err without the secrets in its text.
func redacted(err error, secrets ...string) error {
	text := redact(err.Error(), secrets...)
	if text == err.Error() {
		return err
	}
	return &redactedError{err, text}
}

// secretValues returns the values of env to remove from errors: those of 8 bytes or more that are no numbers and no
// booleans. Removing each 1 would make an error unreadable.
func secretValues(env map[string]string) []string {
	var secrets []string
	for _, value := range env {
		_, number := strconv.ParseFloat(value, 64)
		_, boolean := strconv.ParseBool(value)
		if len(value) >= 8 && number != nil && boolean != nil {
			secrets = append(secrets, value)
		}
	}
	slices.SortFunc(secrets, func(a, b string) int { return len(b) - len(a) }) // one may hold another
	return secrets
}

func redact(text string, secrets ...string) string {
	for _, s := range secrets {
		if s != "" {
			text = strings.ReplaceAll(text, s, "[redacted]")
		}
	}
	return text
}

// clip returns text as one line of limited length, for an error.
func clip(text string) string {
	const most = 300
	text = strings.Join(strings.Fields(strings.ToValidUTF8(text, "?")), " ")
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "…"
	}
	return text
}

// after returns what stands behind a failure: what the program has printed, if it has.
func after(output string) string {
	if text := clip(output); text != "" {
		return ": " + text
	}
	return ", without output"
}
