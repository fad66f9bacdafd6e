package main

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"arbe.0sk.ar/runner/cmd/internal/cmdline"
	"arbe.0sk.ar/runner/host/answer"
	"arbe.0sk.ar/runner/host/dispatch/tools"
	"arbe.0sk.ar/runner/host/exec"
	"arbe.0sk.ar/runner/host/provision"
	"arbe.0sk.ar/runner/host/rows"
	"arbe.0sk.ar/runner/thread"
	"arbe.0sk.ar/runner/thread/client"
)

// hands are the means of bots' tools: a tools.Commands, and what delegates. The rules are those of members.
type hands struct {
	host host
	to   *provision.Host
}

// means returns the means of the tools that work in boxes.
func (h hands) means() *tools.Host { return &tools.Host{Commands: h, Delegate: h.delegate} }

// Run implements tools.Commands.
func (h hands) Run(
	ctx context.Context, c tools.Command, f func(thread.ExecOutput),
) (end thread.ExecFinished, err error) {
	cl, err := h.host.client(c.Thread)
	if err != nil {
		return end, err
	}
	r := exec.Request{
		Thread: c.Thread, ID: c.ID, Author: c.Author, Argv: []string{"sh", "-c", c.Script}, Shown: c.Script,
		Cwd: c.Cwd, Timeout: c.Timeout,
	}
	end, err = exec.Run(ctx, cl, r, func(ctx context.Context, r *exec.Request) (*exec.Host, error) {
		x, rowed, err := h.to.Command(ctx, cl, r, "", nil)
		if err == nil && !rowed {
			err = rows.Refuse(rows.ErrAbsent, "thread "+r.Thread)
		}
		if err == nil {
			err = r.Check()
		}
		if err != nil {
			return nil, lasting(ctx, err)
		}
		return x, h.to.Remember(r.Thread)
	}, f)
	if errors.Is(err, exec.ErrNoEnd) {
		err = lasting(ctx, err)
	}
	return end, err
}

// lasting makes the error of a call a refusal, unless a repeat may help.
func lasting(ctx context.Context, err error) error {
	if ctx.Err() != nil || rows.IsUnserved(err) {
		return err
	}
	return &rows.Refusal{Kind: err, Text: err.Error()}
}

// Stop implements tools.Commands.
func (h hands) Stop(ctx context.Context, threadID, id, author string) error {
	cl, err := h.host.client(threadID)
	if err != nil {
		return err
	}
	return exec.Stop(ctx, cl, id, author, "the bot does not wait for it any more")
}

// delegate makes the row of a bot's task. Its announcement on the parent may fail: its provisioner repeats it.
func (h hands) delegate(ctx context.Context, t rows.Task) (rows.Task, error) {
	db, err := h.host.database(ctx)
	if err != nil {
		return t, err
	}
	scope := db.As(t.Author)
	if !h.to.LocalBoxes {
		scope = scope.Barring(h.host.boxes.kinds.Unisolated())
	}
	made, _, err := provision.Delegate(ctx, scope, t)
	if err != nil {
		return t, err
	}
	if err := h.to.Announce(ctx, made); err != nil {
		h.to.Log.Warn("task not announced: its provisioner does it", "thread", made.Thread, "parent", t.Parent,
			"error", err)
	}
	return made, nil
}

// toolsOnRows gives tools the threads and the rows of this host.
func (h host) toolsOnRows(to *tools.Host, list client.List) {
	to.Threads = answer.Threads(h.client)
	to.Rows = func(ctx context.Context, bot string) (tools.Rows, error) {
		db, err := h.database(ctx)
		if err != nil {
			return nil, err
		}
		return db.As(bot), nil
	}
	to.Last = func(ctx context.Context, id string) (last time.Time, err error) {
		sum, err := list.Thread(ctx, id)
		if client.NotFound(err) || client.Gone(err) {
			return last, nil // a row whose thread has no entry yet, or none any more
		}
		if at, bad := time.Parse(time.RFC3339Nano, sum.LastEntryAt); bad == nil {
			last = at
		}
		return last, err
	}
}

// gifFlag is the flag of the service of gifs.
func gifFlag() cli.Flag {
	return &cli.StringFlag{
		Name: "gif-url",
		Usage: "look for gifs of bots at `URL`, with {query} in it; the first line of its answer is the\n" +
			"address of the gif",
	}
}

// checkGif returns why gifs can't be looked for.
func checkGif(c *cli.Context) error {
	at := c.String("gif-url")
	if at == "" {
		return nil
	}
	u, err := url.Parse(strings.ReplaceAll(at, "{query}", "q"))
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || !strings.Contains(at, "{query}") {
		return cmdline.Usage("--gif-url: want an http or https address with {query} in it") // it may have a key
	}
	return nil
}

// gifsOf returns the service of gifs; nil for none.
func gifsOf(c *cli.Context) *tools.Gifs {
	if c.String("gif-url") == "" {
		return nil
	}
	return &tools.Gifs{URL: c.String("gif-url")}
}
