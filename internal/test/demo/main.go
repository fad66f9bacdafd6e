// Command demo shows one run: a real pi, asked for a file, in a folder of its own; its thread on a server on this
// machine; and a scripted model in place of a provider. "make demo" calls it with both binaries built and pi
// installed. It leaves nothing behind.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"arbe.0sk.ar/runner/internal/test/agents"
	"arbe.0sk.ar/runner/internal/test/demo/stage"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: demo BIN: the folder that has arbe and arbe-pi-runner")
		os.Exit(64)
	}
	os.Exit(stage.Main(demo, os.Args[1]))
}

func demo(ctx context.Context, bin string) (err error) {
	s, err := stage.New(ctx, bin)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	fmt.Println("$ arbe serve &")
	if _, err := s.Serve(); err != nil {
		return err
	}
	s.Env = append(s.Env, "ARBE_HEARTBEAT=1s", "ARBE_AUTHOR_ID=you")
	args := []string{"run", "--env", agents.KeyVar, "--dir", ".", "--sync"}
	for _, file := range []string{"models.json", "settings.json"} { // in place of a provider's key
		args = append(args, "--file", filepath.Join(s.Dir, ".pi", "agent", file)+":.pi/agent/"+file)
	}
	fmt.Printf("$ arbe %s \\\n    -- %q\n", strings.Join(args, " "), stage.Task)
	run := s.Command("arbe", append(args, "--", stage.Task)...)
	run.Stdout, run.Stderr = os.Stdout, os.Stdout
	if err := run.Run(); err != nil {
		return fmt.Errorf("arbe run: %w", err)
	}
	haiku, err := os.ReadFile(filepath.Join(s.Work, "haiku.txt"))
	fmt.Printf("\n$ cat haiku.txt\n%s", haiku)
	return err
}
