package launch_test

import (
	"testing"

	"arbe.0sk.ar/runner/host/launch"
	"arbe.0sk.ar/runner/host/recipe"
	"arbe.0sk.ar/runner/host/sandbox"
)

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
