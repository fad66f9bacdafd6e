// Package agents finds the real agents that "make agents" has installed, and makes homes for them in which they talk to a scripted model server.
// It serves the demo and the tests.
package agents

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Cache is the folder that the agents are installed in: $ARBE_CACHE, else arbe-runner in the user's cache folder. The Makefile says the same.
func Cache() (string, error) {
	if dir := os.Getenv("ARBE_CACHE"); dir != "" {
		return dir, nil
	}
	dir, err := os.UserCacheDir()
	return filepath.Join(dir, "arbe-runner"), err
}

// Pi is an installed pi and a Node that can run it.
type Pi struct {
	Version string
	bin     string // the folder that has both
}

// FindPi returns the pi of this version.
func FindPi(version string) (Pi, error) {
	cache, err := Cache()
	if err != nil {
		return Pi{}, err
	}
	bin := filepath.Join(cache, "pi-"+version, "node_modules", ".bin")
	for _, name := range []string{"pi", "node"} {
		if _, err := os.Stat(filepath.Join(bin, name)); errors.Is(err, fs.ErrNotExist) {
			return Pi{}, fmt.Errorf("%s is not installed in %s: run make agents", name, bin)
		} else if err != nil {
			return Pi{}, err
		}
	}
	return Pi{version, bin}, nil
}

// Model and KeyVar are what pi is configured with by Home: the model to ask for, and the variable that holds the provider's key.
const (
	Model  = "scripted/scripted-1"
	KeyVar = "SCRIPTED_API_KEY"
)

// Home makes home a home folder in which pi knows one provider, the server at modelURL, which costs a dollar per million tokens of input and two
// of output. A failed request is tried again after retry milliseconds, then twice that, then four times.
func (p Pi) Home(home, modelURL string, retry int) error {
	dir := filepath.Join(home, ".pi", "agent")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	models := map[string]any{"providers": map[string]any{"scripted": map[string]any{
		"baseUrl": modelURL + "/v1", "api": "openai-completions", "apiKey": "$" + KeyVar,
		"models": []any{map[string]any{
			"id": "scripted-1", "reasoning": true, "input": []string{"text", "image"}, "contextWindow": 128000, "maxTokens": 16000,
			"cost": map[string]any{"input": 1, "output": 2, "cacheRead": 0, "cacheWrite": 0},
		}},
	}}}
	settings := map[string]any{
		"defaultProvider": "scripted", "defaultModel": "scripted-1", "retry": map[string]any{"enabled": true, "maxRetries": 3, "baseDelayMs": retry},
	}
	for name, v := range map[string]any{"models.json": models, "settings.json": settings} {
		b, err := json.MarshalIndent(v, "", "  ")
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// Env is an environment for pi in home: PATH has pi, its Node and the system's tools.
func (p Pi) Env(home string) []string {
	return []string{"HOME=" + home, "PATH=" + p.bin + ":" + os.Getenv("PATH"), KeyVar + "=scripted-key-0001", "LANG=C.UTF-8"}
}
