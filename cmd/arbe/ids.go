package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"arbe.0sk.ar/runner/cmd/internal/cmdline"
	"arbe.0sk.ar/runner/cmd/internal/listing"
	"arbe.0sk.ar/runner/cmd/internal/shortid"
	"arbe.0sk.ar/runner/host/token"
	"arbe.0sk.ar/runner/thread"
	"arbe.0sk.ar/runner/thread/client"
)

// Lengths of a thread's id that is shortened to its beginning.
const (
	leastPrefix     = 4  // characters, of a command that only reads
	leastUUIDPrefix = 8  // of one that changes a thread: names are taken as they are
	mostCandidates  = 10 // of an ambiguous prefix that a message names
)

// one returns the command's only argument, a thread's id, for a command that only reads: any unique prefix serves.
func (c command) one(ctx context.Context) (string, error) {
	if len(c.args) != 1 {
		return "", cmdline.Usage("want one thread id")
	}
	return c.resolve(ctx, c.args[0], leastPrefix)
}

// oneToChange is one for a command that changes the thread: a unique prefix of a UUID serves, any other id is exact.
func (c command) oneToChange(ctx context.Context) (string, error) {
	if len(c.args) != 1 {
		return "", cmdline.Usage("want one thread id")
	}
	return c.toChange(ctx, c.args[0])
}

// toChange returns the id that an argument of a command that changes the thread stands for.
func (c command) toChange(ctx context.Context, id string) (string, error) {
	if !shortid.UUIDPrefix(id) {
		return id, nil
	}
	return c.resolve(ctx, id, leastUUIDPrefix)
}

// resolve returns the id of the one thread that begins with prefix. It returns prefix itself where that is the id of a
// thread, where no thread begins with it, and where the list can't be read: the command finds out the rest. A whole
// UUID costs no request.
func (c command) resolve(ctx context.Context, prefix string, least int) (string, error) {
	if !thread.ValidThread(prefix) {
		return "", badThread(prefix)
	}
	if len(prefix) < least || shortid.UUIDPrefix(prefix) && len(prefix) == shortid.UUIDLength {
		return prefix, nil
	}
	cl, err := c.clientOf(token.SubjectThreads, token.ScopeThreads)
	if err != nil {
		return prefix, nil
	}
	cl.Thread, cl.Log = prefix, nil // the command's own requests log what fails
	if _, _, err := cl.Summary(ctx); !client.NoThread(err) {
		return prefix, nil
	}
	found, err := candidates(ctx, client.NewList(cl), prefix)
	switch {
	case err != nil || len(found) == 0:
		return prefix, nil
	case len(found) == 1:
		return found[0].ID, nil
	}
	return "", ambiguous(prefix, found)
}

// candidates returns the threads whose ids begin with prefix.
func candidates(ctx context.Context, l client.List, prefix string) (found []thread.Summary, err error) {
	for page, err := range l.Pages(ctx, client.Filter{Since: shortid.BornAfter(prefix, time.Now())}) {
		if err != nil {
			return nil, err
		}
		for _, v := range page.Threads {
			if strings.HasPrefix(v.ID, prefix) {
				found = append(found, v)
			}
		}
	}
	return found, nil
}

// ambiguous is the error of a prefix of several ids. It names them, the newest first.
func ambiguous(prefix string, found []thread.Summary) error {
	var b strings.Builder
	for i, v := range found {
		if i == mostCandidates {
			fmt.Fprintf(&b, "\n  and %d more", len(found)-i)
			break
		}
		fmt.Fprintf(&b, "\n  %s  %s  %s", v.ID, v.Status, listing.Clip(v.Title, 30))
	}
	return cmdline.Usage("thread id %q is ambiguous: want more of it; %d threads begin so:%s", prefix, len(found), &b)
}
