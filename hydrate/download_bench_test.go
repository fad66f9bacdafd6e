package hydrate_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"arbe.0sk.ar/runner/hydrate"
	"arbe.0sk.ar/runner/mirror"
	"arbe.0sk.ar/runner/session"
	"arbe.0sk.ar/runner/thread"
	"arbe.0sk.ar/runner/thread/client"
	"arbe.0sk.ar/runner/thread/redact"
)

// BenchmarkDownload rebuilds a session of 100,000 lines from its thread, and takes turns with two downloads of the same
// thread: one by the same client, which writes each entry to a file, and one of the bare bytes. The server is in the
// same process and answers from memory. cpu-ratio is of the processor time, which a busy machine changes less.
func BenchmarkDownload(b *testing.B) {
	body, size := longThread(b, 100_000)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Stream-Up-To-Date", "true")
		_, _ = w.Write(body) // the reader notices what is missing
	}))
	defer server.Close()
	cl := &client.Client{
		Base: server.URL, Thread: "t", Token: func() (string, error) { return "", nil }, HTTP: client.NewHTTP(),
	}
	dir := b.TempDir()
	rebuild := func() error {
		r := &hydrate.Rebuilder{Dialect: session.Pi, TempDir: dir}
		_, err := cl.Read(b.Context(), "0", false, func(e thread.Entry) error {
			return r.Add(hydrate.Parse(e, session.Pi))
		})
		if err == nil {
			_, err = r.Write(filepath.Join(dir, "s.jsonl"), "", time.Now())
		}
		return errors.Join(err, r.Close())
	}
	byClient := func(f io.Writer) error {
		out := bufio.NewWriterSize(f, 256<<10)
		_, err := cl.Read(b.Context(), "0", false, func(e thread.Entry) error {
			_, err := out.Write(append(e.AppendJSON(out.AvailableBuffer()), '\n'))
			return err
		})
		return errors.Join(err, out.Flush())
	}
	bare := func(f io.Writer) error {
		resp, err := http.Get(server.URL)
		if err != nil {
			return err
		}
		_, err = io.Copy(f, resp.Body)
		return errors.Join(err, resp.Body.Close())
	}
	toFile := func(download func(io.Writer) error) func() error {
		return func() error {
			f, err := os.Create(filepath.Join(dir, "plain"))
			if err != nil {
				return err
			}
			return errors.Join(download(f), f.Sync(), f.Close())
		}
	}
	ways := []func() error{rebuild, toFile(byClient), toFile(bare)}
	var wall, cpu [3]time.Duration
	for b.Loop() {
		for i, way := range ways {
			began, before := time.Now(), processorTime(b)
			if err := way(); err != nil {
				b.Fatal(err)
			}
			wall[i] += time.Since(began)
			cpu[i] += processorTime(b) - before
		}
	}
	b.ReportMetric(float64(size)*float64(b.N)/1e6/wall[0].Seconds(), "MB/s")
	b.ReportMetric(float64(cpu[0].Milliseconds())/float64(b.N), "cpu-ms")
	b.ReportMetric(wall[0].Seconds()/wall[1].Seconds(), "ratio-client")
	b.ReportMetric(cpu[0].Seconds()/cpu[1].Seconds(), "cpu-ratio-client")
	b.ReportMetric(wall[0].Seconds()/wall[2].Seconds(), "ratio-bare")
	b.ReportMetric(cpu[0].Seconds()/cpu[2].Seconds(), "cpu-ratio-bare")
	b.ReportMetric(0, "ns/op")
}

// processorTime returns the processor time of this process so far.
func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// longThread returns a thread of one session of pi as a server sends it, and the size of the session file: prompts,
// replies with a tool call, and tools' results.
func longThread(b *testing.B, lines int) (body []byte, size int) {
	b.Helper()
	words := strings.Repeat("abc efghi klm opqrst \"vwx\"\n", 30)
	enc := mirror.Encoder{Namer: mirror.Namer{Dialect: session.Pi}, Redact: &redact.Redactor{}}
	var out bytes.Buffer
	add := func(i int, line string) {
		size += len(line) + 1
		e, _ := enc.Encode(session.Line{Start: session.Position{Index: i}, Data: []byte(line)})
		out.Write(append(e.AppendJSON(nil), '\n'))
	}
	add(0, header)
	for i := 1; i < lines; i++ {
		text := func(words string) map[string]any { return map[string]any{"type": "text", "text": words} }
		m := map[string]any{"role": "user", "content": []any{text(words[:120])}, "timestamp": 1795176542560}
		switch i % 4 {
		case 1:
			call := map[string]any{
				"type": "toolCall", "id": fmt.Sprint("c", i), "name": "bash",
				"arguments": map[string]any{"command": words[:180]},
			}
			m["role"], m["content"], m["stopReason"] = "assistant", []any{text(words[:360]), call}, "toolUse"
			m["provider"], m["model"], m["api"] = "scripted", "scripted-1", "openai-completions"
			m["usage"] = map[string]any{
				"input": 652, "output": 10, "totalTokens": 662,
				"cost": map[string]any{"total": 0.1},
			}
		case 2, 3:
			m["role"], m["content"] = "toolResult", []any{text(words[:720])}
			m["toolCallId"], m["toolName"], m["isError"] = fmt.Sprint("c", i-1), "bash", false
		}
		content, err := json.Marshal(m)
		if err != nil {
			b.Fatal(err)
		}
		add(i, message(fmt.Sprintf("e%d", i), fmt.Sprintf("e%d", i-1), string(content)))
	}
	return out.Bytes(), size
}
