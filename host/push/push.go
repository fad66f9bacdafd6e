// Package push takes the branch that a run has left in its box to GitHub: it is pushed, and a pull request asks for its merge.
//
// Whatever becomes of it is an Outcome, never an error: the run was completed, and its work is in the box. The token is in no message.
package push

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/google/go-github/v92/github"
)

// box is where the branch is.
type box interface {
	// Push pushes the branch to the repository that the box was made with.
	Push(ctx context.Context, branch, token string) error
}

// Options say what to push, and what the pull request says.
type Options struct {
	Owner, Repo string // of the repository on GitHub
	Branch      string
	Intent      string // what was wanted, in a few words; "" for the branch's name
	Thread, Run string // that the work was done on, and in
	Token       string // of GitHub, for both the push and the pull request
	BaseURL     string // of a GitHub Enterprise server; "" for github.com
	// HTTPClient talks to GitHub; nil for one that gives up on a request after 30 s.
	HTTPClient *http.Client
}

// Outcome is one of four: there is no token, the push failed, the push was made and the pull request failed, or all went well.
type Outcome struct {
	Pushed bool   `json:"pushed"`
	PRURL  string `json:"prUrl,omitempty"`
	Error  string `json:"error,omitempty"`
}

// Push pushes the branch of the box, and makes sure that there is a pull request for it. Doing it again is harmless: the branch is where it was, and an
// open pull request is found.
func Push(ctx context.Context, b box, o Options) Outcome {
	o.Token = strings.TrimSpace(o.Token)
	if o.Token == "" {
		return Outcome{Error: "GITHUB_TOKEN required for push"}
	}
	if err := b.Push(ctx, o.Branch, o.Token); err != nil {
		return Outcome{Error: "git push failed: " + reason(err, o.Token)}
	}
	link, err := pullRequest(ctx, o)
	if err != nil {
		return Outcome{Pushed: true, Error: "PR creation failed: " + reason(err, o.Token)}
	}
	return Outcome{Pushed: true, PRURL: link}
}

// pullRequest returns the address of the branch's pull request, a new one or that which is open.
func pullRequest(ctx context.Context, o Options) (string, error) {
	hc := http.Client{Timeout: 30 * time.Second}
	if o.HTTPClient != nil {
		hc = *o.HTTPClient
	}
	hc.CheckRedirect = sameHost
	opts := []github.ClientOptionsFunc{github.WithHTTPClient(&hc), github.WithAuthToken(o.Token)}
	if o.BaseURL != "" {
		opts = append(opts, github.WithEnterpriseURLs(o.BaseURL, o.BaseURL))
	}
	gh, err := github.NewClient(opts...)
	if err != nil {
		return "", err
	}
	repo, _, err := gh.Repositories.Get(ctx, o.Owner, o.Repo)
	if err != nil {
		return "", err
	}
	base := repo.GetDefaultBranch()
	if base == "" || base == o.Branch {
		return "", fmt.Errorf("there is nothing to ask for: the branch is %s, the default branch %q", o.Branch, base)
	}
	owner, name := cmp.Or(repo.GetOwner().GetLogin(), o.Owner), cmp.Or(repo.GetName(), o.Repo) // it may have moved
	title, body := title(o), body(o)
	pr, _, err := gh.PullRequests.Create(ctx, owner, name, github.CreatePullRequest{Title: &title, Head: o.Branch, Base: base, Body: &body})
	if err == nil && pr.GetHTMLURL() == "" {
		err = errors.New("GitHub did not say where the pull request is")
	}
	if err == nil {
		return pr.GetHTMLURL(), nil
	}
	// There may be one from before, or the request was heard and the answer lost.
	open, _, listErr := gh.PullRequests.List(ctx, owner, name, &github.PullRequestListOptions{State: "open", Head: owner + ":" + o.Branch})
	if listErr != nil {
		return "", err // what went wrong first says more
	}
	for _, pr := range open {
		if pr.GetHead().GetRef() == o.Branch && pr.GetHTMLURL() != "" { // a server that doesn't know the filter lists all
			return pr.GetHTMLURL(), nil
		}
	}
	return "", err
}

// sameHost lets redirects go to where a repository has moved, and to no other host, for the library would send the token along.
func sameHost(req *http.Request, via []*http.Request) error {
	if req.URL.Host != via[0].URL.Host || req.URL.Scheme != via[0].URL.Scheme {
		return errors.New("redirected to another host")
	}
	if len(via) >= 5 {
		return errors.New("too many redirects")
	}
	return nil
}

// maxTitle is how many characters GitHub takes.
const maxTitle = 256

func title(o Options) string {
	intent := strings.Join(strings.Fields(o.Intent), " ")
	all := []rune("[harness] " + cmp.Or(intent, o.Branch))
	return string(all[:min(len(all), maxTitle)])
}

func body(o Options) string {
	return fmt.Sprintf("Thread: %s\nBranch: %s\nRun: %s", o.Thread, o.Branch, o.Run)
}

// maxReason is how many bytes of a reason are kept.
const maxReason = 1000

// reason is what an error says, on one line, without the token in any of the forms that git and HTTP give it.
func reason(err error, token string) string {
	var ue *url.Error
	if errors.As(err, &ue) && ue.Timeout() {
		err = fmt.Errorf("%s: no answer in time", ue.Op)
	}
	s := strings.Join(strings.Fields(err.Error()), " ")
	forms := []string{token, url.QueryEscape(token), url.PathEscape(token)}
	for _, user := range []string{"", "git", "x-access-token", "oauth2"} {
		forms = append(forms, base64.StdEncoding.EncodeToString([]byte(user+":"+token)))
	}
	for _, form := range forms {
		s = strings.ReplaceAll(s, form, "[redacted:GITHUB_TOKEN]")
	}
	return strings.ToValidUTF8(s[:min(len(s), maxReason)], "")
}
