package sandbox

import (
	"cmp"
	"fmt"
	"net/url"
	"regexp"
	"strings"
)

// GitHub is the server that org/repo is on, unless another one is configured (a GitHub Enterprise server).
const GitHub = "https://github.com"

var repoPart = regexp.MustCompile(`\A[A-Za-z0-9_.-]+\z`)

// ParseRepo splits org/repo, or a repository's address on a GitHub server. An empty server means GitHub.
func ParseRepo(repo, server string) (owner, name string, err error) {
	server = ServerOf(server)
	short := repo
	if strings.Contains(repo, "://") {
		path, is := onServer(repo, server)
		if !is { // the address may hold a password, so no error repeats it
			return "", "", fmt.Errorf("not a GitHub repository: want org/repo or %s/org/repo", server)
		}
		short = strings.Trim(path, "/")
	}
	owner, name, _ = strings.Cut(short, "/")
	name = strings.TrimSuffix(name, ".git")
	for _, part := range []string{owner, name} {
		if !repoPart.MatchString(part) || strings.HasPrefix(part, "-") || part == "." || part == ".." {
			return "", "", fmt.Errorf("not a GitHub repository: %q: want org/repo or %s/org/repo", repo, server)
		}
	}
	return owner, name, nil
}

// ServerOf returns the address of a GitHub server without a slash at its end. An empty one means GitHub.
func ServerOf(server string) string { return cmp.Or(strings.TrimRight(server, "/"), GitHub) }

// RepoAddress returns the address of a repository on a GitHub server for git.
func RepoAddress(server, owner, name string) string {
	return ServerOf(server) + "/" + owner + "/" + name + ".git"
}

// TokenFor returns the token of a GitHub server if an address is on that server, without a user of its own. No other
// server gets it.
func TokenFor(address, server, token string) string {
	if _, is := onServer(address, ServerOf(server)); is {
		return token
	}
	return ""
}

// onServer returns the path of an address on a server; false for one elsewhere, or one with a user in it.
func onServer(address, server string) (path string, is bool) {
	a, err := url.Parse(address)
	if err != nil || a.User != nil {
		return "", false
	}
	s, err := url.Parse(server)
	if err != nil {
		return "", false
	}
	host := a.Host
	if server == GitHub && strings.EqualFold(host, "www.github.com") {
		host = s.Host
	}
	if a.Scheme != s.Scheme || !strings.EqualFold(host, s.Host) {
		return "", false
	}
	return strings.CutPrefix(a.Path, strings.TrimRight(s.Path, "/")+"/")
}

// IsPath reports whether repo names a folder of this machine.
func IsPath(repo string) bool {
	return repo == "" || strings.ContainsAny(repo[:1], "./~") || !strings.Contains(repo, "/")
}

// CheckBranch refuses names that git could take for an option. git itself checks the rest.
func CheckBranch(branch string) error {
	if strings.HasPrefix(branch, "-") || strings.ContainsAny(branch, "\x00 :") {
		return fmt.Errorf("invalid branch name %q", branch)
	}
	return nil
}
