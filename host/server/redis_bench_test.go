package server_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net"
	"os/exec"
	"testing"
	"time"

	"arbe.0sk.ar/runner/internal/test/port"
)

// BenchmarkRedis appends the entries of BenchmarkAppend to as many Redis Streams, by the same client, with appendfsync
// always: what is acknowledged is synced, as here. Redis looks for no ids, checks no JSON and no tokens. It is skipped
// where redis-server is not installed.
func BenchmarkRedis(b *testing.B) {
	redis, err := exec.LookPath("redis-server")
	if err != nil {
		b.Skip("redis-server is not installed")
	}
	for _, writers := range []int{1, 16, 64} {
		b.Run(fmt.Sprintf("writers=%d", writers), func(b *testing.B) {
			for range b.N {
				redisAppends(b, redis, writers)
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}

func redisAppends(b *testing.B, redis string, writers int) {
	addr, err := net.ResolveTCPAddr("tcp", port.Reserve(b))
	if err != nil {
		b.Fatal(err)
	}
	cmd := exec.Command(redis, "--port", fmt.Sprint(addr.Port), "--bind", "127.0.0.1", "--dir", b.TempDir(), "--save",
		"", "--appendonly", "yes",
		"--appendfsync", "always", "--logfile", "/dev/null", "--daemonize", "no")
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill() // it has nothing to lose
		_ = cmd.Wait()
	}()
	for began := time.Now(); ; time.Sleep(10 * time.Millisecond) { // until it is there
		conn, err := net.Dial("tcp", addr.String())
		if err == nil {
			_ = conn.Close()
			break
		}
		if time.Since(began) > 10*time.Second {
			b.Fatal(err)
		}
	}
	r := rand.New(rand.NewPCG(1, 1))
	texts := make([][]byte, 512)
	for i := range texts {
		texts[i] = kilobyte(r, "0123456789012345")
	}
	began := time.Now()
	took, err := loadOf(addr.String(), writers, func(int) bool { return time.Since(began) < 5*time.Second },
		func(buf []byte, _ int) []byte {
			name, text := fmt.Sprint("arbe-thread-t", r.IntN(benchThreads)), texts[r.IntN(len(texts))]
			buf = fmt.Appendf(
				buf,
				"*5\r\n$4\r\nXADD\r\n$%d\r\n%s\r\n$1\r\n*\r\n$1\r\ne\r\n$%d\r\n",
				len(name),
				name,
				len(text),
			)
			return append(append(buf, text...), "\r\n"...)
		}, func(answer []byte) bool {
			return bytes.HasPrefix(answer, []byte("$")) && bytes.HasSuffix(answer, []byte("\r\n"))
		})
	if err != nil {
		b.Fatal(err)
	}
	percentiles(b, took, "")
	b.ReportMetric(float64(len(took))/time.Since(began).Seconds(), "appends/s")
}
