package fakedaytona

import (
	"fmt"
	"net/http"
	"strings"
)

// gitStates are the API's names for git's letters.
var gitStates = map[byte]string{
	' ': "Unmodified", '?': "Untracked", 'M': "Modified", 'T': "Modified", 'A': "Added", 'D': "Deleted", 'R': "Renamed",
	'C': "Copied", 'U': "Updated but unmerged",
}

// gitStatus is the state of the work tree. A branch is published where the remote's is known, which a push does not
// bring about.
func (d *daemon) gitStatus(_ *http.Request, q gitQuestion) (int, any, error) {
	out, err := d.git(q, "status", "--porcelain=v1", "-z", "--untracked-files=all")
	if err != nil {
		return 0, nil, err
	}
	if _, err := d.git(q, "rev-parse", "--verify", "--quiet", "HEAD"); err != nil {
		return 0, nil, toolError{http.StatusNotFound, "NOT_FOUND", "not found: reference not found"} // an unborn branch
	}
	files := []any{}
	for records := strings.Split(out, "\x00"); len(records) > 1; records = records[1:] {
		line, extra := records[0], ""
		if line[0] == 'R' || line[0] == 'C' {
			extra, records = records[1], records[1:] // where it was
		}
		files = append(
			files,
			map[string]string{
				"name": line[3:], "extra": extra, "staging": gitStates[line[0]],
				"worktree": gitStates[line[1]],
			},
		)
	}
	v := map[string]any{"currentBranch": "HEAD", "fileStatus": files, "branchPublished": false, "ahead": 0, "behind": 0}
	if branch, err := d.git(q, "symbolic-ref", "--short", "HEAD"); err == nil { // else it is detached
		branch = strings.TrimSpace(branch)
		v["currentBranch"] = branch
		var ahead, behind int
		count, err := d.git(q, "rev-list", "--left-right", "--count", branch+"...refs/remotes/origin/"+branch)
		if err == nil { // else it is not published
			if _, err := fmt.Sscan(count, &ahead, &behind); err != nil {
				return 0, nil, err
			}
			v["branchPublished"], v["ahead"], v["behind"] = true, ahead, behind
		}
	}
	return http.StatusOK, v, nil
}

func (d *daemon) gitBranches(_ *http.Request, q gitQuestion) (int, any, error) {
	out, err := d.git(q, "for-each-ref", "--format=%(refname:short)", "refs/heads")
	return http.StatusOK, map[string]any{"branches": append([]string{}, strings.Fields(out)...)}, err
}

func (d *daemon) gitHistory(_ *http.Request, q gitQuestion) (int, any, error) {
	out, err := d.git(q, "log", "-z", "--format=%H%n%an%n%ae%n%aI%n%B")
	list := []any{}
	for record := range strings.SplitSeq(out, "\x00") {
		if f := strings.SplitN(record, "\n", 5); len(f) == 5 {
			list = append(
				list,
				map[string]string{"hash": f[0], "author": f[1], "email": f[2], "timestamp": f[3], "message": f[4]},
			)
		}
	}
	return http.StatusOK, list, err
}
