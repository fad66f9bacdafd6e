package session_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"arbe.0sk.ar/runner/session"
)

// A Reader returns the lines of a file that an agent appends to, and a Decoder what each line is. A last line without a
// newline is not a line yet.
func ExampleReader() {
	dir, err := os.MkdirTemp("", "session-")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "session.jsonl")
	lines := `{"type":"session","version":3,"id":"s1","timestamp":"2026-01-01T00:00:00.000Z","cwd":"/work"}
{"type":"message","id":"a1","parentId":null,"timestamp":"2026-01-01T00:00:01Z","message":{"role":"user","content":"hi"}}
{"type":"message","id":"a2","parentId":"a1","timest`
	if err := os.WriteFile(path, []byte(lines), 0o600); err != nil {
		fmt.Println(err)
		return
	}

	reader := session.NewReader(path, session.Position{})
	defer reader.Close()
	decoder := session.Decoder{Dialect: session.Pi}
	for {
		line, err := reader.Next()
		if errors.Is(err, io.EOF) { // for now: call Next again when the file has grown
			break
		}
		if err != nil {
			fmt.Println(err)
			return
		}
		entry := decoder.Next(line.Data)
		switch entry.Kind {
		case session.Header:
			fmt.Println("session", entry.SessionID, "in", entry.Cwd)
		case session.User:
			fmt.Println("line", line.Start.Index, "the user:", entry.Text)
		}
	}
	fmt.Println("lines so far:", reader.Position().Index)
	// Output:
	// session s1 in /work
	// line 1 the user: hi
	// lines so far: 2
}
