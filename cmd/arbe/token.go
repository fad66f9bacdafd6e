package main

import (
	"fmt"
	"strings"
	"time"
	"unicode"

	"github.com/google/uuid"
	"github.com/urfave/cli/v2"

	"arbe.0sk.ar/runner/cmd/internal/cmdline"
	"arbe.0sk.ar/runner/host/member"
	"arbe.0sk.ar/runner/host/token"
	"arbe.0sk.ar/runner/thread"
)

// scopes are the scopes of tokens as --scope names them.
var scopes = map[string][]string{
	"read": {
		token.ScopeRead,
	}, "write": {token.ScopeWrite}, "renew": {token.ScopeRenew}, "delete": {token.ScopeRead, token.ScopeDelete},
}

// serverScopes are the scopes, as --scope names them, of tokens that are for no stream.
var serverScopes = map[string]token.Grant{
	"threads": {Stream: token.SubjectThreads, Scope: []string{token.ScopeThreads}},
	"page":    {Stream: token.SubjectPage, Scope: []string{token.ScopePage}},
}

// mintLogin prints a login token of an agent.
func (p *program) mintLogin(c *cli.Context) error {
	for _, name := range []string{"thread", "stream", "run", "author", "house"} {
		if c.IsSet(name) {
			return cmdline.Usage("--scope member is for the threads of the agent's houses: want no --%s", name)
		}
	}
	switch {
	case c.Args().Present():
		return cmdline.Usage("token mint takes no arguments")
	case c.String("scope") != "member" || uuid.Validate(c.String("agent")) != nil:
		return cmdline.Usage("--scope member and --agent UUID need each other")
	case c.Duration("ttl") <= 0:
		return cmdline.Usage("--ttl: want more than 0")
	}
	d, err := data(c)
	if err != nil {
		return err
	}
	key, err := secret(d)
	if err != nil {
		return err
	}
	signed, err := member.SignLogin(key, c.String("agent"), time.Now().Add(c.Duration("ttl")))
	if err != nil {
		return cmdline.Usage("--agent: %v", err)
	}
	fmt.Fprintln(p.stdout, signed)
	return nil
}

// maxHouse is the length of the longest id of a house, in bytes.
const maxHouse = 200

func (p *program) tokenCommand() *cli.Command {
	mint := &cli.Command{
		Name:  "mint",
		Usage: "print a token for one thread, another stream, the list of threads, or the page",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "thread", Usage: "`ID` of the thread"},
			&cli.StringFlag{
				Name:  "stream",
				Usage: "`NAME` of a stream below /v1/stream/ that is no thread, instead of --thread",
			},
			&cli.StringFlag{
				Name:  "scope",
				Value: "write",
				Usage: "`SCOPE` of the token: write (includes reading), read, renew, delete (includes reading);\n" +
					"without --thread: threads (the list of threads), page (arbe open and arbe share),\n" +
					"member (the login of an --agent to the threads of its houses)",
			},
			&cli.StringFlag{Name: "run", Usage: "allow the signals of the run with the id `RUN` only"},
			&cli.StringFlag{Name: "author", Usage: "allow entries of the author `AUTHOR`, or of none, only"},
			&cli.StringFlag{Name: "house", Usage: "allow threads of the house with the id `HOUSE` only"},
			&cli.StringFlag{Name: "agent", Usage: "with --scope member: the agent that logs in, a `UUID`"},
			&cli.DurationFlag{Name: "ttl", Value: token.WriteTTL, Usage: "let the token expire after `DURATION`"},
		},
		Action: func(c *cli.Context) error {
			scope, ok := scopes[c.String("scope")]
			grant, whole := serverScopes[c.String("scope")]
			if c.String("scope") == "member" || c.IsSet("agent") {
				return p.mintLogin(c)
			}
			if whole {
				scope, ok = grant.Scope, true
			}
			switch {
			case whole && (c.IsSet("thread") || c.IsSet("stream") || c.IsSet("run") || c.IsSet("author")):
				return cmdline.Usage("--scope %s is for all threads: want no --thread, --stream, --run or --author",
					c.String("scope"))
			case c.Args().Present():
				return cmdline.Usage("token mint takes no arguments")
			case c.IsSet("stream") && (c.String("stream") == "" || c.IsSet("thread") ||
				strings.HasPrefix(c.String("stream"), thread.StreamName("")) ||
				c.String("stream") == token.SubjectAdmin):
				return cmdline.Usage("--stream: want the name of a stream that is no thread, and no --thread")
			case !whole && !c.IsSet("stream") && !thread.ValidThread(c.String("thread")):
				return cmdline.Usage("--thread %q: want 1 to 128 characters of A-Z a-z 0-9 _ -", c.String("thread"))
			case !ok:
				return cmdline.Usage(
					"--scope %q: want write, read, renew, delete, threads, page or member",
					c.String("scope"),
				)
			case c.String("run") != "" && !thread.ValidRun(c.String("run")):
				return cmdline.Usage("--run %q: want 1 to 128 characters of A-Z a-z 0-9 _ ~ -", c.String("run"))
			case len(c.String("author")) > thread.MaxAuthor ||
				strings.ContainsFunc(c.String("author"), unicode.IsControl):
				return cmdline.Usage("--author: want at most %d bytes without control characters", thread.MaxAuthor)
			case len(c.String("house")) > maxHouse || strings.ContainsFunc(c.String("house"), unicode.IsControl):
				return cmdline.Usage("--house: want at most %d bytes without control characters", maxHouse)
			case c.String("house") != "" && (c.IsSet("stream") || c.String("scope") == "page"):
				return cmdline.Usage("--house is for --thread and for --scope threads")
			case c.Duration("ttl") <= 0:
				return cmdline.Usage("--ttl: want more than 0")
			}
			id, err := p.toChange(c, c.String("thread"))
			if err != nil {
				return err
			}
			d, err := data(c)
			if err != nil {
				return err
			}
			key, err := secret(d)
			if err != nil {
				return err
			}
			name := c.String("stream")
			switch {
			case whole:
				name = grant.Stream
			case name == "":
				name = thread.StreamName(id)
			}
			token, err := token.Sign(key, token.Grant{
				Stream: name, Scope: scope, Run: c.String("run"), Author: c.String("author"),
				House: c.String("house"), Until: time.Now().Add(c.Duration("ttl")),
			})
			if err != nil {
				return err
			}
			fmt.Fprintln(p.stdout, token)
			return nil
		},
	}
	return &cli.Command{Name: "token", Usage: "make tokens for threads", Subcommands: []*cli.Command{mint}}
}
