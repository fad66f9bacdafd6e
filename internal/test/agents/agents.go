// Package agents finds the real agents that "make agents" has installed, and makes homes for them in which they talk
// to a scripted model server. It serves the demo and the tests.
package agents

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Cache is the folder that the agents are installed in: $ARBE_CACHE, else arbe-runner in the user's cache folder. The
// Makefile says the same.
func Cache() (string, error) {
	if dir := os.Getenv("ARBE_CACHE"); dir != "" {
		return dir, nil
	}
	dir, err := os.UserCacheDir()
	return filepath.Join(dir, "arbe-runner"), err
}

// Agent is an installed agent.
type Agent struct {
	Harness string // as harness names it: pi, codex or claude-code
	Version string
	Model   string // to ask for, where one has to be said
	KeyVar  string // the variable that holds the provider's key

	programs []string // that are in bin
	bin      string
	compiled string // where its Node keeps compiled code; a quarter of the CPU of a start of pi 0.78.0 goes without it
	// files are the agent's configuration, by their paths below its home folder.
	files func(modelURL string, retry int) map[string][]byte
}

// Find returns the agent of this harness and version.
func Find(harness, version string) (Agent, error) {
	a, known := map[string]Agent{"pi": pi, "codex": codex, "claude-code": claude}[harness]
	if !known {
		return a, fmt.Errorf("no agent is called %q", harness)
	}
	cache, err := Cache()
	if err != nil {
		return a, err
	}
	a.Version = version
	a.bin = filepath.Join(cache, harness+"-"+version, "node_modules", ".bin")
	a.compiled = filepath.Join(cache, harness+"-"+version, "compiled")
	for _, name := range a.programs {
		if _, err := os.Stat(filepath.Join(a.bin, name)); errors.Is(err, fs.ErrNotExist) {
			return a, fmt.Errorf("%s is not installed in %s: run make agents", name, a.bin)
		} else if err != nil {
			return a, err
		}
	}
	return a, nil
}

// Bin is the folder of the agent's programs.
func (a Agent) Bin() string { return a.bin }

// Home makes home a home folder in which the agent knows one provider, the server at modelURL. It tries a failed
// request again a few times; where the agent lets one say how soon, that is after retry milliseconds, then twice
// that, and so on.
func (a Agent) Home(home, modelURL string, retry int) error {
	for name, content := range a.files(modelURL, retry) {
		path := filepath.Join(home, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return err
		}
		if err := os.WriteFile(path, content, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// Env is an environment for the agent in home: PATH has it, what it needs and the system's tools.
func (a Agent) Env(home string) []string {
	return []string{
		"HOME=" + home, "PATH=" + a.bin + ":" + os.Getenv("PATH"), a.KeyVar + "=scripted-key-0001", "LANG=C.UTF-8",
		"NODE_COMPILE_CACHE=" + a.compiled,
	}
}

func indented(v any) []byte {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		panic(err) // our own shapes marshal
	}
	return b
}
