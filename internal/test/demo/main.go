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
	url, err := s.Serve()
	if err != nil {
		return err
	}
	threadID, err := s.Output("arbe", "thread", "new")
	if err != nil {
		return err
	}
	token, err := s.Output("arbe", "token", "mint", "--thread", threadID)
	if err != nil {
		return err
	}
	fmt.Println("$ export ARBE_THREAD_ID=$(arbe thread new) ARBE_STREAM_URL=" + url)
	fmt.Println("$ export ARBE_STREAM_TOKEN=$(arbe token mint --thread $ARBE_THREAD_ID)")
	fmt.Printf("$ arbe-pi-runner run -- %q &\n", stage.Task)
	fmt.Println("$ arbe thread tail $ARBE_THREAD_ID")
	s.Env = append(
		s.Env,
		"ARBE_THREAD_ID="+threadID,
		"ARBE_STREAM_URL="+url,
		"ARBE_STREAM_TOKEN="+token,
		"ARBE_HEARTBEAT=1s",
		"ARBE_AUTHOR_ID=you",
	)
	run := s.Command("arbe-pi-runner", "run", "--", stage.Task)
	var log strings.Builder
	run.Stderr = &log
	if err := run.Start(); err != nil {
		return err
	}
	tail := s.Command("arbe", "thread", "tail", threadID)
	tail.Stdout, tail.Stderr = os.Stdout, os.Stderr
	tailErr := tail.Run()
	if tailErr != nil {
		tailErr = errors.Join(fmt.Errorf("arbe thread tail: %w", tailErr), stage.End(run))
	}
	if err := run.Wait(); err != nil {
		return errors.Join(tailErr, fmt.Errorf("arbe-pi-runner: %w\n%s", err, log.String()))
	}
	if tailErr != nil {
		return tailErr
	}
	haiku, err := os.ReadFile(filepath.Join(s.Work, "haiku.txt"))
	fmt.Printf("\n$ cat haiku.txt\n%s", haiku)
	return err
}
