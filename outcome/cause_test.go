package outcome_test

import (
	"strings"
	"testing"

	"arbe.0sk.ar/runner/outcome"
)

// What agents print when they can't work, as recorded.
const (
	piNoKey = `No API key found for the selected model.

Use /login to log into a provider via OAuth or API key. See:
  /lib/node_modules/@earendil-works/pi-coding-agent/docs/providers.md
  /lib/node_modules/@earendil-works/pi-coding-agent/docs/models.md
`
	piOldNode = `/lib/node_modules/undici/lib/web/cache/cachestorage.js:20
    webidl.util.markAsUncloneable(this)
                ^

TypeError: webidl.util.markAsUncloneable is not a function
    at new CacheStorage (/lib/node_modules/undici/lib/web/cache/cachestorage.js:20:17)
    at async ModuleLoader.import (node:internal/modules/esm/loader:606:24)

Node.js v20.20.2
`
	pi087OldNode = `file:///lib/node_modules/@earendil-works/pi-coding-agent/dist/bundle/cli.js:2
import { createRequire, enableCompileCache } from "node:module";
                        ^^^^^^^^^^^^^^^^^^
SyntaxError: The requested module 'node:module' does not provide an export named 'enableCompileCache'
    at ModuleJob._instantiate (node:internal/modules/esm/module_job:213:21)

Node.js v20.20.2
`
	nodeDiskFull = `node:fs:2425
    return binding.writeFileUtf8(path, data, flag, mode);
                   ^

Error: ENOSPC: no space left on device, write
    at appendFileSync (node:fs:2487:6) {
  errno: -28,
  code: 'ENOSPC',
  syscall: 'write'
}

Node.js v24.21.0
`
	codexFlag = `WARNING: proceeding, even though we could not create PATH aliases: Refusing to create helper binaries
error: unexpected argument '--nope' found

  tip: to pass '--nope' as a value, use '-- --nope'

Usage: codex exec [OPTIONS] [PROMPT]

For more information, try '--help'.
`
	codexStart = `WARNING: proceeding, even though we could not create PATH aliases
Reading additional input from stdin...
`
)

// The reason of a process's end is one line: no frame, no path, no banner.
func TestCause(t *testing.T) {
	for _, tt := range []struct{ stderr, want string }{
		{"", ""},
		{"boom\n", "boom"},
		{"first\nboom\n\n", "boom"},
		{piNoKey, "No API key found for the selected model."},
		{piOldNode, "TypeError: webidl.util.markAsUncloneable is not a function"},
		{pi087OldNode, "SyntaxError: The requested module 'node:module' does not provide an export named " +
			"'enableCompileCache'"},
		{nodeDiskFull, "Error: ENOSPC: no space left on device, write"},
		{"\x1b[31mError: Model \"nope/none\" not found.\x1b[39m\n", `Error: Model "nope/none" not found.`},
		{codexFlag, "error: unexpected argument '--nope' found"},
		{codexStart, ""},
		{
			"Error: No such tool\n(node:12) ExperimentalWarning: SQLite\n(Use `node --trace-warnings ...`)\n",
			"Error: No such tool",
		},
		{"TypeError [ERR_X]: no\nlater\n", "TypeError [ERR_X]: no"},
		{"Uncaught Error: no\n", "Uncaught Error: no"},
		{"/lib/a.js:20\n    at f (/lib/a.js:1:1)\n\nNode.js v24.1.0\n", ""},
	} {
		if got := outcome.Cause(tt.stderr); got != tt.want {
			t.Errorf("%q:\ngot  %q\nwant %q", tt.stderr, got, tt.want)
		}
	}
}

// The message of a crash names the reason, and what is missing.
func TestCrashMessage(t *testing.T) {
	for _, tt := range []struct {
		name  string
		facts outcome.Facts
		want  string
	}{
		{
			"old Node",
			outcome.Facts{Stderr: piOldNode, Node: "22.19.0"},
			"the agent ended with exit status 1: it needs Node 22.19.0 or newer, and runs on Node 20.20.2: " +
				"TypeError: webidl.util.markAsUncloneable is not a function",
		},
		{
			"Node of the same major version",
			outcome.Facts{Stderr: "Error: x\nNode.js v22.18.9\n", Node: "22.19.0"},
			"the agent ended with exit status 1: it needs Node 22.19.0 or newer, and runs on Node 22.18.9: Error: x",
		},
		{
			"new Node",
			outcome.Facts{Stderr: "Error: x\nNode.js v22.19.0\n", Node: "22.19.0"},
			"the agent ended with exit status 1: Error: x",
		},
		{
			"no Node needed",
			outcome.Facts{Stderr: "Error: x\nNode.js v20.0.0\n"},
			"the agent ended with exit status 1: Error: x",
		},
		{
			"disk full",
			outcome.Facts{Stderr: nodeDiskFull, DiskFull: true},
			"the agent ended with exit status 1: no space left on its disk: " +
				"Error: ENOSPC: no space left on device, write",
		},
		{
			"disk full, silent",
			outcome.Facts{DiskFull: true},
			"the agent ended with exit status 1: no space left on its disk",
		},
		{"silent", outcome.Facts{}, "the agent ended with exit status 1"},
	} {
		tt.facts.Exit = outcome.ExitCode(1)
		if got := outcome.Decide(tt.facts).Message; got != tt.want {
			t.Errorf("%s:\ngot  %s\nwant %s", tt.name, got, tt.want)
		}
	}
}

func TestAdvice(t *testing.T) {
	for _, tt := range []struct{ class, message, want string }{
		{"pi_exit", "the agent ended with exit status 1: No API key found for anthropic.", "API key"},
		{"provider_error", "Not logged in · Please run /login", "API key"},
		{"provider_error", "Missing environment variable: `M_KEY`.", "API key"},
		{"provider_error", "401 the key is wrong", "API key"},
		{"pi_exit", "the agent ended with exit status 1: it needs Node 22.19.0 or newer, and runs on Node 20.20.2: " +
			"TypeError: x", "newer Node"},
		{"pi_exit", `the agent ended with exit status 1: Error: Model "nope/none" not found.`, "--model"},
		{"provider_error", "404 The model `nope` does not exist", "--model"},
		{"provider_error", "Connection error.", "network"},
		{"provider_unreachable", "the model's provider was out of reach", "network"},
		{"disk_full", "the agent ended with exit status 1", "disk"},
		{"oom", "the agent ended with SIGKILL", "memory"},
		{"spawn", "the agent could not be started: pi is not installed here: x", "install"},
		{"spawn", "the agent could not be started: permission denied", ""},
		{"pi_exit", "the agent ended with exit status 7: boom", ""},
		{"", "", ""},
	} {
		got := outcome.Advice(tt.class, tt.message)
		if (got == "") != (tt.want == "") || !strings.Contains(got, tt.want) {
			t.Errorf("%s %q: %q, want %q in it", tt.class, tt.message, got, tt.want)
		}
	}
}
