package main

import (
	"context"
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
	"read":   {token.ScopeRead},
	"write":  {token.ScopeWrite},
	"renew":  {token.ScopeRenew},
	"delete": {token.ScopeRead, token.ScopeDelete},
}

// serverScopes are the scopes, as --scope names them, of tokens that are for no stream.
var serverScopes = map[string]token.Grant{
	"threads": {Stream: token.SubjectThreads, Scope: []string{token.ScopeThreads}},
	"page":    {Stream: token.SubjectPage, Scope: []string{token.ScopePage}},
}

// scopeMember is the --scope of the login of an agent.
const scopeMember = "member"

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
		Action: p.mintAction,
	}
	return &cli.Command{Name: "token", Usage: "make tokens for threads", Subcommands: []*cli.Command{mint}}
}

// mint is a token that is asked for.
type mint struct {
	command
	thread, stream, scope, run, agent string
	ttl                               time.Duration
	set                               map[string]bool // flags that were given
}

func (p *program) mintAction(c *cli.Context) error {
	m := mint{
		command: p.command(c), thread: c.String("thread"), stream: c.String("stream"), scope: c.String("scope"),
		run: c.String("run"), agent: c.String("agent"), ttl: c.Duration("ttl"), set: map[string]bool{},
	}
	for _, name := range []string{"thread", "stream", "run", "author", "house", "agent"} {
		m.set[name] = c.IsSet(name)
	}
	sign := m.token
	if m.scope == scopeMember || m.set["agent"] {
		sign = m.login
	}
	signed, err := sign(c.Context)
	if err == nil {
		fmt.Fprintln(p.stdout, signed)
	}
	return err
}

// key returns the secret that signs.
func (m mint) key() ([]byte, error) {
	d, err := m.data()
	if err != nil {
		return nil, err
	}
	return secret(d)
}

// login returns a login token of an agent.
func (m mint) login(context.Context) (string, error) {
	for _, name := range []string{"thread", "stream", "run", "author", "house"} {
		if m.set[name] {
			return "", cmdline.Usage("--scope member is for the threads of the agent's houses: want no --%s", name)
		}
	}
	switch {
	case len(m.args) > 0:
		return "", cmdline.Usage("token mint takes no arguments")
	case m.scope != scopeMember || uuid.Validate(m.agent) != nil:
		return "", cmdline.Usage("--scope member and --agent UUID need each other")
	case m.ttl <= 0:
		return "", cmdline.Usage("--ttl: want more than 0")
	}
	key, err := m.key()
	if err != nil {
		return "", err
	}
	signed, err := member.SignLogin(key, m.agent, time.Now().Add(m.ttl))
	if err != nil {
		return "", cmdline.Usage("--agent: %v", err)
	}
	return signed, nil
}

// token returns a token for a stream, the list of threads or the page.
func (m mint) token(ctx context.Context) (string, error) {
	grant, err := m.grant()
	if err != nil {
		return "", err
	}
	id, err := m.toChange(ctx, m.thread)
	if err != nil {
		return "", err
	}
	if grant.Stream == "" {
		grant.Stream = thread.StreamName(id)
	}
	key, err := m.key()
	if err != nil {
		return "", err
	}
	return token.Sign(key, grant)
}

// grant returns what the token grants, without the stream of a thread.
func (m mint) grant() (token.Grant, error) {
	g, whole := serverScopes[m.scope]
	known := whole
	if !whole {
		g.Stream = m.stream
		g.Scope, known = scopes[m.scope]
	}
	g.Run, g.Author, g.House, g.Until = m.run, m.author, m.house, time.Now().Add(m.ttl)
	isThread := strings.HasPrefix(m.stream, thread.StreamName(""))
	control := func(text string) bool { return strings.ContainsFunc(text, unicode.IsControl) }
	switch {
	case whole && (m.set["thread"] || m.set["stream"] || m.set["run"] || m.set["author"]):
		const text = "--scope %s is for all threads: want no --thread, --stream, --run or --author"
		return g, cmdline.Usage(text, m.scope)
	case len(m.args) > 0:
		return g, cmdline.Usage("token mint takes no arguments")
	case m.set["stream"] && (m.stream == "" || m.set["thread"] || isThread || m.stream == token.SubjectAdmin):
		return g, cmdline.Usage("--stream: want the name of a stream that is no thread, and no --thread")
	case !whole && !m.set["stream"] && !thread.ValidThread(m.thread):
		return g, cmdline.Usage("--thread %q: want 1 to 128 characters of A-Z a-z 0-9 _ -", m.thread)
	case !known:
		return g, cmdline.Usage("--scope %q: want write, read, renew, delete, threads, page or member", m.scope)
	case m.run != "" && !thread.ValidRun(m.run):
		return g, cmdline.Usage("--run %q: want 1 to 128 characters of A-Z a-z 0-9 _ ~ -", m.run)
	case len(m.author) > thread.MaxAuthor || control(m.author):
		return g, cmdline.Usage("--author: want at most %d bytes without control characters", thread.MaxAuthor)
	case len(m.house) > maxHouse || control(m.house):
		return g, cmdline.Usage("--house: want at most %d bytes without control characters", maxHouse)
	case m.house != "" && (m.set["stream"] || m.scope == "page"):
		return g, cmdline.Usage("--house is for --thread and for --scope threads")
	case m.ttl <= 0:
		return g, cmdline.Usage("--ttl: want more than 0")
	}
	return g, nil
}
