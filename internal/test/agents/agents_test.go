package agents_test

import (
	"context"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"arbe.0sk.ar/runner/internal/test/agents"
	"arbe.0sk.ar/runner/internal/test/model"
)

// Each agent, in a home that Home has made, sends its key to the scripted model and prints its reply.
func TestHome(t *testing.T) {
	for _, tt := range []struct {
		harness, version, program string
		args                      []string
		env                       []string // that a run needs of its own
		auth                      string
	}{
		{"pi", "0.78.0", ".bin/pi", []string{"-p", "hi"}, []string{"PI_OFFLINE=1"}, "Bearer scripted-key-0001"},
		{
			"codex", "0.169.0", "@openai/codex-linux-*/vendor/*/bin/codex",
			[]string{"exec", "--skip-git-repo-check", "-c", "check_for_update_on_startup=false", "-c", "analytics.enabled=false", "-c", "features.plugins=false", "hi"},
			nil, "Bearer scripted-key-0001",
		},
		{
			"claude-code", "2.1.329", "@anthropic-ai/claude-code-linux-*/claude",
			[]string{"-p", "hi"},
			[]string{"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1"},
			"scripted-key-0001",
		},
	} {
		t.Run(tt.harness, func(t *testing.T) {
			t.Parallel()
			a, err := agents.Find(tt.harness, tt.version)
			if err != nil {
				t.Fatal(err)
			}
			cache, err := agents.Cache()
			if err != nil {
				t.Fatal(err)
			}
			found, err := filepath.Glob(filepath.Join(cache, tt.harness+"-"+tt.version, "node_modules", tt.program))
			if err != nil || len(found) != 1 {
				t.Fatalf("%d programs, %v", len(found), err)
			}
			m := &model.Server{Script: model.Script{Replies: []model.Reply{{Text: "Hello there.", Times: -1}}}}
			srv := httptest.NewServer(m)
			defer srv.Close()
			home := t.TempDir()
			if err := a.Home(home, srv.URL, 50); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			defer cancel()
			cmd := exec.CommandContext(ctx, found[0], tt.args...)
			cmd.Dir, cmd.Env = t.TempDir(), append(a.Env(home), tt.env...)
			out, err := cmd.CombinedOutput()
			if err != nil || !strings.Contains(string(out), "Hello there.") {
				t.Errorf("%v\n%s", err, out)
			}
			if all := m.Requests(); len(all) != 1 || all[0].Auth != tt.auth ||
				!strings.Contains(string(all[0].Body), `"`+strings.TrimPrefix(a.Model, "scripted/")+`"`) {
				t.Errorf("%d requests", len(all))
			}
		})
	}
}

// A missing agent is an error with the next step.
func TestFind(t *testing.T) {
	if _, err := agents.Find("codex", "0.0.1"); err == nil || !strings.Contains(err.Error(), "make agents") {
		t.Error(err)
	}
	if _, err := agents.Find("clippy", "1"); err == nil {
		t.Error("clippy is found")
	}
}
