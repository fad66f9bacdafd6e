package push

import (
	"bufio"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"arbe.0sk.ar/runner/host/sandbox"
	"arbe.0sk.ar/runner/internal/git"
)

// Remote is a repository to push to.
type Remote struct {
	URL         string // of http, https, ssh or file, or an absolute path; without a password
	Owner, Name string // on GitHub; "" for a repository elsewhere, which gets no token and no pull request
}

// ParseRemote parses a repository as --repo names it: ORG/REPO or an address on GitHub, whose address is server ("" for
// https://github.com), or a folder of this machine, or the address of any git server.
func ParseRemote(repo, server string) (Remote, error) {
	if fi, err := os.Stat(repo); err == nil && fi.IsDir() {
		abs, err := filepath.Abs(repo)
		return Remote{URL: abs}, err
	}
	if owner, name, err := sandbox.ParseRepo(repo, server); err == nil {
		return Remote{URL: sandbox.RepoAddress(server, owner, name), Owner: owner, Name: name}, nil
	}
	if scheme, _, found := strings.Cut(repo, "://"); found {
		u, err := url.Parse(repo)
		if err != nil {
			return Remote{}, errors.New("not a repository: the address can't be parsed")
		}
		if _, has := u.User.Password(); has {
			const why = "the repository's address on %s holds a password: use GITHUB_TOKEN instead"
			return Remote{}, fmt.Errorf(why, u.Host)
		}
		switch scheme {
		case "http", "https":
			u.User = nil
			return Remote{URL: u.String()}, nil
		case "ssh", "file":
			return Remote{URL: repo}, nil
		}
	} else if overSSH.MatchString(repo) {
		return Remote{URL: repo}, nil
	}
	const want = "want ORG/REPO, a folder, or an address of http, https, ssh or file"
	return Remote{}, fmt.Errorf("not a repository to push to: %q: %s", repo, want)
}

// overSSH matches git's short form of an address of ssh, user@host:path.
var overSSH = regexp.MustCompile(`\A(\w[\w.-]*@)?\w[\w.-]*:[^:]`)

func (r Remote) overHTTP() bool {
	return strings.HasPrefix(r.URL, "http://") || strings.HasPrefix(r.URL, "https://")
}

// protocol returns git's name of the remote's protocol.
func (r Remote) protocol() string {
	scheme, _, found := strings.Cut(r.URL, "://")
	switch {
	case found:
		return scheme
	case filepath.IsAbs(r.URL):
		return "file"
	}
	return "ssh"
}

// basic returns the value of the header with the token.
func basic(token string) string {
	return "Basic " + base64.StdEncoding.EncodeToString([]byte("x-access-token:"+token))
}

// mostRefs bounds a remote's list of refs, in bytes: about a million of them.
const mostRefs = 64 << 20

// discover asks an HTTP server for the remote's refs as a push does, which proves that the token may push. It returns
// the refs, and the repository's address, which differs if the repository was moved on the same server.
func discover(
	ctx context.Context, hc *http.Client, address, token string,
) (refs map[string]string, moved string, err error) {
	const service, suffix = "git-receive-pack", "/info/refs"
	page := strings.TrimRight(address, "/") + suffix + "?service=" + service
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, page, nil)
	if err != nil {
		return nil, "", err
	}
	if token != "" {
		req.Header.Set("Authorization", basic(token))
	}
	req.Header.Set("User-Agent", "git/arbe") // a server with a web page at the address recognizes git by it
	resp, err := hc.Do(req)
	if err != nil {
		return nil, "", err
	}
	defer func() { err = errors.Join(err, resp.Body.Close()) }()
	switch resp.StatusCode {
	case http.StatusOK:
	case http.StatusUnauthorized:
		if token == "" {
			const why = "%s: the server requires credentials, and GITHUB_TOKEN is for GITHUB_SERVER_URL only (401)"
			return nil, "", fmt.Errorf(why, address)
		}
		return nil, "", fmt.Errorf("%s: the token was refused (401)", address)
	case http.StatusForbidden:
		return nil, "", fmt.Errorf("%s: the token may not push here (403)", address)
	case http.StatusNotFound:
		return nil, "", fmt.Errorf("%s: no such repository, or none that the token gives access to (404)", address)
	default:
		return nil, "", fmt.Errorf("%s: the server answered %s", address, resp.Status)
	}
	if resp.Header.Get("Content-Type") != "application/x-"+service+"-advertisement" {
		return nil, "", fmt.Errorf("%s: the answer is not a git server's", address)
	}
	if refs, err = readRefs(io.LimitReader(resp.Body, mostRefs)); err != nil {
		return nil, "", fmt.Errorf("%s: %w", address, err)
	}
	final := *resp.Request.URL
	final.RawQuery = ""
	return refs, strings.TrimSuffix(final.String(), suffix), nil
}

// readRefs reads the refs that a server advertises, in git's pkt-lines: each four hex digits of length, then the rest.
// The first part names the service, the second has "OID REF", with a NUL and the server's abilities after the first.
func readRefs(from io.Reader) (map[string]string, error) {
	refs, in := map[string]string{}, bufio.NewReader(from)
	for parts := 0; parts < 2; {
		var head [4]byte
		if _, err := io.ReadFull(in, head[:]); err != nil {
			return nil, fmt.Errorf("the list of refs is cut short: %w", err)
		}
		n, err := strconv.ParseUint(string(head[:]), 16, 16)
		if err != nil {
			return nil, errors.New("the list of refs is malformed")
		}
		if n == 0 {
			parts++
			continue
		}
		line := make([]byte, max(int(n), 4)-4)
		if _, err := io.ReadFull(in, line); err != nil {
			return nil, fmt.Errorf("the list of refs is cut short: %w", err)
		}
		if parts == 0 {
			continue
		}
		text, _, _ := strings.Cut(string(line), "\x00")
		oid, ref, _ := strings.Cut(strings.TrimSpace(text), " ")
		if git.IsObject(oid) && strings.HasPrefix(ref, "refs/") {
			refs[ref] = oid
		}
	}
	return refs, nil
}

// client returns a client for o's requests. It follows no redirect to another host: the token would go there.
func (o Options) client() *http.Client {
	hc := http.Client{Timeout: 30 * time.Second}
	if o.HTTPClient != nil {
		hc = *o.HTTPClient
	}
	hc.CheckRedirect = sameHost
	return &hc
}

// sameHost allows redirects on the same host, to which a repository may have moved, and no others.
func sameHost(req *http.Request, via []*http.Request) error {
	if req.URL.Host != via[0].URL.Host || req.URL.Scheme != via[0].URL.Scheme {
		return errors.New("redirected to another host")
	}
	if len(via) >= 5 {
		return errors.New("too many redirects")
	}
	return nil
}

// Check reports before a run whether its branch can be pushed: the remote answers and has the repository, the token may
// push, and the branch is not the default branch if a pull request is wanted. A branch that exists is no error: a run
// may continue it. commit is where it is; "" for a new one.
func Check(ctx context.Context, o Options) (commit string, err error) {
	o.Token = strings.TrimSpace(o.Token)
	if o.Token == "" && o.wantsToken() {
		return "", errors.New("GITHUB_TOKEN required for push")
	}
	if commit, err = check(ctx, o); err != nil {
		err = fmt.Errorf("%s can't be pushed: %s", o.Branch, reason(err, o.Token))
	}
	return commit, err
}

func check(ctx context.Context, o Options) (commit string, err error) {
	r, err := newRepository(ctx, o)
	if err != nil {
		return "", err
	}
	defer r.remove()
	refs, err := r.look(ctx)
	if err != nil || o.NoPR || o.Remote.Owner == "" {
		return refs[r.ref], err
	}
	gh, err := o.github()
	if err == nil {
		_, _, _, err = o.base(ctx, gh)
	}
	return refs[r.ref], err
}
