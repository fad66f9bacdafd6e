package kit

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

// Redacted returns err without the secrets in its text.
func Redacted(err error, secrets ...string) error {
	text := Redact(err.Error(), secrets...)
	if text == err.Error() {
		return err
	}
	return &redactedError{err, text}
}

// SecretValues returns the values of env to remove from errors: those of 8 bytes or more that are no numbers and no
// booleans. Removing each 1 would make an error unreadable.
func SecretValues(env map[string]string) []string {
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

func Redact(text string, secrets ...string) string {
	for _, s := range secrets {
		if s != "" {
			text = strings.ReplaceAll(text, s, "[redacted]")
		}
	}
	return text
}

// Clip returns text as one line of limited length, for an error.
func Clip(text string) string {
	const most = 300
	text = strings.Join(strings.Fields(strings.ToValidUTF8(text, "?")), " ")
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "…"
	}
	return text
}

// After returns what stands behind a failure: what the program has printed, if it has.
func After(output string) string {
	if text := Clip(output); text != "" {
		return ": " + text
	}
	return ", without output"
}
