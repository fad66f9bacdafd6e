package fakedaytona_test

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"arbe.0sk.ar/runner/internal/test/agents"
	"arbe.0sk.ar/runner/internal/test/fakedaytona"
)

// The official SDK, as it comes from npm, finds in the double what it expects of Daytona.
func TestSDK(t *testing.T) {
	t.Parallel()
	cache, err := agents.Cache()
	if err != nil {
		t.Fatal(err)
	}
	home := filepath.Join(cache, "daytona-sdk-0.218.0", "node_modules")
	node := filepath.Join(home, ".bin", "node")
	if _, err := os.Stat(filepath.Join(home, "@daytonaio", "sdk")); err != nil {
		t.Fatalf("the SDK is not installed: run make agents (%v)", err)
	}
	url, repo := gitServer(t, "git-password-0001")
	s := fakedaytona.New(t)
	s.Set(func(s *fakedaytona.Server) { s.StartAfter = 200 * time.Millisecond })
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, node, "testdata/sdk.mjs", home, url, "git-password-0001")
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"),
		"HOME=" + t.TempDir(),
		"DAYTONA_API_KEY=" + s.Key,
		"DAYTONA_API_URL=" + s.URL,
		"DAYTONA_TARGET=us",
	}
	var out, complaint bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaint
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s\n%s", err, out.Bytes(), complaint.Bytes())
	}
	var got map[string]any
	if err := json.Unmarshal(out.Bytes(), &got); err != nil {
		t.Fatalf("%v\n%s", err, out.Bytes())
	}
	boxHome, _ := got["home"].(string)
	failure := func(kind string, status float64) map[string]any {
		return map[string]any{"name": kind, "statusCode": status}
	}
	for key, want := range map[string]any{
		"box.state": "started", "box.target": "us", "box.snapshot": "daytonaio/sandbox:0.8.0", "box.autoStop": 0.,
		"box.autoDelete": 0.,
		"box.labels":     map[string]any{"app": "arbe", "run": "r1", "code-toolbox-language": "typescript"}, "box.env": map[string]any{"FOO": "bar"},
		"work": boxHome,

		"exec.exitCode": 7., "exec.result": boxHome + "/sub\nbar baz\nerr\n",
		"execTimeout":        failure("DaytonaTimeoutError", 408),
		"execNoDir.exitCode": -1.,

		"sessionAgain":  failure("DaytonaConflictError", 409),
		"sync.exitCode": 1., "sync.stdout": "out\n", "sync.stderr": "err\n", "syncLogs.stdout": "out\n",
		"syncLogs.stderr": "err\n",
		"async.stdout":    "", "async.exitCode": nil, "asyncEnd.exitCode": 0.,
		"streamed.stdout": boxHome + "/sub\na line\no1 ü\no2 ü\no3 ü\ngot a line 1\n",
		"streamed.stderr": "e1 ü\ne2 ü\ne3 ü\n",
		"sessions":        []any{map[string]any{"id": "s1", "commands": 2.}}, "sessionGone": failure("DaytonaNotFoundError", 404),

		"hello": "hello", "big": true, "missing": failure("DaytonaNotFoundError", 404), "info.permissions": "0600",
		"info.size": 5., "info.isDir": false,
		"infoMissing": failure("DaytonaNotFoundError", 404), "files": []any{"a", "big.bin", "moved"}, "deleteFolder": failure("DaytonaValidationError", 400),

		"cloneAuth":            failure("DaytonaAuthenticationError", 401),
		"cloneBranch":          failure("DaytonaInternalServerError", 500),
		"status.currentBranch": "work", "status.branchPublished": false,
		"status.fileStatus": []any{map[string]any{"name": "new.txt", "extra": "", "staging": "Untracked", "worktree": "Untracked"}},
		"commitEmpty":       failure("DaytonaInternalServerError", 500),
		"pushAuth":          failure("DaytonaAuthenticationError", 401),
		"branches.branches": []any{"main", "work"}, "clean.fileStatus": []any{}, "clean.branchPublished": false,
		"commit.sha": strings.TrimSpace(git(t, repo, "rev-parse", "work")),

		"other.snapshot": "daytonaio/sandbox:0.5.0-slim", "other.autoStop": 15.,
		"noSnapshot": failure("DaytonaValidationError", 400),
		"listed":     map[string]any{"arbe": 2., "r2": 1., "none": 0.}, "labels": map[string]any{"only": "this"},
		"stopped": "stopped", "execStopped": failure("DaytonaValidationError", 400), "started": "started",
		"gone": failure("DaytonaNotFoundError", 404), "execGone": failure("DaytonaAuthenticationError", 401),
	} {
		v := at(got, key)
		if m, ok := v.(map[string]any); ok {
			delete(m, "message") // is for people
		}
		if key == "streamed.stdout" { // the echo of the input may be at any place
			v = strings.Replace(strings.Replace(v.(string), "a line\n", "", 1), "/sub\n", "/sub\na line\n", 1)
		}
		if !cmp.Equal(v, want) {
			t.Errorf("%s:\n%s", key, cmp.Diff(want, v))
		}
	}
	if log := git(t, repo, "log", "--format=%an %ae %s",
		"work"); log != "Ann ann@example.org add new.txt\nBea bea@example.org first\n" {
		t.Errorf("what was pushed: %s", log)
	}
	if n := len(s.Boxes()); n != 0 {
		t.Errorf("%d boxes are left", n)
	}
	if t.Failed() {
		t.Logf("%s\n%s", out.Bytes(), complaint.Bytes())
	}
}

// at is a value by its path.
func at(v any, path string) any {
	for key := range strings.SplitSeq(path, ".") {
		m, _ := v.(map[string]any)
		v = m[key]
	}
	return v
}
