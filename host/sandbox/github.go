package sandbox

import (
	"fmt"
	"net/url"
	"regexp"
	"strings"
)

// GitHub is where org/repo stands.
const GitHub = "https://github.com"

var repoPart = regexp.MustCompile(`\A[A-Za-z0-9_.-]+\z`)

// ParseRepo takes org/repo, or the repository's address on GitHub, apart.
func ParseRepo(repo string) (owner, name string, err error) {
	short := repo
	if strings.Contains(repo, "://") {
		u, err := url.Parse(repo)
		// An address may hold a password: it is not said again.
		if err != nil || u.Scheme != "https" || u.User != nil || !strings.EqualFold(u.Host, "github.com") && !strings.EqualFold(u.Host, "www.github.com") {
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

// isPath reports whether repo is meant as a folder on this machine.
func isPath(repo string) bool {
	return repo == "" || strings.ContainsAny(repo[:1], "./~") || !strings.Contains(repo, "/")
}

// checkBranch refuses what git could take for an option. All else about a name is git's to say.
func checkBranch(branch string) error {
	if branch == "" || strings.HasPrefix(branch, "-") || strings.ContainsAny(branch, "\x00 :") {
		return fmt.Errorf("invalid branch name %q", branch)
	}
	return nil
}
