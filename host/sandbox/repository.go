package sandbox

import (
	"cmp"
	"path/filepath"
	"strings"
)

// Repository is a repository to clone. At most one of Branch, Tag and Commit is set; none is the default branch.
type Repository struct {
	Repo   string // org/repo of GitHub, an address for git, or, for a local box, an absolute path
	Branch string
	Tag    string
	Commit string
	Depth  int    // the commits to fetch; 0: all
	Work   string // a branch to check out: the remote's if it exists, else a new one from what is cloned; "" for none

	GitHub string // the server of org/repo; "" for the provider's
	Token  string // for GitHub; no other server gets it
}

// Source returns the repository's address for git, and its token if that is for the address.
func (r Repository) Source(github string) (address, token string, err error) {
	github = cmp.Or(r.GitHub, github)
	for _, ref := range []string{r.Branch, r.Tag, r.Work} {
		if err := CheckBranch(ref); err != nil {
			return "", "", err
		}
	}
	switch {
	case filepath.IsAbs(r.Repo), strings.Contains(r.Repo, "://"):
		address = r.Repo
	default:
		owner, name, err := ParseRepo(r.Repo, github)
		if err != nil {
			return "", "", err
		}
		address = RepoAddress(github, owner, name)
	}
	return address, TokenFor(address, github, r.Token), nil
}
