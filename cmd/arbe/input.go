package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"arbe.0sk.ar/runner/cmd/internal/cmdline"
	"arbe.0sk.ar/runner/cmd/internal/stdin"
	"arbe.0sk.ar/runner/thread"
	"arbe.0sk.ar/runner/thread/client"
)

// types reports whether a person types on stdin.
func (p *program) types() bool {
	f, is := p.stdin.(*os.File)
	if is {
		_, is = cmdline.Terminal(f)
	}
	return is
}

// mostTyped bounds one text that is typed or pasted, in bytes.
const mostTyped = thread.MaxEntry

// given returns stdin. Reads of it end with the context. A person at a terminal is asked for what is read. The
// caller closes the result.
func (p *program) given(ctx context.Context, what string) io.ReadCloser {
	plain := io.NopCloser(stdin.Reader(ctx, p.stdin))
	if !p.types() {
		return plain
	}
	fmt.Fprintf(p.stderr, "reading %s from the terminal; Ctrl-D on an empty line ends it\n", what)
	t, err := stdin.Open(ctx, p.stdin.(*os.File), mostTyped, true)
	if err != nil {
		return plain // a system whose terminals give lines alone
	}
	return t
}

// open opens a file, or stdin for "-".
func (p *program) open(ctx context.Context, file, what string) (io.ReadCloser, error) {
	if file == "-" {
		return p.given(ctx, what), nil
	}
	f, err := os.Open(file)
	if err != nil {
		return nil, cmdline.Unread("", err)
	}
	return f, nil
}

// texts returns what yields the texts on stdin, of most bytes: each line, and at a terminal what is typed or pasted
// before Enter. With echo false that is not shown. The caller closes it.
func (p *program) texts(
	ctx context.Context, most int, echo bool,
) (next func() (string, error), done io.Closer) {
	if f, is := p.stdin.(*os.File); is && p.types() {
		if t, err := stdin.Open(ctx, f, most, echo); err == nil {
			return t.Next, t
		}
	}
	lines := bufio.NewScanner(stdin.Reader(ctx, p.stdin))
	lines.Buffer(make([]byte, min(most, 64<<10)), most)
	return func() (string, error) {
		if !lines.Scan() || lines.Err() != nil { // a read that fails leaves a part of a line
			return "", cmp.Or(lines.Err(), io.EOF)
		}
		return strings.TrimSuffix(lines.Text(), "\r"), nil
	}, io.NopCloser(nil)
}

// postTexts posts the chats that next returns to a live run, in order, and then asks the run to do what is queued and
// to end. A terminal that has hung up asks for nothing. A failure is reported on stderr, unless the program has stopped
// watching the run. What follows a chat that can't be posted is read and posted, too.
func (p *program) postTexts(
	ctx context.Context, cl *client.Client, run, harness, author string, next func() (string, error),
) {
	report := func(err error) {
		if ctx.Err() == nil {
			fmt.Fprintf(p.stderr, "arbe: %v\n", err)
		}
	}
	typed := p.types()
	for {
		text, err := next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			report(fmt.Errorf("read the chats from stdin: %w; the run continues", err))
			return
		}
		if strings.TrimSpace(text) == "" {
			continue
		}
		if _, err := cl.Append(ctx, []thread.Entry{chatOf(text, thread.DeliverSteer, author)}); err != nil {
			report(fmt.Errorf("post a chat: %w", reachThread(cl, err)))
		}
	}
	if ctx.Err() != nil || typed && !p.types() {
		return
	}
	if err := p.askToFinish(ctx, cl, run, harness, author); err != nil {
		report(err)
	}
}
