package main

import (
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
)

// variables are the variables that have a flag. Tokens have none: other users of the machine can read arguments.
var variables = []struct{ flag, variable, usage string }{
	{"thread", "ARBE_THREAD_ID", "write to the thread `ID` (required)"},
	{"url", "ARBE_STREAM_URL", "use the thread server at `URL` (required)"},
	{"token-file", "ARBE_STREAM_TOKEN_FILE", "read the write token from `FILE`, again when it changes; or set " +
		"ARBE_STREAM_TOKEN"},
	{"author", "ARBE_AUTHOR_ID", "`AUTHOR` of the entries"},
	{"redact", "ARBE_REDACT", "treat the values of the variables in `NAMES`, separated by commas, as secrets; those " +
		"with KEY, TOKEN, SECRET or PASSWORD in their name always are"},
	{"state-dir", "ARBE_STATE_DIR", "keep runs and sessions in `FOLDER` (default: ~/.arbe)"},
	{"run-id", "ARBE_RUN_ID", "open the run with the id `RUN` (default: a new one)"},
	{"timeout", "ARBE_PI_TIMEOUT", "end an agent that hangs after `DURATION` (default: 72h)"},
	{"heartbeat", "ARBE_HEARTBEAT", "post a heartbeat every `DURATION` (default: 5s)"},
	{"next-index", "ARBE_PI_MIRROR_NEXT_INDEX", "the thread has the lines of --session before line `N`"},
	{"sandbox", "ARBE_SANDBOX", "name the box on the thread: `PROVIDER:ID`"},
}

// onThread are the flags of commands that use a thread.
var onThread = []string{"thread", "url", "token-file", "author", "redact"}

// variableFlags returns the flags with these names.
func variableFlags(names ...string) (flags []cli.Flag) {
	for _, v := range variables {
		if slices.Contains(names, v.flag) {
			flags = append(flags, &cli.StringFlag{Name: v.flag, Usage: v.usage + " [$" + v.variable + "]"})
		}
	}
	return flags
}

// outrank puts the flags of the command line in the place of their variables. A worker has them in its environment.
func (p *program) outrank(c *cli.Context) error {
	if p.job != nil {
		return nil
	}
	for _, v := range variables {
		if !slices.Contains(c.LocalFlagNames(), v.flag) {
			continue
		}
		is := func(kv string) bool { return strings.HasPrefix(kv, v.variable+"=") }
		p.environ = append(slices.DeleteFunc(slices.Clone(p.environ), is), v.variable+"="+c.String(v.flag))
	}
	return nil
}
