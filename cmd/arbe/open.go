package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"arbe.0sk.ar/runner/cmd/internal/cmdline"
	"arbe.0sk.ar/runner/host/daemon"
	"arbe.0sk.ar/runner/host/page"
	"arbe.0sk.ar/runner/host/token"
	"arbe.0sk.ar/runner/host/view"
	"arbe.0sk.ar/runner/internal/procgroup"
	"arbe.0sk.ar/runner/thread"
	"arbe.0sk.ar/runner/thread/client"
)

func (p *program) openCommand() *cli.Command {
	return &cli.Command{
		Name:      "open",
		Usage:     "open the page that shows threads, or one thread, in the browser",
		ArgsUsage: "[ID]",
		Description: `The browser is logged in by a code that is good for a minute and for one login. Where
no browser can be started, as over SSH, the link is printed; with a forwarded port it works on your machine.`,
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "print-url", Usage: "print the link, and start no browser"},
			&cli.StringFlag{
				Name:  "url",
				Usage: "address of the server as the browser reaches it, `URL` (default: the server's own)",
			},
		},
		Action: p.openAction,
	}
}

func (p *program) openAction(c *cli.Context) error {
	cmd, id := p.command(c), ""
	if len(cmd.args) > 0 {
		var err error
		if id, err = cmd.one(c.Context); err != nil {
			return err
		}
	}
	site, err := cmd.site(c.String("url"))
	if err != nil {
		return err
	}
	var link page.Link
	err = site.ask(c.Context, http.MethodPost, "/login/codes", map[string]string{"thread": id}, &link)
	switch {
	case id != "" && client.NoThread(err):
		return noThread(id)
	case err != nil:
		return err
	}
	address := site.browser + "/login#" + link.Code
	command := browser()
	if c.Bool("print-url") || command == nil {
		fmt.Fprintln(p.stdout, address)
		return nil
	}
	if err := p.browse(c.Context, site.data, command, address); err != nil {
		fmt.Fprintf(p.stderr, "arbe: start the browser: %v; open this link within a minute:\n", err)
		fmt.Fprintln(p.stdout, address)
		return nil
	}
	fmt.Fprintf(p.stderr, "opened %s in the browser\n", site.browser)
	return nil
}

func (p *program) shareCommand() *cli.Command {
	return &cli.Command{
		Name:      "share",
		Usage:     "print a link by which everyone who has it can read one thread",
		ArgsUsage: "ID",
		Flags: []cli.Flag{
			&cli.DurationFlag{Name: "ttl", Value: 24 * time.Hour, Usage: "let the link expire after `DURATION`"},
			&cli.BoolFlag{Name: "list", Usage: "list the thread's links instead"},
			&cli.BoolFlag{Name: "revoke", Usage: "revoke all links of the thread instead"},
			&cli.StringFlag{
				Name:  "url",
				Usage: "address of the server as its readers reach it, `URL` (default: the server's own)",
			},
		},
		Action: p.shareAction,
	}
}

func (p *program) shareAction(c *cli.Context) error {
	cmd := p.command(c)
	id, err := cmd.oneToChange(c.Context)
	switch {
	case err != nil:
		return err
	case c.Bool("list") && c.Bool("revoke"):
		return cmdline.Usage("want one of --list and --revoke")
	case c.Duration("ttl") < time.Second || c.Duration("ttl") > page.MostShareTTL:
		return cmdline.Usage("--ttl: want 1s to %dh (%d days)",
			page.MostShareTTL/time.Hour, page.MostShareTTL/(24*time.Hour))
	}
	site, err := cmd.site(c.String("url"))
	if err != nil {
		return err
	}
	of := "/share/codes?thread=" + id
	switch {
	case c.Bool("revoke"):
		var answer struct{ Revoked int }
		if err := site.ask(c.Context, http.MethodDelete, of, nil, &answer); err != nil {
			return err
		}
		fmt.Fprintf(p.stderr, "revoked %s of thread %s\n", view.Count(int64(answer.Revoked), "link"), id)
		return nil
	case c.Bool("list"):
		var answer struct{ Shares []page.Shared }
		if err := site.ask(c.Context, http.MethodGet, of, nil, &answer); err != nil {
			return err
		}
		for _, s := range answer.Shares {
			fmt.Fprintf(p.stdout, "%.8s  made %s  expires %s  %s\n", s.ID, s.MadeAt, s.ExpiresAt, stateOf(s))
		}
		return nil
	}
	var link page.Link
	asked := map[string]any{"thread": id, "ttlSeconds": int64(c.Duration("ttl") / time.Second)}
	err = site.ask(c.Context, http.MethodPost, "/share/codes", asked, &link)
	switch {
	case client.NoThread(err):
		return noThread(id)
	case err != nil:
		return err
	}
	fmt.Fprintln(p.stdout, site.browser+"/share#"+link.Code)
	fmt.Fprintf(p.stderr, "everyone with this link can read thread %s until %s; arbe share --revoke %[1]s ends it\n",
		id, link.ExpiresAt)
	return nil
}

// stateOf returns the state of a link: open, expired or revoked.
func stateOf(s page.Shared) string {
	until, err := time.Parse(time.RFC3339, s.ExpiresAt)
	switch {
	case s.Revoked:
		return "revoked"
	case err == nil && time.Now().After(until):
		return "expired"
	}
	return "open"
}

// site is the page of a thread server.
type site struct {
	data    daemon.Data
	client  *client.Client
	base    string // where this program reaches it
	browser string // where a browser does
}

// site returns the page of the configured server, with a token that may make links. given is the server's address as a
// browser reaches it; "" for its own.
func (c command) site(given string) (*site, error) {
	d, base, err := c.server()
	if err != nil {
		return nil, err
	}
	base = strings.TrimSuffix(strings.TrimRight(base, "/"), "/api/stream")
	shown := base
	if given = strings.TrimRight(given, "/"); given != "" {
		shown = given
	}
	if socket, is := thread.SocketOf(shown); is {
		return nil, cmdline.Fail(exitConfig,
			"the server is at the socket %s, which no browser opens: give arbe serve --addr HOST:PORT, too", socket)
	}
	u, err := url.Parse(shown)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, cmdline.Usage("address %q: want http://HOST or https://HOST", shown)
	}
	// A server that listens on all addresses has a name of this machine.
	if ip := net.ParseIP(u.Hostname()); ip != nil && ip.IsUnspecified() {
		u.Host = net.JoinHostPort("localhost", u.Port())
	}
	token, err := pageToken(d)
	if err != nil {
		return nil, err
	}
	cl := &client.Client{Base: thread.BaseURL(base), Token: client.StaticToken(token)}
	return &site{d, cl, base, u.String()}, nil
}

// pageToken returns a token of the scope page:open: the one in the environment, or one that is signed here.
func pageToken(d daemon.Data) (string, error) {
	if _, given := givenToken(); given != nil {
		page, err := given()
		if err != nil {
			return "", &cmdline.Exit{Status: exitConfig, Cause: err}
		}
		if subject, _ := token.Peek(page); subject == token.SubjectPage {
			return page, nil
		}
	}
	key, err := secret(d) // a thread's token opens no page
	if err != nil {
		return "", err
	}
	return signed(key, token.SubjectPage, token.ScopePage, time.Minute)
}

// Bounds of a request of the page's own.
const (
	pageTimeout = 30 * time.Second
	mostAnswer  = 1 << 20 // bytes
)

// ask sends a request of the page's own and parses the answer into out.
func (s *site) ask(ctx context.Context, method, path string, body, out any) error {
	ctx, cancel := context.WithTimeout(ctx, pageTimeout)
	defer cancel()
	var sent []byte
	if body != nil {
		sent = thread.Marshal(body)
	}
	answer, err := ask(ctx, s.client, method, path, sent)
	var refused *client.StatusError
	switch {
	case errors.As(err, &refused) && refused.Code == "":
		const text = "%s answers %s: it serves no page; " +
			"ARBE_STREAM_URL has to be the address of arbe serve, not of a proxy"
		return cmdline.Fail(exitNoReach, text, s.base, foreignAnswer(err))
	case refused != nil:
		return cmdline.Fail(exitNoReach, "%s: %w", s.base, err)
	case err != nil:
		return cmp.Or(reach(err), err) // the user ended it
	}
	defer answer.Close() // it was only read
	b, err := io.ReadAll(io.LimitReader(answer, mostAnswer))
	if err != nil {
		return cmdline.Fail(exitNoReach, "read the thread server's answer: %w", err)
	}
	return json.Unmarshal(b, out)
}

// browser returns the command that opens a file in the browser; nil where none can be started.
func browser() []string {
	names := []string{os.Getenv("BROWSER")}
	switch {
	case runtime.GOOS == "darwin":
		names = append(names, "open")
	case os.Getenv("DISPLAY") != "" || os.Getenv("WAYLAND_DISPLAY") != "": // else xdg-open starts one in the terminal
		names = append(names, "xdg-open")
	}
	for _, name := range names {
		if name == "" {
			continue
		}
		if found, err := exec.LookPath(name); err == nil {
			return []string{found}
		}
	}
	return nil
}

// browse opens an address in the browser. The address has a code, so no command line has it: the browser opens a file
// that only this user can read, which leads there.
func (p *program) browse(ctx context.Context, d daemon.Data, command []string, address string) error {
	text := fmt.Sprintf(redirect, html.EscapeString(address))
	if err := os.MkdirAll(string(d), 0o700); err != nil {
		return err
	}
	file := filepath.Join(string(d), "open.html")
	if err := os.Remove(file); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return err
	}
	cmd := exec.Command(command[0], append(command[1:], file)...)
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return strings.HasPrefix(name, "ARBE_") || strings.HasPrefix(name, "DURABLE_") || p.kinds.Read(name)
	})
	procgroup.Detach(cmd) // it outlives this program and its terminal
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case err := <-ended:
		return err
	case <-time.After(browserStarts): // the command is the browser itself
	case <-ctx.Done():
	}
	return nil
}

// redirect is a page that leads to an address.
const redirect = `<!doctype html>
<meta charset="utf-8">
<meta name="referrer" content="no-referrer">
<meta http-equiv="refresh" content="0; url=%[1]s">
<a href="%[1]s">Open arbe</a>
`

// browserStarts is how long the command that opens the browser may take to fail.
const browserStarts = 5 * time.Second
