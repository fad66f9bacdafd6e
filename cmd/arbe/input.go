package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strings"

	"arbe.0sk.ar/runner/cmd/internal/cmdline"
	"arbe.0sk.ar/runner/host/launch"
	"arbe.0sk.ar/runner/thread"
)

// types reports whether a person types on stdin.
func (p *program) types() bool {
	f, is := p.stdin.(*os.File)
	if is {
		_, is = cmdline.Terminal(f)
	}
	return is
}

// input is what a live run that is watched reads from stdin.
type input struct {
	*program
	run     launch.Launched
	harness string
	author  string
}

// post posts each line of stdin that has text as a chat, in order, and then asks the run to do what is queued and to
// end. A terminal that has hung up asks for nothing. A failure is reported on stderr. What follows a line that can't be
// posted is read and posted, too.
func (in input) post(ctx context.Context, client *thread.Client) {
	typed := in.types()
	lines := bufio.NewScanner(in.stdin)
	lines.Buffer(make([]byte, 64<<10), thread.MaxEntry)
	for lines.Scan() {
		text := strings.TrimSuffix(lines.Text(), "\r")
		if strings.TrimSpace(text) == "" {
			continue
		}
		if _, err := client.Append(ctx, []thread.Entry{chatOf(text, thread.DeliverSteer, in.author)}); err != nil {
			in.report(ctx, fmt.Errorf("post a chat: %w", reachThread(client, err)))
		}
	}
	if err := lines.Err(); err != nil {
		in.report(ctx, fmt.Errorf("read the chats from stdin: %w; the run continues", err))
		return
	}
	if ctx.Err() != nil || typed && !in.types() {
		return
	}
	if err := in.askToFinish(ctx, client, in.run.Run, in.harness, in.author); err != nil {
		in.report(ctx, err)
	}
}

// report writes a failure to stderr, unless the program has stopped watching the run.
func (in input) report(ctx context.Context, err error) {
	if ctx.Err() == nil {
		fmt.Fprintf(in.stderr, "arbe: %v\n", err)
	}
}
