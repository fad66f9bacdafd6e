package arbe

import (
	"os"
	"regexp"
	"runtime/debug"
	"testing"
)

func TestDescribe(t *testing.T) {
	const hash = "f70a7b060c2ab21e6b7a0c5ee0d5c1f1f3fbb8b1"
	info := func(version string, settings ...debug.BuildSetting) *debug.BuildInfo {
		return &debug.BuildInfo{Main: debug.Module{Version: version}, Settings: settings}
	}
	revision := debug.BuildSetting{Key: "vcs.revision", Value: hash}
	modified := debug.BuildSetting{Key: "vcs.modified", Value: "true"}
	for _, tt := range []struct {
		name, version, commit string
		info                  *debug.BuildInfo
		want                  string
	}{
		{"make", "0.1.0", hash, info("(devel)"), "0.1.0+f70a7b060c2a"},
		{"make, of changed files", "0.1.0", hash + ".dirty", info("(devel)"), "0.1.0+f70a7b060c2a.dirty"},
		{"make, between releases", "0.2.0-dev", hash, info(""), "0.2.0-dev+f70a7b060c2a"},
		{"make, without git", "0.1.0", "", info("(devel)"), "0.1.0"},
		{"go build", "0.1.0", "", info("v0.0.0-20261124-f70a7b060c2a", revision), "0.1.0+f70a7b060c2a"},
		{"go build, of changed files", "0.1.0", "", info("", revision, modified), "0.1.0+f70a7b060c2a.dirty"},
		{"go install, of a release", "0.1.0", "", info("v0.1.0"), "0.1.0"},
		{
			"go install, of a commit", "0.2.0-dev", "", info("v0.1.1-0.20261124013300-f70a7b060c2a"),
			"0.1.1-0.20261124013300-f70a7b060c2a",
		},
		{"no information", "0.1.0", "", nil, "0.1.0"},
	} {
		if got := describe(tt.version, tt.commit, tt.info).String(); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
}

// TestVersion holds that VERSION is a semantic version, and that CHANGELOG.md begins with its section.
func TestVersion(t *testing.T) {
	m := regexp.MustCompile(`^(\d+\.\d+\.\d+)(-dev)?\n$`).FindStringSubmatch(number)
	if m == nil {
		t.Fatalf("VERSION is %q: want a release, or the next one with -dev", number)
	}
	changes, err := os.ReadFile("CHANGELOG.md")
	if err != nil {
		t.Fatal(err)
	}
	first := regexp.MustCompile(`(?m)^## (.*)$`).FindStringSubmatch(string(changes))
	if first == nil || first[1] != m[1] {
		t.Errorf("VERSION is %s, and CHANGELOG.md begins with %q: want ## %s", m[0], first, m[1])
	}
}
