package view

import (
	"encoding/json"
	"strings"
)

// mainArguments are the names of the argument to show of a call in one line, for the tools of all three agents. The
// first one that a call has counts.
var mainArguments = []string{
	"command", "cmd", "path", "file_path", "notebook_path", "pattern", "query", "url", "description", "message",
	"prompt", "skill", "input",
}

// mainArgument returns the argument to show of a call in one line, and whether there are more. Of a patch it is the
// files that the patch changes.
func mainArgument(raw json.RawMessage, d *Diff) (text string, more bool) {
	var args map[string]json.RawMessage
	if json.Unmarshal(raw, &args) != nil {
		return "", len(raw) > 0 && string(raw) != "null"
	}
	for _, name := range mainArguments {
		v, ok := args[name]
		if !ok {
			continue
		}
		var list []string
		if json.Unmarshal(v, &text) != nil && json.Unmarshal(v, &list) == nil {
			text = commandLine(list)
		}
		if text == "" {
			continue
		}
		if d != nil && strings.Contains(text, patchBegin) {
			return strings.Join(d.Paths(), ", "), true
		}
		return text, len(args) > 1
	}
	return "", len(args) > 0
}

// commandLine returns the command of an argument vector: the script where a shell runs one.
func commandLine(argv []string) string {
	if len(argv) == 3 && strings.HasSuffix(argv[0], "sh") && strings.HasPrefix(argv[1], "-") {
		return argv[2]
	}
	return strings.Join(argv, " ")
}
