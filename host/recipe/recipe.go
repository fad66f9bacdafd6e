// Package recipe reads environments: how a box is made, written as YAML or JSON.
//
// Parse is strict. Unknown keys, wrong types and bad values are refused, all of them at once, each with its line, its
// column and the path of its key. docs/environment.schema.json describes the same keys for editors. What a schema can't
// express, such as a path twice, Parse alone refuses.
//
// A Recipe that Parse has returned is valid. Its JSON is canonical, and Parse reads it back as the same Recipe. The
// package reads no file and no variable: secrets are names here, and folders are paths.
//
// Runtimes are the providers of boxes that environments may name: their names, and what each of them has no box with.
//
// An environment of a house may be launched on any host, so Parse refuses paths of a host. ParseHost takes them: it is
// for an environment that is given to a launch as a file of that host.
package recipe

import (
	"time"

	"arbe.0sk.ar/runner/host/rows"
)

// Recipe is an environment: how a box is made. The zero value of a field stands for the provider's default.
type Recipe struct {
	Name         string            `json:"name,omitempty"`
	Runtime      string            `json:"runtime,omitempty"` // the provider of the box, a Runtime
	Image        string            `json:"image,omitempty"`   // of a registry; excludes Snapshot
	Snapshot     string            `json:"snapshot,omitempty"`
	Resources    *Resources        `json:"resources,omitempty"` // some runtimes size a box by its snapshot
	Target       string            `json:"target,omitempty"`    // the provider's region
	Repositories []Repository      `json:"repositories,omitempty"`
	Folders      []Folder          `json:"folders,omitempty"`
	Files        []File            `json:"files,omitempty"`
	Setup        []Command         `json:"setup,omitempty"`
	Env          map[string]string `json:"env,omitempty"`     // of all commands in the box
	Secrets      []rows.Binding    `json:"secrets,omitempty"` // that the agent gets as variables
	Limits       *Limits           `json:"limits,omitempty"`
	Volumes      []Volume          `json:"volumes,omitempty"`
}

// Resources are the size of a box.
type Resources struct {
	CPU    int `json:"cpu,omitempty"`    // cores
	Memory int `json:"memory,omitempty"` // GiB
	Disk   int `json:"disk,omitempty"`   // GiB
}

// Repository is a repository to clone. At most one of Branch, Tag and Commit is set; none is the default branch.
type Repository struct {
	Repo   string `json:"repo"` // org/repo on GitHub, or an address for git
	Branch string `json:"branch,omitempty"`
	Tag    string `json:"tag,omitempty"`
	Commit string `json:"commit,omitempty"` // all 40 or 64 digits
	Depth  int    `json:"depth,omitempty"`  // the commits to fetch; 0: all
	Path   string `json:"path"`             // below the workspace. Parse fills in the repository's name
}

// Folder is a folder of the launching host, to copy into the box.
type Folder struct {
	Host    string   `json:"host"`
	Path    string   `json:"path"`              // below the workspace
	Access  string   `json:"access"`            // AccessReadOnly or AccessSync. Parse fills in the first
	Exclude []string `json:"exclude,omitempty"` // patterns as in .gitignore
}

// Values of Folder.Access.
const (
	AccessReadOnly = "readonly" // the box has a copy, and its changes stay there
	AccessSync     = "sync"     // changes are copied back after a completed run
)

// File is a file to make in the box. Its content is Content, or that of the launching host's file Host.
type File struct {
	Path    string  `json:"path"` // below the workspace, or below the home folder if it begins with ~/
	Content *string `json:"content,omitempty"`
	Host    string  `json:"host,omitempty"`
	Mode    string  `json:"mode"` // octal digits. Parse fills in 0600 below the home folder, else 0644

	Sensitive bool `json:"sensitive,omitempty"` // its content is a secret, and is kept off the thread
}

// Command is a shell command that runs in the working directory once the box has its repositories, folders and files.
type Command struct {
	Run     string            `json:"run"`
	Env     map[string]string `json:"env,omitempty"`
	Secrets []string          `json:"secrets,omitempty"` // those of Recipe.Secrets that the command gets as variables
	Timeout Duration          `json:"timeout,omitzero"`  // 0: 10 minutes
}

// Limits bound a run and its box.
type Limits struct {
	Run      Duration `json:"run,omitzero"`      // the agent is ended after it
	Idle     Duration `json:"idle,omitzero"`     // a live run whose agent has waited for so long ends
	AutoStop Duration `json:"autostop,omitzero"` // the provider stops a box that nobody has called for so long
}

// Volume is storage of the provider that outlives the box.
type Volume struct {
	Name string `json:"name"` // or its id
	Path string `json:"path"` // absolute in the box
}

// Duration is a time span that is written as Go writes it: 90s, 10m, 1h30m.
type Duration time.Duration

func (d Duration) String() string { return time.Duration(d).String() }

// MarshalText writes the duration as Parse reads it.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }
