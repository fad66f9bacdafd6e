package sandbox

import (
	"fmt"
	"net/url"
	"regexp"
	"strings"
)

// GitHub is the address that org/repo is relative to.
const GitHub = "https://github.com"

var repoPart = regexp.MustCompile(`\A[A-Za-z0-9_.-]+\z`)

// ParseRepo splits org/repo, or the repository's address on GitHub.
func ParseRepo(repo string) (owner, name string, err error) {
	short := repo
	if strings.Contains(repo, "://") {
		u, err := url.Parse(repo)
		// The address may hold a password, so no error repeats it.
		if err != nil || u.Scheme != "https" || u.User != nil ||
			!strings.EqualFold(u.Host, "github.com") && !strings.EqualFold(u.Host, "www.github.com") {
			return "", "", fmt.Errorf("not a GitHub repository: want org/repo or %s/org/repo", GitHub)
		}
		short = strings.Trim(u.Path, "/")
	}
	owner, name, _ = strings.Cut(short, "/")
	name = strings.TrimSuffix(name, ".git")
	for _, part := range []string{owner, name} {
		if !repoPart.MatchString(part) || strings.HasPrefix(part, "-") || part == "." || part == ".." {
			return "", "", fmt.Errorf("not a GitHub repository: %q: want org/repo or %s/org/repo", repo, GitHub)
		}
	}
	return owner, name, nil
}

// isPath reports whether repo names a folder of this machine.
func isPath(repo string) bool {
	return repo == "" || strings.ContainsAny(repo[:1], "./~") || !strings.Contains(repo, "/")
}

// checkBranch refuses names that git could take for an option. git itself checks the rest.
func checkBranch(branch string) error {
	if branch == "" || strings.HasPrefix(branch, "-") || strings.ContainsAny(branch, "\x00 :") {
		return fmt.Errorf("invalid branch name %q", branch)
	}
	return nil
}
