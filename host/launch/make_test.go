package launch_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"arbe.0sk.ar/runner/host/launch"
	"arbe.0sk.ar/runner/host/recipe"
	"arbe.0sk.ar/runner/host/sandbox"
	"arbe.0sk.ar/runner/internal/test/fakethread"
	"arbe.0sk.ar/runner/thread"
)

// maker is a provider that makes no box, and notes what it was asked for.
type maker struct {
	oneBox
	asked sandbox.Options
}

func (m *maker) Create(_ context.Context, o sandbox.Options) (sandbox.Sandbox, error) {
	m.asked = o
	return nil, errors.New("not made")
}

// A box that is not called stays for the longest run of its task and half an hour. A shorter autostop is refused before
// anything is on the thread.
func TestAutoStop(t *testing.T) {
	for _, tt := range []struct {
		name     string
		limits   recipe.Limits
		variable string        // ARBE_PI_TIMEOUT of the agent's environment
		want     time.Duration // 0: refused
		refusal  string
	}{
		{"no limits", recipe.Limits{}, "", 72*time.Hour + 30*time.Minute, ""},
		{"a short run", recipe.Limits{Run: hours(1)}, "", 90 * time.Minute, ""},
		{"a longer autostop", recipe.Limits{Run: hours(1), AutoStop: hours(100)}, "", 100 * time.Hour, ""},
		{"a short autostop", recipe.Limits{AutoStop: hours(1)}, "", 0, "autostop 1h0m0s: want at least 72h30m0s"},
		{"no margin", recipe.Limits{Run: hours(1), AutoStop: hours(1)}, "", 0, "want at least 1h30m0s: the run may"},
		{"a variable", recipe.Limits{}, "2h", 150 * time.Minute, ""},
		{"a variable that outlasts", recipe.Limits{AutoStop: hours(73)}, "100h", 0, "want at least 100h30m0s"},
		{"the environment outranks it", recipe.Limits{Run: hours(1)}, "100h", 90 * time.Minute, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m, server := &maker{}, fakethread.New(t, nil)
			task := launch.Task{Thread: "t1", Run: "r1", Prompt: "do it", Harness: "pi"}
			task.Follow(recipe.Recipe{Limits: &tt.limits})
			if tt.variable != "" {
				task.Env = map[string]string{"ARBE_PI_TIMEOUT": tt.variable}
			}
			l := launch.Launcher{Provider: m, Client: healthy(t, server)}
			_, err := l.Launch(t.Context(), task)
			if err == nil || !strings.Contains(err.Error(), tt.refusal) || m.asked.AutoStop != tt.want {
				t.Errorf("the box would stay for %v, want %v; %v", m.asked.AutoStop, tt.want, err)
			}
			if refused := len(server.Entries()) == 0; refused != (tt.want == 0) {
				t.Errorf("the thread has %s", thread.Marshal(server.Entries()))
			}
		})
	}
}

func hours(n int) recipe.Duration { return recipe.Duration(time.Duration(n) * time.Hour) }

// The repository and the branch of a task outrank the repositories of its environment; the rest of that holds.
func TestFollowKeepsTheTasksRepository(t *testing.T) {
	r := recipe.Recipe{
		Image: "node:22", Repositories: []recipe.Repository{{Repo: "acme/web", Branch: "next", Path: "web"}},
		Setup: []recipe.Command{{Run: "make"}},
	}
	own := launch.Task{Box: sandbox.Options{Repo: "acme/api", Branch: "fix"}}
	own.Follow(r)
	if own.Box.Repo != "acme/api" || own.Box.Branch != "fix" || own.Make.Repositories != nil {
		t.Errorf("the task's repository: got %+v, %+v", own.Box, own.Make.Repositories)
	}
	if own.Box.Image != "node:22" || len(own.Make.Setup) != 1 {
		t.Errorf("the rest of the environment: got %+v, %+v", own.Box, own.Make)
	}
	var none launch.Task
	none.Follow(r)
	if len(none.Make.Repositories) != 1 || none.Make.Repositories[0].Repo != "acme/web" {
		t.Errorf("the environment's repository: got %+v", none.Make.Repositories)
	}
}
