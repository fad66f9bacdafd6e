package fakedaytona

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

func (d *daemon) gitRoutes() {
	on := func(pattern string, do func(*http.Request, gitQuestion) (status int, v any, err error)) {
		d.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			q := gitQuestion{Path: r.URL.Query().Get("path")}
			if r.Method == http.MethodPost && !ask(w, r, &q) {
				return
			}
			if q.Path == "" {
				complain(w, r, toolError{http.StatusBadRequest, "BAD_REQUEST", "bad request: path is required"})
				return
			}
			status, v, err := do(r, q)
			if err != nil {
				complain(w, r, err)
			} else if v == nil {
				w.WriteHeader(status)
			} else {
				reply(w, status, v)
			}
		})
	}
	on("POST /git/clone", d.gitClone)
	on("GET /git/status", d.gitStatus)
	on("GET /git/history", d.gitHistory)
	on("GET /git/branches", d.gitBranches)
	on("POST /git/branches", func(_ *http.Request, q gitQuestion) (int, any, error) {
		return d.gitDo(http.StatusCreated, q, "branch", "--", q.Name)
	})
	on("POST /git/checkout", func(_ *http.Request, q gitQuestion) (int, any, error) {
		return d.gitDo(http.StatusOK, q, "checkout", "-q", q.Branch, "--")
	})
	on("POST /git/add", d.gitAdd)
	on("POST /git/commit", d.gitCommit)
	on("POST /git/push", d.gitPush)
	on("POST /git/pull", d.gitPull)
}

// gitQuestion has the parameters of all requests about git.
type gitQuestion struct {
	Path, URL, Branch, Name, Message, Author, Email, Username, Password string

	CommitID        string `json:"commit_id"`
	AllowEmpty      bool   `json:"allow_empty"`
	InsecureSkipTLS bool   `json:"insecure_skip_tls"`
	Depth           int
	Files           []string
}

func (d *daemon) gitDo(status int, q gitQuestion, args ...string) (int, any, error) {
	_, err := d.git(q, args...)
	return status, nil, err
}

// git runs git in the repository, and returns its output. Credentials are in its environment.
func (d *daemon) git(q gitQuestion, args ...string) (string, error) {
	env := []string{
		"GIT_TERMINAL_PROMPT=0",
		"GIT_ASKPASS=",
		"GIT_CONFIG_NOSYSTEM=1",
		"GIT_CONFIG_GLOBAL=" + os.DevNull,
		"LC_ALL=C",
	}
	n := 0
	set := func(key, value string) {
		env = append(env, fmt.Sprintf("GIT_CONFIG_KEY_%d=%s", n, key), fmt.Sprintf("GIT_CONFIG_VALUE_%d=%s", n, value))
		n++
	}
	if q.Username != "" || q.Password != "" {
		set(
			"http.extraHeader",
			"Authorization: Basic "+base64.StdEncoding.EncodeToString([]byte(q.Username+":"+q.Password)),
		)
	}
	if q.InsecureSkipTLS {
		set("http.sslVerify", "false")
	}
	env = append(env, "GIT_CONFIG_COUNT="+strconv.Itoa(n))
	if q.Author != "" {
		env = append(
			env,
			"GIT_AUTHOR_NAME="+q.Author,
			"GIT_AUTHOR_EMAIL="+q.Email,
			"GIT_COMMITTER_NAME="+q.Author,
			"GIT_COMMITTER_EMAIL="+q.Email,
		)
	}
	cmd := d.command(q.Path, env, "git", args...)
	var out, complaint bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(q.Message), &out, &complaint
	err := d.start(cmd)
	if err == nil {
		err = cmd.Wait()
	}
	if err != nil {
		return "", gitError(complaint.String(), err)
	}
	return out.String(), nil
}

// gitError is the error that git's complaint amounts to.
func gitError(complaint string, err error) error {
	if strings.Contains(complaint, "not a git repository") {
		return toolError{http.StatusNotFound, "NOT_FOUND", "repository does not exist"}
	}
	for _, e := range []struct {
		status     int
		code, says string
	}{
		{http.StatusUnauthorized, "UNAUTHORIZED", "Authentication failed"},
		{http.StatusUnauthorized, "UNAUTHORIZED", "could not read Username"},
		{http.StatusForbidden, "FORBIDDEN", "returned error: 403"},
		{http.StatusNotFound, "NOT_FOUND", "' not found"},
		{http.StatusNotFound, "NOT_FOUND", "No such file or directory"},
	} {
		if strings.Contains(complaint, e.says) || strings.Contains(err.Error(), strings.ToLower(e.says)) {
			return toolError{e.status, e.code, strings.TrimSpace(complaint)}
		}
	}
	return fmt.Errorf("%w: %s", err, strings.TrimSpace(complaint))
}

// gitClone clones one branch. Without a name that is the repository's default one, and the clone has its remote's HEAD
// only.
func (d *daemon) gitClone(_ *http.Request, q gitQuestion) (int, any, error) {
	if u, err := url.Parse(q.URL); err != nil || u.Scheme != "http" && u.Scheme != "https" {
		return 0, nil, fmt.Errorf("waitid: no child processes")
	}
	dir, err := d.writable(q.Path)
	if err != nil {
		return 0, nil, toolError{http.StatusForbidden, "FORBIDDEN", err.Error()}
	}
	if _, err := os.Stat(filepath.Join(dir, ".git")); err == nil {
		return 0, nil, toolError{http.StatusConflict, "CONFLICT", "conflict: repository already exists"}
	}
	litter := filepath.Join(dir, ".git")
	if _, err := os.Stat(dir); err != nil {
		litter = dir
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return 0, nil, err
	}
	if err := d.gitFetch(q); err != nil {
		_ = os.RemoveAll(litter) // there is an error to return already
		return 0, nil, err
	}
	return http.StatusOK, nil, nil
}

func (d *daemon) gitFetch(q gitQuestion) error {
	branch, spec := q.Branch, fmt.Sprintf("+refs/heads/%[1]s:refs/remotes/origin/%[1]s", q.Branch)
	if branch == "" {
		head, err := d.git(q, "ls-remote", "--symref", q.URL, "HEAD")
		if err != nil {
			return err
		}
		name, _, _ := strings.Cut(strings.TrimPrefix(head, "ref: refs/heads/"), "\t")
		if branch = name; head == "" {
			return fmt.Errorf("remote repository is empty")
		}
		spec = "+HEAD:refs/remotes/origin/HEAD"
	}
	fetch := []string{"fetch", "-q", "origin"}
	if q.Depth > 0 {
		fetch = append(fetch, "--depth="+strconv.Itoa(q.Depth))
	}
	steps := [][]string{
		{"init", "-q"},
		{"config", "remote.origin.url", q.URL},
		{"config", "remote.origin.fetch", spec},
		fetch,
		{"checkout", "-q", "--no-track", "-B", branch, "FETCH_HEAD"},
		{"config", "branch." + branch + ".remote", "origin"},
		{"config", "branch." + branch + ".merge", "refs/heads/" + branch},
	}
	if q.CommitID != "" {
		steps = append(steps, []string{"checkout", "-q", "--detach", q.CommitID})
	}
	for _, args := range steps {
		if _, err := d.git(q, args...); err != nil {
			return err
		}
	}
	return nil
}

// gitAdd stages files. Those of a repository within the repository become plain files of the outer one.
func (d *daemon) gitAdd(_ *http.Request, q gitQuestion) (int, any, error) {
	if _, err := d.git(q, append([]string{"add", "--"}, q.Files...)...); err != nil {
		return 0, nil, err
	}
	staged, err := d.git(q, "ls-files", "--stage")
	if err != nil {
		return 0, nil, err
	}
	for line := range strings.Lines(staged) {
		info, nested, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		if !strings.HasPrefix(info, "160000 ") {
			continue
		}
		if err := d.gitFlatten(q, nested); err != nil {
			return 0, nil, err
		}
	}
	return http.StatusOK, nil, nil
}

// gitFlatten stages the files of a nested repository in place of its commit.
func (d *daemon) gitFlatten(q gitQuestion, nested string) error {
	if _, err := d.git(q, "update-index", "--force-remove", nested); err != nil {
		return err
	}
	root := d.path(q.Path)
	return filepath.WalkDir(filepath.Join(root, nested), func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.Name() == ".git" && e.IsDir() {
			return cmp.Or(err, fs.SkipDir)
		}
		if e.IsDir() {
			return nil
		}
		blob, err := d.git(q, "hash-object", "-w", "--", path)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err == nil {
			_, err = d.git(q, "update-index", "--add", "--cacheinfo", "100644,"+strings.TrimSpace(blob)+","+rel)
		}
		return err
	})
}

// gitPush pushes the branch that is checked out, to whatever the repository calls origin.
func (d *daemon) gitPush(_ *http.Request, q gitQuestion) (int, any, error) {
	if _, err := d.git(q, "symbolic-ref", "HEAD"); err != nil {
		var e toolError
		if errors.As(err, &e) {
			return 0, nil, err
		}
		return 0, nil, errors.New("funny refname") // HEAD is detached
	}
	if _, err := d.git(q, "config", "remote.origin.url"); err != nil {
		return 0, nil, toolError{http.StatusNotFound, "NOT_FOUND", "not found: remote not found"}
	}
	return d.gitDo(http.StatusOK, q, "push", "-q", "origin", "HEAD")
}

func (d *daemon) gitCommit(_ *http.Request, q gitQuestion) (int, any, error) {
	if q.Message == "" || q.Author == "" || q.Email == "" {
		return 0, nil, toolError{
			http.StatusBadRequest,
			"BAD_REQUEST",
			"bad request: message, author and email are required",
		}
	}
	args := []string{"commit", "-q", "--no-verify", "-F", "-"}
	if q.AllowEmpty {
		args = append(args, "--allow-empty")
	}
	if _, err := d.git(q, args...); err != nil {
		return 0, nil, err
	}
	hash, err := d.git(q, "rev-parse", "HEAD")
	return http.StatusOK, map[string]string{"hash": strings.TrimSpace(hash)}, err
}

func (d *daemon) gitPull(_ *http.Request, q gitQuestion) (int, any, error) {
	branch, err := d.git(q, "symbolic-ref", "--short", "HEAD")
	if err != nil {
		return 0, nil, err
	}
	return d.gitDo(http.StatusOK, q, "pull", "-q", "--ff-only", "origin", strings.TrimSpace(branch))
}
