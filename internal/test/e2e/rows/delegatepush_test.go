package rows_test

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"arbe.0sk.ar/runner/internal/test/scene"
	"arbe.0sk.ar/runner/thread"
)

// The work of a delegated task is pushed, and gets a pull request where that is asked for: for a task of the operator
// with the host's token, for one of a member with the secret of its environment alone.
func TestFullDelegatePush(t *testing.T) {
	const hosts = "a-token-of-the-host"
	for name, tt := range map[string]struct {
		member bool
		token  string // of the host
		secret string // of the house
		flag   string
		want   string
		pulls  int
	}{
		"the operator's":              {false, scene.GitHubToken, "", "--pr", `"pushed":true`, 1},
		"the operator's, no request":  {false, scene.GitHubToken, "", "--push", `"pushed":true`, 0},
		"a member's":                  {true, hosts, scene.GitHubToken, "--pr", `"pushed":true`, 1},
		"a member's without a secret": {true, scene.GitHubToken, "", "--pr", "GITHUB_TOKEN required for push", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := scene.NewHost(t, scene.Bash("echo by-the-agent > made.txt"), scene.Say("Made."))
			f := scene.NewForge(t, h)
			parent := h.Arbe("thread", "new")
			withTasks(h, parent, "local", h.BoxOfPi())
			h.Env = append(h.Env, "GITHUB_TOKEN="+tt.token)
			if tt.secret != "" {
				set := h.Command("secret", "set", "--house", "house1", "GITHUB_TOKEN")
				set.Stdin = strings.NewReader(tt.secret)
				if out, err := set.CombinedOutput(); err != nil {
					t.Fatalf("%v\n%s", err, out)
				}
			}
			args := []string{"--environment", "tasks1", "--repo", "acme/widgets", "--branch", "agent/one", tt.flag}
			child := delegate(h, 1, append([]string{parent}, args...)...)[0]
			sql := `update environments set secret_bindings = '[{"name": "GITHUB_TOKEN", "required": false}]'`
			if tt.member {
				sql += "; update threads set launch_trusted = false"
			}
			onDatabase(h, databaseOf(h), func(c *pgx.Conn) error {
				_, err := c.Exec(t.Context(), sql)
				return err
			})
			provision(h, "--local-boxes")
			h.Ends(child)
			if out, err := h.Try("reconcile", child); err != nil {
				t.Errorf("reconcile: %v\n%s", err, out)
			}
			pushed := ""
			for _, e := range of(h, child) {
				if thread.TypeOf(e.Payload) == thread.TypePush {
					pushed += string(e.Payload)
				}
			}
			if !strings.Contains(pushed, tt.want) || len(f.Pulls()) != tt.pulls {
				t.Errorf("want %s and %d pull requests, got %s and %+v", tt.want, tt.pulls, pushed, f.Pulls())
			}
			all := scene.TextOf(of(h, child))
			if strings.Contains(all, scene.GitHubToken) || strings.Contains(all, hosts) {
				t.Errorf("the thread has a token: %s", all)
			}
			if strings.Contains(tt.want, "true") {
				if got := f.Git("-C", f.Bare, "show", "agent/one:made.txt"); got != "by-the-agent" {
					t.Errorf("pushed %q", got)
				}
			}
		})
	}
}

// databaseOf returns the address of a host's database.
func databaseOf(h *scene.Host) (url string) {
	for _, v := range h.Env {
		if value, is := strings.CutPrefix(v, "ARBE_DATABASE="); is {
			url = value
		}
	}
	return url
}
