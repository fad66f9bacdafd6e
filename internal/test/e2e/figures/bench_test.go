package figures_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"arbe.0sk.ar/runner/internal/test/scene"

	"arbe.0sk.ar/runner/internal/procfs"
	"arbe.0sk.ar/runner/mirror"
	"arbe.0sk.ar/runner/session"
	"arbe.0sk.ar/runner/thread"
	"arbe.0sk.ar/runner/thread/client"
	"arbe.0sk.ar/runner/thread/redact"
)

// arbe is what the host's binary prints.
func arbe(b testing.TB, args ...string) string {
	b.Helper()
	out, err := exec.Command(filepath.Join(scene.Bin, "arbe"), args...).Output()
	if err != nil {
		b.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

// env is a runner's environment on a new thread of the server at url.
func env(b *testing.B, url string) (threadID, token string, env []string) {
	threadID = arbe(b, "thread", "new")
	token = arbe(b, "token", "mint", "--thread", threadID)
	return threadID, token, []string{
		"PATH=" + os.Getenv(
			"PATH",
		), "HOME=" + b.TempDir(), "ARBE_THREAD_ID=" + threadID, "ARBE_STREAM_URL=" + url, "ARBE_STREAM_TOKEN=" + token,
		"ARBE_RUN_ID=r1",
	}
}

// report reports the median and the 99th percentile of durations, in milliseconds.
func report(b *testing.B, name string, all []time.Duration) (p50 float64) {
	slices.Sort(all)
	ms := func(q int) float64 { return all[(len(all)-1)*q/100].Seconds() * 1000 }
	b.ReportMetric(ms(50), "ms-"+name+"-p50")
	b.ReportMetric(ms(99), "ms-"+name+"-p99")
	return ms(50)
}

func post(b *testing.B, cl *http.Client, url, token string, body []byte) {
	req, err := http.NewRequest(http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		b.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := cl.Do(req)
	if err != nil {
		b.Fatal(err)
	}
	defer resp.Body.Close()
	if out, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != http.StatusOK {
		b.Fatalf("%s %s %v", resp.Status, out, err)
	}
}

// sessionLines is a session of n lines of some 1.2 KB, with the mix of a run: prompts, replies, results.
func sessionLines(n int) []byte {
	rnd := rand.New(rand.NewPCG(1, 2))
	text := func(words int) string {
		var sb strings.Builder
		for range words {
			sb.WriteString("abcdefghijklmnopqrstuvwxyz"[rnd.IntN(13) : 13+rnd.IntN(13)])
			sb.WriteByte(" \n\""[min(2, rnd.IntN(20))%3])
		}
		return sb.String()
	}
	var out bytes.Buffer
	out.WriteString(
		`{"type":"session","version":3,"id":"bench-session","timestamp":"2026-01-01T00:00:00.000Z","cwd":"/w"}` + "\n",
	)
	parent := "null"
	for i := 1; i < n; i++ {
		var m any
		switch i % 4 {
		case 0:
			m = map[string]any{
				"role":      "user",
				"content":   []any{map[string]any{"type": "text", "text": text(20)}},
				"timestamp": 1795176542560,
			}
		case 1:
			m = map[string]any{
				"role": "assistant",
				"content": []any{
					map[string]any{"type": "text", "text": text(60)},
					map[string]any{
						"type":      "toolCall",
						"id":        fmt.Sprint("c", i),
						"name":      "bash",
						"arguments": map[string]any{"command": text(30)},
					},
				},
				"api":      "openai-completions",
				"provider": "scripted",
				"model":    "scripted-1",
				"usage": map[string]any{
					"input":       652,
					"output":      10,
					"totalTokens": 662,
					"cost":        map[string]any{"total": 0.000672},
				},
				"stopReason": "toolUse",
				"timestamp":  1795176542758,
			}
		default:
			m = map[string]any{
				"role":       "toolResult",
				"toolCallId": fmt.Sprint("c", i),
				"toolName":   "bash",
				"content":    []any{map[string]any{"type": "text", "text": text(120)}},
				"isError":    false,
				"timestamp":  1795176543009,
			}
		}
		body, err := json.Marshal(m)
		if err != nil {
			panic(err) // maps of strings marshal
		}
		id := fmt.Sprintf("%08x", i*2654435761%(1<<32))
		fmt.Fprintf(
			&out,
			`{"type":"message","id":"%s","parentId":%s,"timestamp":"2026-01-01T00:00:01.000Z","message":%s}`+"\n",
			id,
			parent,
			body,
		)
		parent = `"` + id + `"`
	}
	return out.Bytes()
}

// batches are a session's entries as arrays, as the mirror posts them.
func batches(content []byte) [][]byte {
	enc := mirror.Encoder{Namer: mirror.Namer{Dialect: session.Pi}, Redact: &redact.Redactor{}}
	var all [][]byte
	body := []byte("[")
	n, offset := 0, int64(0)
	for line := range bytes.Lines(content) {
		if len(body) > 1 {
			body = append(body, ',')
		}
		e, _ := enc.Encode(
			session.Line{Start: session.Position{Index: n, Offset: offset}, Data: bytes.TrimSuffix(line, []byte("\n"))},
		)
		body = e.AppendJSON(body)
		n, offset = n+1, offset+int64(len(line))
		if len(body) > 512<<10 {
			all, body = append(all, append(body, ']')), []byte("[")
		}
	}
	return append(all, append(body, ']'))
}

// BenchmarkLatency: from a line in the session file to its entry durable on the thread, against a bare post of the
// same entry. A proxy in this process sees both pass.
func BenchmarkLatency(b *testing.B) {
	target, err := url.Parse(scene.Server)
	if err != nil {
		b.Fatal(err)
	}
	acked := make(chan time.Time, 16)
	front := httputil.NewSingleHostReverseProxy(target)
	front.ModifyResponse = func(r *http.Response) error {
		body, err := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		acked <- time.Now()
		return err
	}
	proxy := httptest.NewServer(front)
	defer proxy.Close()
	id, token, environ := env(b, proxy.URL)
	path := filepath.Join(b.TempDir(), "s.jsonl")
	lines := slices.Collect(bytes.Lines(sessionLines(b.N + 2)))
	if err := os.WriteFile(path, lines[0], 0o600); err != nil {
		b.Fatal(err)
	}
	cmd := exec.Command(filepath.Join(scene.Bin, "arbe-pi-runner"), "mirror", "--follow", "--session", path)
	cmd.Env = environ
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill() }() // where the benchmark fails before its end
	<-acked
	var followed, bare []time.Duration
	cl := proxy.Client()
	bodies := batches(bytes.Join(lines, nil))
	var entries []json.RawMessage
	for _, body := range bodies {
		var part []json.RawMessage
		if err := json.Unmarshal(body, &part); err != nil {
			b.Fatal(err)
		}
		entries = append(entries, part...)
	}
	other, otherToken, _ := env(b, proxy.URL)
	for i := range b.N {
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
		if err != nil {
			b.Fatal(err)
		}
		began := time.Now()
		if _, err := f.Write(lines[i+1]); err != nil {
			b.Fatal(err)
		}
		if err := f.Close(); err != nil {
			b.Fatal(err)
		}
		followed = append(followed, (<-acked).Sub(began))

		began = time.Now()
		post(b, cl, proxy.URL+"/api/stream/arbe-thread-"+other, otherToken, entries[i+1])
		bare = append(bare, (<-acked).Sub(began))
	}
	_, _ = id, token
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		b.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		b.Fatal(err)
	}
	ratio := report(b, "line", followed) / report(b, "bare", bare)
	b.ReportMetric(ratio, "ratio-p50")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkMirror: a session of 100,000 lines, against a bare loop of bulk posts of the same bytes.
func BenchmarkMirror(b *testing.B) {
	content := sessionLines(100_000)
	path := filepath.Join(b.TempDir(), "s.jsonl")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		b.Fatal(err)
	}
	bodies := batches(content)
	var mirrored, bare time.Duration
	var rss int64
	for range b.N {
		_, _, environ := env(b, scene.Server)
		cmd := exec.Command(filepath.Join(scene.Bin, "arbe-pi-runner"), "mirror", "--session", path)
		cmd.Env = environ
		began := time.Now()
		peak, err := runPeak(cmd)
		if err != nil {
			b.Fatal(err)
		}
		mirrored += time.Since(began)
		rss = max(rss, peak)

		id, token, _ := env(b, scene.Server)
		cl := &http.Client{}
		began = time.Now()
		for _, body := range bodies {
			post(b, cl, scene.Server+"/api/stream/arbe-thread-"+id, token, body)
		}
		bare += time.Since(began)
	}
	mb := float64(len(content)) / 1e6 * float64(b.N)
	b.ReportMetric(mb/mirrored.Seconds(), "MB/s-mirror")
	b.ReportMetric(mb/bare.Seconds(), "MB/s-bare")
	b.ReportMetric(bare.Seconds()/mirrored.Seconds(), "ratio")
	b.ReportMetric(float64(rss)/(1<<20), "MiB-rss")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkHydrate rebuilds a session of 100,000 lines from its thread, and takes turns with two downloads of the same
// thread: of the bare bytes, and by the runner's own client, which writes each entry to a file.
func BenchmarkHydrate(b *testing.B) {
	content := sessionLines(100_000)
	dir := b.TempDir()
	path := filepath.Join(dir, "s.jsonl")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		b.Fatal(err)
	}
	id, token, environ := env(b, scene.Server)
	cmd := exec.Command(filepath.Join(scene.Bin, "arbe-pi-runner"), "mirror", "--session", path)
	cmd.Env = environ
	if out, err := cmd.CombinedOutput(); err != nil {
		b.Fatalf("%v\n%s", err, out)
	}
	cl := &client.Client{
		Base: thread.BaseURL(scene.Server), Thread: id, Token: func() (string, error) { return token, nil },
		HTTP: client.NewHTTP(),
	}
	var rebuilt, plain, byClient time.Duration
	var rss int64
	for range b.N {
		cmd := exec.Command(
			filepath.Join(scene.Bin, "arbe-pi-runner"),
			"hydrate",
			"--out",
			filepath.Join(dir, "out.jsonl"),
		)
		cmd.Env = environ
		began := time.Now()
		peak, err := runPeak(cmd)
		if err != nil {
			b.Fatal(err)
		}
		rebuilt += time.Since(began)
		rss = max(rss, peak)

		began = time.Now()
		req, err := http.NewRequest(http.MethodGet, scene.Server+"/api/stream/arbe-thread-"+id+"?offset=0", nil)
		if err != nil {
			b.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+token)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			b.Fatal(err)
		}
		f, err := os.Create(filepath.Join(dir, "plain"))
		if err == nil {
			_, err = io.Copy(f, resp.Body)
			err = errors.Join(err, f.Sync(), f.Close(), resp.Body.Close())
		}
		if err != nil {
			b.Fatal(err)
		}
		plain += time.Since(began)

		began = time.Now()
		if f, err = os.Create(filepath.Join(dir, "entries")); err != nil {
			b.Fatal(err)
		}
		out := bufio.NewWriterSize(f, 256<<10)
		_, err = cl.Read(b.Context(), "0", false, func(e thread.Entry) error {
			_, err := out.Write(append(e.AppendJSON(out.AvailableBuffer()), '\n'))
			return err
		})
		if err = errors.Join(err, out.Flush(), f.Sync(), f.Close()); err != nil {
			b.Fatal(err)
		}
		byClient += time.Since(began)
	}
	mb := float64(len(content)) / 1e6 * float64(b.N)
	b.ReportMetric(mb/rebuilt.Seconds(), "MB/s-rebuilt")
	b.ReportMetric(mb/plain.Seconds(), "MB/s-plain")
	b.ReportMetric(mb/byClient.Seconds(), "MB/s-client")
	b.ReportMetric(rebuilt.Seconds()/plain.Seconds(), "ratio")
	b.ReportMetric(rebuilt.Seconds()/byClient.Seconds(), "ratio-client")
	b.ReportMetric(float64(rss)/(1<<20), "MiB-rss")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkIdle: what a runner costs while its agent is silent: a share of a core, and memory.
func BenchmarkIdle(b *testing.B) {
	for range b.N {
		dir := b.TempDir()
		agent := filepath.Join(dir, "agent")
		if err := os.WriteFile(agent, []byte("#!/bin/sh\nexec sleep 120\n"), 0o700); err != nil {
			b.Fatal(err)
		}
		_, _, environ := env(b, scene.Server)
		cmd := exec.Command(filepath.Join(scene.Bin, "arbe-pi-runner"), "run", "--agent-bin", agent, "--", "hi")
		cmd.Env = environ
		if err := cmd.Start(); err != nil {
			b.Fatal(err)
		}
		time.Sleep(2 * time.Second) // it has begun
		// Of keeper and worker. They share most of the program's pages, which the sum of their sizes has twice and
		// their proportional sizes once.
		used := func() (cpu time.Duration, rss, pss int64) {
			for _, pid := range scene.RunnerPIDs(cmd.Process.Pid) {
				st, err := procfs.Read(pid)
				if err != nil {
					b.Fatal(err)
				}
				var kib int64
				rollup, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
				if _, after, ok := strings.Cut(string(rollup), "\nPss:"); err == nil && ok {
					_, err = fmt.Sscan(after, &kib)
				}
				if err != nil {
					b.Fatal(err)
				}
				cpu, rss, pss = cpu+st.CPU, rss+st.RSS, pss+kib<<10
			}
			return cpu, rss, pss
		}
		before, _, _ := used()
		began := time.Now()
		time.Sleep(20 * time.Second) // the measured time
		after, rss, pss := used()
		b.ReportMetric(100*(after-before).Seconds()/time.Since(began).Seconds(), "%-core")
		b.ReportMetric(float64(rss)/(1<<20), "MiB-rss")
		b.ReportMetric(float64(pss)/(1<<20), "MiB-pss")
		b.ReportMetric(0, "ns/op")
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			b.Fatal(err)
		}
		if err := cmd.Wait(); cmd.ProcessState == nil {
			b.Fatal(err)
		}
	}
}
