package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"arbe.0sk.ar/runner/cmd/internal/cmdline"
	"arbe.0sk.ar/runner/host/token"
	"arbe.0sk.ar/runner/thread"
)

// Lengths of a thread's id that is shortened to its beginning.
const (
	leastPrefix     = 4  // characters, of a command that only reads
	leastUUIDPrefix = 8  // of one that changes a thread: names are taken as they are
	mostCandidates  = 10 // of an ambiguous prefix that a message names
)

// one returns the command's only argument, a thread's id, for a command that only reads: any unique prefix serves.
func (p *program) one(c *cli.Context) (string, error) {
	id, err := oneArgument(c)
	if err != nil {
		return "", err
	}
	return p.resolve(c, id, leastPrefix)
}

// oneToChange is one for a command that changes the thread: a unique prefix of a UUID serves, any other id is exact.
func (p *program) oneToChange(c *cli.Context) (string, error) {
	id, err := oneArgument(c)
	if err != nil {
		return "", err
	}
	return p.toChange(c, id)
}

// toChange returns the id that an argument of a command that changes the thread stands for.
func (p *program) toChange(c *cli.Context, id string) (string, error) {
	if !uuidPrefix(id) {
		return id, nil
	}
	return p.resolve(c, id, leastUUIDPrefix)
}

func oneArgument(c *cli.Context) (string, error) {
	if c.NArg() != 1 {
		return "", cmdline.Usage("want one thread id; see %s --help", c.Command.HelpName)
	}
	return c.Args().First(), nil
}

// resolve returns the id of the one thread that begins with prefix. It returns prefix itself where that is the id of a
// thread, where no thread begins with it, and where the list can't be read: the command finds out the rest. A whole
// UUID costs no request.
func (p *program) resolve(c *cli.Context, prefix string, least int) (string, error) {
	if !thread.ValidThread(prefix) {
		return "", badThread(prefix)
	}
	if len(prefix) < least || uuidPrefix(prefix) && len(prefix) == uuidLength {
		return prefix, nil
	}
	client, err := p.clientOf(c, token.SubjectThreads, token.ScopeThreads)
	if err != nil {
		return prefix, nil
	}
	client.Thread, client.Log = prefix, nil // the command's own requests log what fails
	if _, err := client.Summary(c.Context); !thread.NoThread(err) {
		return prefix, nil
	}
	found, err := candidates(c.Context, thread.NewList(client), prefix)
	switch {
	case err != nil || len(found) == 0:
		return prefix, nil
	case len(found) == 1:
		return found[0].ID, nil
	}
	return "", ambiguous(prefix, found)
}

// candidates returns the threads whose ids begin with prefix.
func candidates(ctx context.Context, l thread.List, prefix string) (found []thread.Summary, err error) {
	for page, err := range l.Pages(ctx, thread.Filter{Since: bornAfter(prefix, time.Now())}) {
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
		fmt.Fprintf(&b, "\n  %s  %s  %s", v.ID, v.Status, clip(clean(v.Title), 30))
	}
	return cmdline.Usage("thread id %q is ambiguous: want more of it; %d threads begin so:%s", prefix, len(found), &b)
}

// uuidLength is the length of a UUID as text.
const uuidLength = 36

// uuidPrefix reports whether a text is a UUID as these programs write it, or the beginning of one.
func uuidPrefix(s string) bool {
	for i := range len(s) {
		dash := i == 8 || i == 13 || i == 18 || i == 23
		if dash != (s[i] == '-') || !dash && !strings.ContainsRune("0123456789abcdef", rune(s[i])) {
			return false
		}
	}
	return s != "" && len(s) <= uuidLength
}

// clockSkew is how far the clock of a machine that makes ids may be ahead of the server's.
const clockSkew = 48 * time.Hour

// firstUUID is a time before any UUID of version 7.
var firstUUID = time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)

// bornAfter returns a time before any thread whose id begins with this prefix of a UUID of version 7 was written; the
// zero time where the prefix is too short, or is another text: a UUID of another version has no plausible time.
func bornAfter(prefix string, now time.Time) time.Time {
	digits := strings.ReplaceAll(prefix, "-", "")
	if !uuidPrefix(prefix) || len(digits) < 8 || len(digits) > 12 && digits[12] != '7' {
		return time.Time{}
	}
	digits = (digits + "0000")[:12] // the first 48 bits are milliseconds
	ms, err := strconv.ParseInt(digits, 16, 64)
	born := time.UnixMilli(ms)
	if err != nil || born.Before(firstUUID) || born.After(now.Add(clockSkew)) {
		return time.Time{}
	}
	return born.Add(-clockSkew)
}

// Short ids.
const (
	shortUUID = 13 // characters of a UUID of version 7 that are its time in milliseconds
	mostShort = 22 // columns of an id that is cut at its end
)

// shortIDs returns an abbreviation of each id: of a UUID the beginning that no other of them has, at least to its
// milliseconds. Any other id stays whole.
func shortIDs(ids []string) map[string]string {
	short := make(map[string]string, len(ids))
	taken := map[string]string{} // ids by their abbreviations
	var add func(id string, n int)
	add = func(id string, n int) {
		if !uuidPrefix(id) || n >= len(id) {
			short[id] = id
			return
		}
		if id[n-1] == '-' {
			n++
		}
		key := id[:n]
		other, is := taken[key]
		switch {
		case !is:
			taken[key], short[id] = id, key
		case other == id:
		default: // the shorter text stays taken, so that a third id finds it so
			taken[key] = ""
			if other != "" {
				add(other, n+1)
			}
			add(id, n+1)
		}
	}
	for _, id := range ids {
		if _, is := short[id]; !is {
			add(id, shortUUID)
		}
	}
	return short
}
