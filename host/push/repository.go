package push

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"arbe.0sk.ar/runner/internal/git"
)

// repository is a bare repository in a temporary folder of the host, from which a branch is pushed. Its git reads no
// configuration of the user, of the system, or of the box.
type repository struct {
	dir string // of the repository and the bundle
	o   Options
	url string // of the remote, after a move
	ref string // the branch's full name
}

func newRepository(ctx context.Context, o Options) (_ *repository, err error) {
	if strings.ContainsAny(o.Token, "\x00\r\n") {
		return nil, errors.New("the token holds control characters")
	}
	if o.Remote.URL == "" || strings.HasPrefix(o.Remote.URL, "-") {
		return nil, errors.New("the remote has no address")
	}
	dir, err := os.MkdirTemp("", "arbe-push-")
	if err != nil {
		return nil, err
	}
	if o.Remote.Owner == "" {
		o.Token = "" // it is for GitHub
	}
	o.MaxBundle = cmp.Or(o.MaxBundle, DefaultMaxBundle)
	r := &repository{dir: dir, o: o, url: o.Remote.URL, ref: "refs/heads/" + o.Branch}
	defer func() {
		if err != nil {
			r.remove()
		}
	}()
	if _, err := r.git(ctx, command{args: []string{"init", "--quiet", "--bare", "--template=", "."}}); err != nil {
		return nil, err
	}
	if _, err := r.git(ctx, command{args: []string{"check-ref-format", r.ref}}); err != nil {
		return nil, fmt.Errorf("invalid branch name %q", o.Branch)
	}
	return r, nil
}

// remove deletes the temporary folder. It ignores an error: the folder holds commits only.
func (r *repository) remove() { _ = os.RemoveAll(r.dir) }

// look returns the refs of the remote.
func (r *repository) look(ctx context.Context) (map[string]string, error) {
	if r.o.Remote.overHTTP() {
		refs, moved, err := discover(ctx, r.o.client(), r.url, r.o.Token)
		if err == nil {
			r.url = moved
		}
		return refs, err
	}
	out, err := r.git(ctx, command{args: []string{"ls-remote", "--refs", "--", r.url}, remote: true, most: mostRefs})
	if err != nil {
		return nil, err
	}
	refs := map[string]string{}
	for line := range strings.Lines(out) {
		oid, ref, _ := strings.Cut(strings.TrimSpace(line), "\t")
		refs[ref] = oid
	}
	return refs, nil
}

// fetch fetches the commits that the bundle needs from the remote, without their history.
func (r *repository) fetch(ctx context.Context, commits []string) error {
	args := []string{"fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--depth=1", "--", r.url}
	for i, oid := range commits {
		args = append(args, fmt.Sprintf("%s:refs/base/%d", oid, i))
	}
	_, err := r.git(ctx, command{args: args, remote: true})
	return err
}

// remoteHas reports whether a branch of the remote contains the commit. It fetches the remote's commits into a
// repository of their own, without their files if the server supports that. Commits that the server has for forks only
// do not count.
func (r *repository) remoteHas(ctx context.Context, commit string) (bool, error) {
	look := *r
	look.dir = filepath.Join(r.dir, "commits")
	if err := os.Mkdir(look.dir, 0o700); err != nil {
		return false, err
	}
	for _, c := range []command{
		{args: []string{"init", "--quiet", "--bare", "--template=", "."}},
		{args: []string{"config", "remote.origin.url", r.url}},
		{remote: true, args: []string{
			"fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--filter=tree:0",
			"origin", "+refs/heads/*:refs/heads/*",
		}},
	} {
		if _, err := look.git(ctx, c); err != nil {
			return false, err
		}
	}
	out, err := look.git(ctx, command{args: []string{"for-each-ref", "--count=1", "--contains=" + commit}})
	if err != nil {
		return false, ctx.Err() // the commit is not there
	}
	return out != "", nil
}

// download copies the bundle of the box into a file, which must be closed.
func (r *repository) download(ctx context.Context, w *work) (_ *os.File, err error) {
	f, err := os.OpenFile(filepath.Join(r.dir, "arbe.bundle"), os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Close())
		}
	}()
	if err := w.box.Download(ctx, w.path, &capped{to: f, left: r.o.MaxBundle, most: r.o.MaxBundle}); err != nil {
		return nil, err
	}
	_, err = f.Seek(0, io.SeekStart)
	return f, err
}

// capped writes up to a limit.
type capped struct {
	to         io.Writer
	left, most int64
}

func (c *capped) Write(b []byte) (int, error) {
	if int64(len(b)) > c.left {
		return 0, fmt.Errorf("the commits take more than %d bytes", c.most)
	}
	n, err := c.to.Write(b)
	c.left -= int64(n)
	return n, err
}

// unpack adds the pack of a bundle. It checks every object, and that all objects that it refers to exist.
func (r *repository) unpack(ctx context.Context, pack io.Reader) error {
	args := []string{"index-pack", "--stdin", "--fix-thin", "--strict=" + git.Historic}
	if _, err := r.git(ctx, command{args: args, stdin: pack}); err != nil {
		return fmt.Errorf("the box's commits are damaged: %w", err)
	}
	return nil
}

// push pushes the commit as the branch, unless that would drop commits of the branch.
func (r *repository) push(ctx context.Context, commit string) error {
	out, err := r.git(ctx, command{remote: true, args: []string{
		"push", "--porcelain", "--quiet", "--no-verify", "--recurse-submodules=no", "--", r.url, commit + ":" + r.ref,
	}})
	for line := range strings.Lines(out) {
		// FLAG, FROM:TO and a summary, with tabs between them; "[remote rejected]" comes from the server.
		if f := strings.SplitN(line, "\t", 3); len(f) == 3 && f[0] == "!" && strings.HasPrefix(f[2], "[rejected]") {
			const why = "not a fast-forward: %s at the remote has commits that the box lacks; nothing was forced"
			return fmt.Errorf(why, r.o.Branch)
		}
	}
	return err
}

// command is one run of git.
type command struct {
	args   []string
	stdin  io.Reader
	remote bool // it connects to the remote, and so needs the token
	most   int  // bytes of its output to keep; 0: 64 KiB
}

// Bounds of a command in the box.
const (
	mostOutput = 64 << 10
	transfer   = 20 * time.Minute
)

// git runs git in the repository and returns its standard output.
func (r *repository) git(ctx context.Context, c command) (string, error) {
	env := append(environment(r.dir), r.access(c.remote)...)
	return git.Run(ctx, git.Command{Dir: r.dir, Args: c.args, Env: env, Stdin: c.stdin, Most: c.most})
}

// passed are the variables of this process that git gets, for proxies and certificates.
var passed = []string{
	"http_proxy", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY", "no_proxy", "NO_PROXY",
	"SSL_CERT_FILE", "SSL_CERT_DIR", "GIT_SSL_CAINFO", "GIT_SSL_CAPATH", "SSH_AUTH_SOCK",
}

// environment returns more of git's environment.
func environment(dir string) []string {
	env := []string{"GIT_DIR=" + dir, "GIT_SSH_COMMAND=ssh -o BatchMode=yes"}
	for _, name := range passed {
		if value, is := os.LookupEnv(name); is {
			env = append(env, name+"="+value)
		}
	}
	return env
}

// access returns the environment with which git may connect to the remote: its protocol only, and a header with the
// token for the remote's host. git follows no redirect, because it would send the header along; discover has followed
// those on the same host. The header is in the environment, since other users can read command lines.
func (r *repository) access(remote bool) []string {
	if !remote {
		return []string{"GIT_ALLOW_PROTOCOL=none"}
	}
	config := [][2]string{{"http.followRedirects", "false"}, {"gc.auto", "0"}, {"maintenance.auto", "false"}}
	if u, err := url.Parse(r.url); err == nil && r.o.Token != "" && r.o.Remote.overHTTP() {
		header := "http." + u.Scheme + "://" + u.Host + "/.extraHeader"
		config = append(config, [2]string{header, "Authorization: " + basic(r.o.Token)})
	}
	env := []string{"GIT_ALLOW_PROTOCOL=" + r.o.Remote.protocol(), "GIT_CONFIG_COUNT=" + strconv.Itoa(len(config))}
	for i, kv := range config {
		env = append(env, fmt.Sprintf("GIT_CONFIG_KEY_%d=%s", i, kv[0]),
			fmt.Sprintf("GIT_CONFIG_VALUE_%d=%s", i, kv[1]))
	}
	return env
}
