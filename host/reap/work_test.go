package reap

import (
	"testing"

	"arbe.0sk.ar/runner/host/sandbox"
	"arbe.0sk.ar/runner/thread"
)

// A push saves the first repository, a copy back the folders; the rest is looked at.
func TestUnsavedTrees(t *testing.T) {
	pushed := &thread.Pushed{Pushed: true}
	synced := &thread.Synced{}
	for _, tt := range []struct {
		name                  string
		repositories, folders string
		run                   thread.Run
		left                  string
		any                   bool
	}{
		{"one tree", "", "", thread.Run{}, "", true},
		{"one tree, pushed", "", "", thread.Run{Push: pushed}, "", false},
		{"one tree, copied back", "", "", thread.Run{Sync: synced}, "", false},
		{"one tree, not copied back", "", "", thread.Run{Sync: &thread.Synced{Error: "no"}}, "", true},
		{"two repositories", "a,b", "", thread.Run{}, "a,b", true},
		{"two repositories, pushed", "a,b", "", thread.Run{Push: pushed}, "b", true},
		{"a repository and a folder, pushed", "a", "f", thread.Run{Push: pushed}, "f", true},
		{"a repository and a folder, copied back", "a", "f", thread.Run{Sync: synced}, "a", true},
		{"both saved", "a", "f,g", thread.Run{Push: pushed, Sync: synced}, "", false},
	} {
		b := sandbox.Box{Labels: map[string]string{
			sandbox.LabelRepositories: tt.repositories, sandbox.LabelFolders: tt.folders,
		}}
		rest, any := unsavedTrees(b, tt.run)
		got := rest.Labels[sandbox.LabelRepositories] + rest.Labels[sandbox.LabelFolders]
		if got != tt.left || any != tt.any || b.Labels[sandbox.LabelRepositories] != tt.repositories {
			t.Errorf("%s: got %q, %v", tt.name, got, any)
		}
	}
}
