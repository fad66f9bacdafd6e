package recipe

import (
	"regexp"
	"slices"
	"strings"
)

// The patterns of docs/environment.schema.json.
var (
	namePattern     = regexp.MustCompile(`^\S(.{0,98}\S)?$`)
	imagePattern    = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._/:@-]{0,254}$`)
	wordPattern     = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$`)
	repoPattern     = regexp.MustCompile(`^(` + shortRepo + `|` + repoAddress + `|` + repoFolder + `)$`)
	refPattern      = regexp.MustCompile(`^[^\x00-\x20\x7f~^:?*\[\\-][^\x00-\x20\x7f~^:?*\[\\]{0,199}$`)
	commitPattern   = regexp.MustCompile(`^([0-9a-f]{40}|[0-9a-f]{64})$`)
	pathPattern     = regexp.MustCompile(`^` + pathPart + `(/` + pathPart + `)*$`)
	filePattern     = regexp.MustCompile(`^(~/)?` + pathPart + `(/` + pathPart + `)*$`)
	mountPattern    = regexp.MustCompile(`^(/` + pathPart + `)+$`)
	systemPattern   = regexp.MustCompile(`^/(proc|sys|dev|boot|etc|bin|sbin|lib|lib64)(/|$)`)
	modePattern     = regexp.MustCompile(`^0?[0-7]{3}$`)
	variablePattern = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,199}$`)
	reservedPattern = regexp.MustCompile(`^(ARBE_.*|AGENT_BOX|HOME)$`)
	durationPattern = regexp.MustCompile(`^([0-9]+(\.[0-9]+)?(h|m|s))+$`)
)

// Parts of patterns.
const (
	shortRepo   = `[A-Za-z0-9_][A-Za-z0-9_.-]*/\.?[A-Za-z0-9_][A-Za-z0-9_.-]*`
	repoAddress = `(https?://|ssh://([a-z_][a-z0-9_-]*@)?)[A-Za-z0-9.\[\]:-]+/[^\s?#]+`
	repoFolder  = `/[^\x00-\x1f]+`
	pathPart    = `\.?[A-Za-z0-9_@+][A-Za-z0-9._@+-]*`
)

// matches returns the rule that a text matches a pattern.
func matches(pattern *regexp.Regexp, want string) rule {
	return func(text string) string {
		if !pattern.MatchString(text) {
			return want
		}
		return ""
	}
}

// longest returns the rule that a text has at most most bytes.
func longest(most int) rule {
	return func(text string) string {
		if len(text) > most {
			return "too long"
		}
		return ""
	}
}

func withoutNUL(text string) string {
	if strings.Contains(text, "\x00") {
		return "want no NUL"
	}
	return ""
}

func notEmpty(text string) string {
	if strings.TrimSpace(text) == "" {
		return "want a text that is not blank"
	}
	return ""
}

// variableName is the rule for names of variables and secrets.
func variableName(name string) string {
	switch {
	case !variablePattern.MatchString(name):
		return "want the name of a variable: letters, digits and _, no digit first"
	case reservedPattern.MatchString(name):
		return "variables that begin with ARBE_, AGENT_BOX and HOME are the box's own"
	}
	return ""
}

// oneOf returns the rule that a text is one of the words.
func oneOf(words ...string) rule {
	return func(text string) string {
		if slices.Contains(words, text) {
			return ""
		}
		return "want " + strings.Join(words, " or ")
	}
}

func notSystem(path string) string {
	if systemPattern.MatchString(path) {
		return "want no folder of the system"
	}
	return ""
}
