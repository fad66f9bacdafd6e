package server_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"arbe.0sk.ar/runner/host/daemon"
	"arbe.0sk.ar/runner/host/log"
	"arbe.0sk.ar/runner/host/log/jetstream"
	"arbe.0sk.ar/runner/internal/test/natsserver"
	"arbe.0sk.ar/runner/internal/test/surroundings"
	"arbe.0sk.ar/runner/thread"
)

// TestMain makes this program a server, too, so that what is measured is not in the process that measures.
func TestMain(m *testing.M) {
	if os.Getenv("ARBE_BENCH_SERVE") == "" {
		surroundings.Enter()
		os.Exit(m.Run())
	}
	debug.SetGCPercent(300) // as arbe serve does
	cfg := daemon.Config{
		Addr:    "127.0.0.1:0",
		Data:    daemon.Data(os.Getenv("ARBE_BENCH_SERVE")),
		Secrets: [][]byte{secret},
		Debug:   os.Getenv("ARBE_BENCH_DEBUG"),
		Logger:  slog.New(slog.DiscardHandler),
	}
	if url := os.Getenv("ARBE_BENCH_NATS"); url != "" {
		cfg.NATS = &jetstream.Config{URL: url, Replicas: 1, AllowUnsafe: true, Logger: cfg.Logger}
	}
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // it ends with who measures
		stop()
	}()
	if err := daemon.Serve(ctx, cfg, func(url string) { fmt.Println(url) }); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// benchServer is a server in a process of its own.
type benchServer struct {
	url string
	cmd *exec.Cmd
}

func startServer(b testing.TB, engine string) *benchServer {
	return startServerBy(b, engine, exec.Command(os.Args[0]))
}

// startServerBy is startServer with a command that runs this program.
func startServerBy(b testing.TB, engine string, cmd *exec.Cmd) *benchServer {
	cmd.Env = slices.Concat(os.Environ(), []string{"ARBE_BENCH_SERVE=" + b.TempDir()}, cmd.Env)
	if engine == "nats" {
		s, err := natsserver.Start(b.TempDir())
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { natsserver.Stop(s) })
		cmd.Env = append(cmd.Env, "ARBE_BENCH_NATS="+s.ClientURL())
	}
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := errors.Join(stdin.Close(), cmd.Wait()); err != nil {
			b.Error(err)
		}
	})
	url, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		b.Fatal(err)
	}
	return &benchServer{strings.TrimSpace(url), cmd}
}

// rss is the server's memory, in MiB.
func (s *benchServer) rss(b testing.TB) float64 {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.cmd.Process.Pid))
	if err != nil {
		b.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), "VmRSS:")
	var kib float64
	if _, err := fmt.Sscan(rest, &kib); err != nil {
		b.Fatal(err)
	}
	return kib / 1024
}

// benchWriter is a client that costs next to nothing, so that what is measured is the server: one connection, requests
// written as they are, and of an answer only the status and the length read.
type benchWriter struct {
	conn net.Conn
	in   *bufio.Reader
	buf  []byte
}

func newWriter(b testing.TB, url string) *benchWriter {
	conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = conn.Close() })
	return &benchWriter{conn: conn, in: bufio.NewReaderSize(conn, 64<<10)}
}

// request sends a request, whose head lacks its end, and returns the size of the answer's body.
func (w *benchWriter) request(head string, body []byte) (int, error) {
	w.buf = append(append(w.buf[:0], head...), "Content-Length: "...)
	w.buf = append(strconv.AppendInt(w.buf, int64(len(body)), 10), "\r\n\r\n"...)
	if _, err := w.conn.Write(append(w.buf, body...)); err != nil {
		return 0, err
	}
	length, status := -1, ""
	for {
		line, err := w.in.ReadSlice('\n')
		if err != nil {
			return 0, err
		}
		if status == "" {
			status = string(line)
		}
		if rest, is := bytes.CutPrefix(line, []byte("Content-Length: ")); is {
			if length, err = strconv.Atoi(string(bytes.TrimSpace(rest))); err != nil {
				return 0, err
			}
		}
		if len(line) == 2 {
			break
		}
	}
	if !strings.HasPrefix(status, "HTTP/1.1 200") {
		return 0, errors.New(status)
	}
	if length >= 0 {
		return w.in.Discard(length)
	}
	for total := 0; ; { // in chunks
		line, err := w.in.ReadSlice('\n')
		if err != nil {
			return total, err
		}
		n, err := strconv.ParseInt(strings.TrimSpace(string(line)), 16, 64)
		if err != nil {
			return total, err
		}
		if _, err := w.in.Discard(int(n) + 2); err != nil || n == 0 {
			return total, err
		}
		total += int(n)
	}
}

// listen asks for events, and returns when all that is there has come.
func (w *benchWriter) listen(head string) error {
	if _, err := w.conn.Write([]byte(head + "\r\n")); err != nil {
		return err
	}
	return w.await("upToDate")
}

// await reads to the end of a line that has some text in it.
func (w *benchWriter) await(text string) error {
	for {
		line, err := w.in.ReadSlice('\n')
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return err
		}
		if bytes.Contains(line, []byte(text)) {
			return nil
		}
	}
}

func head(b testing.TB, method string, threadNo int) string {
	id := fmt.Sprint("t", threadNo)
	return method + " /api/stream/arbe-thread-" + id + " HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + writer(
		b,
		id,
	) + "\r\nContent-Type: application/json\r\n"
}

// kilobyte is an entry of 1 KB, of which some compresses and some does not, as of a transcript.
func kilobyte(r *rand.Rand, id string) []byte {
	text := make([]byte, 0, 920)
	for len(text) < 900 {
		text = strconv.AppendUint(append(text, " word "...), r.Uint64(), 36)
	}
	return fmt.Appendf(
		nil,
		`{"id":%q,"ts":"2026-01-01T00:00:00.000Z","payload":{"type":"chat","text":"%s"}}`,
		id,
		text,
	)
}

// during calls f as often as it can, from several writers, for some time. It returns the calls a second and the
// duration of each.
func during(b *testing.B, writers int, f func(w, i int) error) (perSecond float64, took []time.Duration) {
	var all sync.WaitGroup
	lat := make([][]time.Duration, writers)
	var failed atomic.Bool
	began := time.Now()
	for w := range writers {
		all.Add(1)
		go func() {
			defer all.Done()
			for i := 0; time.Since(began) < 5*time.Second && !failed.Load(); i++ {
				t := time.Now()
				if err := f(w, i); err != nil {
					failed.Store(true)
					b.Error(err)
				}
				lat[w] = append(lat[w], time.Since(t))
			}
		}()
	}
	all.Wait()
	took = slices.Concat(lat...)
	return float64(len(took)) / time.Since(began).Seconds(), took
}

func percentiles(b *testing.B, took []time.Duration, name string) {
	slices.Sort(took)
	for _, q := range []int{50, 99} {
		b.ReportMetric(took[(len(took)-1)*q/100].Seconds()*1000, fmt.Sprintf("ms-p%d%s", q, name))
	}
}

const benchThreads = 1000

// BenchmarkAppend appends entries of 1 KB, one a request, on 1,000 threads: over HTTP, in process, and into Pebble
// called directly, with the two keys that an entry has.
func BenchmarkAppend(b *testing.B) {
	for _, engine := range []string{"pebble", "nats"} {
		for _, writers := range []int{1, 16, 64} {
			b.Run(fmt.Sprintf("%s/writers=%d", engine, writers), func(b *testing.B) {
				for range b.N {
					appends(b, engine, writers)
				}
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}

// entries makes requests that append an entry each to one of 1,000 threads.
func entries(b *testing.B) func(buf []byte, n int) []byte {
	heads, texts := make([]string, benchThreads), make([][]byte, 512)
	for i := range heads {
		heads[i] = head(b, "POST", i)
	}
	r := rand.New(rand.NewPCG(1, 1))
	for i := range texts { // made beforehand: what is measured is the server
		texts[i] = kilobyte(r, "0123456789012345")
	}
	return func(buf []byte, n int) []byte {
		text := texts[r.IntN(len(texts))]
		buf = append(append(buf, heads[r.IntN(benchThreads)]...), "Content-Length: "...)
		buf = append(strconv.AppendInt(buf, int64(len(text)), 10), "\r\n\r\n"...)
		buf = append(buf, text...)
		copy(buf[len(buf)-len(text)+len(`{"id":"`):], fmt.Sprintf("%016d", n))
		return buf
	}
}

func appends(b *testing.B, engine string, writers int) {
	s := startServer(b, engine)
	began := time.Now()
	took, err := load(
		strings.TrimPrefix(s.url, "http://"),
		writers,
		func(int) bool { return time.Since(began) < 5*time.Second },
		entries(b),
	)
	if err != nil {
		b.Fatal(err)
	}
	http := float64(len(took)) / time.Since(began).Seconds()
	percentiles(b, took, "")
	b.ReportMetric(http, "appends/s-http")
	b.ReportMetric(s.rss(b), "MiB-server")
	rnd := make([]*rand.Rand, writers)
	for w := range rnd {
		rnd[w] = rand.New(rand.NewPCG(uint64(w), 1))
	}

	streams := log.New(engines[engine](b))
	local, _ := during(b, writers, func(w, i int) error {
		e, err := thread.ParseEntry(kilobyte(rnd[w], fmt.Sprintf("w%d.%d", w, i)))
		if err == nil {
			_, err = streams.Append(
				context.Background(),
				fmt.Sprint("t", rnd[w].IntN(benchThreads)),
				[]thread.Entry{e},
			)
		}
		return err
	})
	b.ReportMetric(local, "appends/s-in-process")
	if err := streams.Close(); err != nil {
		b.Fatal(err)
	}
	if engine != "pebble" {
		return
	}
	db, err := pebble.Open(
		b.TempDir(),
		&pebble.Options{FormatMajorVersion: pebble.FormatNewest, MemTableSize: 64 << 20, Logger: noLog{}},
	)
	if err != nil {
		b.Fatal(err)
	}
	direct, _ := during(b, writers, func(w, i int) error {
		batch := db.NewBatch()
		defer batch.Close()
		id := fmt.Sprintf("w%d.%d", w, i)
		key := fmt.Appendf(nil, "%04d/%016d", rnd[w].IntN(benchThreads), i)
		return errors.Join(
			batch.Set(key, kilobyte(rnd[w], id), nil),
			batch.Set(append([]byte("i"), key...), key[:8], nil),
			batch.Commit(pebble.Sync),
		)
	})
	b.ReportMetric(direct, "appends/s-pebble-alone")
	b.ReportMetric(http/direct, "of-pebble-alone")
	if err := db.Close(); err != nil {
		b.Fatal(err)
	}
}

// noLog drops what Pebble logs.
type noLog struct{}

func (noLog) Infof(string, ...any)           {}
func (noLog) Errorf(string, ...any)          {}
func (noLog) Fatalf(format string, a ...any) { panic(fmt.Sprintf(format, a...)) }

// BenchmarkReplay reads threads of 50,000 entries of 1 KB from the start.
func BenchmarkReplay(b *testing.B) {
	for _, engine := range []string{"pebble", "nats"} {
		b.Run(engine, func(b *testing.B) {
			s := startServer(b, engine)
			fill(b, s.url, 1, 50_000)
			c, h := newWriter(b, s.url), strings.Replace(head(b, "GET", 1), " HTTP", "?offset=0 HTTP", 1)
			read, began := 0, time.Now()
			for b.Loop() {
				n, err := c.request(h, nil)
				if err != nil {
					b.Fatal(err)
				}
				read += n
			}
			b.ReportMetric(float64(read)/1e6/time.Since(began).Seconds(), "MB/s")
			b.ReportMetric(float64(b.N)*50_000/time.Since(began).Seconds(), "entries/s")
			b.ReportMetric(s.rss(b), "MiB-server")
		})
	}
}

// BenchmarkFanOut has 200 readers of one thread. It measures the time of an entry from its post to the last of them.
func BenchmarkFanOut(b *testing.B) {
	for _, engine := range []string{"pebble", "nats"} {
		b.Run(engine, func(b *testing.B) {
			const readers = 200
			s := startServer(b, engine)
			fill(b, s.url, 1, 1)
			got := make(chan struct{}, readers)
			for range readers {
				c := newWriter(b, s.url)
				h := strings.Replace(head(b, "GET", 1), " HTTP", "?live=sse&offset=now HTTP", 1)
				if err := c.listen(h); err != nil {
					b.Fatal(err)
				}
				go func() {
					for c.await("upToDate") == nil { // it is closed in the end
						got <- struct{}{}
					}
				}()
			}
			c, h, r := newWriter(b, s.url), head(b, "POST", 1), rand.New(rand.NewPCG(3, 3))
			var took []time.Duration
			for i := 0; b.Loop(); i++ {
				began := time.Now()
				if _, err := c.request(h, kilobyte(r, fmt.Sprint("live", i))); err != nil {
					b.Fatal(err)
				}
				for range readers {
					<-got
				}
				took = append(took, time.Since(began))
			}
			percentiles(b, took, "-to-all")
			b.ReportMetric(float64(b.N*readers)/b.Elapsed().Seconds(), "deliveries/s")
		})
	}
}

// BenchmarkThreads makes 100,000 threads of two entries, from 64 writers.
func BenchmarkThreads(b *testing.B) {
	for _, engine := range []string{"pebble", "nats"} {
		b.Run(engine, func(b *testing.B) {
			const threads, writers = 100_000, 64
			s := startServer(b, engine)
			var all sync.WaitGroup
			began := time.Now()
			for w := range writers {
				c, r := newWriter(b, s.url), rand.New(rand.NewPCG(uint64(w), 5))
				all.Add(1)
				go func() {
					defer all.Done()
					for t := w; t < threads; t += writers {
						h := head(b, "POST", t)
						for i := range 2 {
							if _, err := c.request(h, kilobyte(r, fmt.Sprint("e", i))); err != nil {
								b.Error(err)
								return
							}
						}
					}
				}()
			}
			all.Wait()
			b.ReportMetric(2*threads/time.Since(began).Seconds(), "appends/s")
			b.ReportMetric(s.rss(b), "MiB-server")
			c, took := newWriter(b, s.url), []time.Duration{}
			r := rand.New(rand.NewPCG(6, 6))
			for range 2000 {
				h := head(b, "GET", r.IntN(threads))
				began := time.Now()
				if _, err := c.request(h, nil); err != nil {
					b.Fatal(err)
				}
				took = append(took, time.Since(began))
			}
			percentiles(b, took, "-read-one")
			b.ReportMetric(0, "ns/op")
		})
	}
}
