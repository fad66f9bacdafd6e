// Package arbe is the version of this source, and of the program that it is built into.
//
// The file VERSION has the number: of a release, or of the next one with "-dev" behind it. A build adds its commit as
// build metadata of semantic versioning: 0.1.0+f70a7b060c2a, and 0.1.0+f70a7b060c2a.dirty from changed files.
package arbe

import (
	_ "embed" // VERSION
	"runtime"
	"runtime/debug"
	"strings"
)

//go:embed VERSION
var number string

// commit is set by the linker: the hash of the commit, with dirty behind it where files differed from it.
var commit string

const (
	dirty = ".dirty"
	brief = 12 // characters of a commit, as in Go's pseudo-versions
)

// Build describes the running program.
type Build struct {
	Version  string `json:"version"`  // without the commit
	Commit   string `json:"commit"`   // "": not known
	Modified bool   `json:"modified"` // files differed from the commit
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

// This returns the running program's Build. A build by the Makefile has its commit from the linker, one by go build
// from Go. What go install fetched has no commit, and the version that it was fetched as.
func This() Build {
	info, _ := debug.ReadBuildInfo()
	return describe(strings.TrimSpace(number), commit, info)
}

// describe returns a Build of a version; commit is the linker's, info may be nil.
func describe(version, commit string, info *debug.BuildInfo) Build {
	b := Build{Version: version, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	b.Commit, b.Modified = strings.CutSuffix(commit, dirty)
	if b.Commit != "" || info == nil {
		return b
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Commit = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		}
	}
	if fetched, is := strings.CutPrefix(info.Main.Version, "v"); is && b.Commit == "" {
		b.Version = fetched
	}
	return b
}

// String returns the version with the commit, in the form of semantic versioning.
func (b Build) String() string {
	if b.Commit == "" {
		return b.Version
	}
	s := b.Version + "+" + b.Commit[:min(brief, len(b.Commit))]
	if b.Modified {
		s += dirty
	}
	return s
}
