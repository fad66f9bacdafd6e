package push

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/google/go-github/v92/github"

	"arbe.0sk.ar/runner/host/sandbox"
)

// github returns a client of GitHub's API.
func (o Options) github() (*github.Client, error) {
	opts := []github.ClientOptionsFunc{github.WithHTTPClient(o.client()), github.WithAuthToken(o.Token)}
	base := o.BaseURL
	u, err := url.Parse(o.Remote.URL)
	if base == "" && err == nil && !strings.HasPrefix(o.Remote.URL, sandbox.GitHub+"/") {
		base = u.Scheme + "://" + u.Host // the token is for this server
	}
	if base != "" {
		opts = append(opts, github.WithEnterpriseURLs(base, base))
	}
	return github.NewClient(opts...)
}

// base returns the base branch of a pull request, and the repository's owner and name, which differ if it was moved.
func (o Options) base(ctx context.Context, gh *github.Client) (base, owner, name string, err error) {
	repo, _, err := gh.Repositories.Get(ctx, o.Remote.Owner, o.Remote.Name)
	if err != nil {
		return "", "", "", err
	}
	base = repo.GetDefaultBranch()
	if base == "" || base == o.Branch {
		err = fmt.Errorf("%s is the default branch, %q: a pull request needs a branch of its own", o.Branch, base)
		return "", "", "", err
	}
	return base, cmp.Or(repo.GetOwner().GetLogin(), o.Remote.Owner), cmp.Or(repo.GetName(), o.Remote.Name), nil
}

// pullRequest returns the address of the branch's pull request: the open one, or a new one.
func pullRequest(ctx context.Context, o Options) (string, error) {
	gh, err := o.github()
	if err != nil {
		return "", err
	}
	base, owner, name, err := o.base(ctx, gh)
	if err != nil {
		return "", err
	}
	title, body := title(o), body(o)
	pr, _, err := gh.PullRequests.Create(ctx, owner, name, github.CreatePullRequest{
		Title: &title, Head: o.Branch, Base: base, Body: &body,
	})
	if err == nil && pr.GetHTMLURL() == "" {
		err = errors.New("GitHub's answer has no address of the pull request")
	}
	if err == nil {
		return pr.GetHTMLURL(), nil
	}
	// An open one may exist from before, from another host, or because GitHub's answer was lost.
	open, _, listErr := gh.PullRequests.List(ctx, owner, name, &github.PullRequestListOptions{
		State: "open", Head: owner + ":" + o.Branch,
	})
	if listErr != nil {
		return "", err // the first error is the cause
	}
	for _, pr := range open {
		// a server that doesn't know the filter lists all
		if pr.GetHead().GetRef() == o.Branch && pr.GetHTMLURL() != "" {
			return pr.GetHTMLURL(), nil
		}
	}
	return "", err
}

// maxTitle is GitHub's limit of a title, in characters.
const maxTitle = 256

func title(o Options) string {
	intent := strings.Join(strings.Fields(o.Intent), " ")
	all := []rune("[harness] " + cmp.Or(intent, o.Branch))
	return string(all[:min(len(all), maxTitle)])
}

func body(o Options) string {
	return fmt.Sprintf("Thread: %s\nBranch: %s\nRun: %s", o.Thread, o.Branch, o.Run)
}

// maxReason bounds a reason, in bytes.
const maxReason = 1000

// reason returns an error's text as one line, without the token in any of its forms in git and HTTP.
func reason(err error, token string) string {
	if ue, is := errors.AsType[*url.Error](err); is && ue.Timeout() {
		err = fmt.Errorf("%s: no answer in time", ue.Op)
	}
	s := strings.Join(strings.Fields(err.Error()), " ")
	if token == "" {
		return strings.ToValidUTF8(s[:min(len(s), maxReason)], "")
	}
	forms := []string{token, url.QueryEscape(token), url.PathEscape(token)}
	for _, user := range []string{"", "git", "x-access-token", "oauth2"} {
		forms = append(forms, base64.StdEncoding.EncodeToString([]byte(user+":"+token)))
	}
	for _, form := range forms {
		s = strings.ReplaceAll(s, form, "[redacted:GITHUB_TOKEN]")
	}
	return strings.ToValidUTF8(s[:min(len(s), maxReason)], "")
}
