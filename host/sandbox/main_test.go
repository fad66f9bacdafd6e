package sandbox_test

import (
	"context"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"strings"
	"testing"
	"time"

	"arbe.0sk.ar/runner/internal/test/surroundings"
)

// TestMain lets nobody talk to the world, and checks that goroutines and children end with the tests.
func TestMain(m *testing.M) {
	surroundings.Enter()
	http.DefaultTransport = &http.Transport{DialContext: dialLoopback}
	before := runtime.NumGoroutine()
	code := m.Run()
	if f := flag.Lookup("test.fuzz"); f != nil && f.Value.String() != "" {
		os.Exit(code) // the fuzzer has children of its own
	}
	for end := time.Now().Add(5 * time.Minute); code == 0; time.Sleep(10 * time.Millisecond) { // between two looks
		kids, more := children(), runtime.NumGoroutine()-before
		if kids == "" && more <= 0 {
			break
		}
		if time.Now().After(end) {
			fmt.Fprintf(os.Stderr, "left: %d goroutines, children:%s\n", more, kids)
			_ = pprof.Lookup("goroutine").WriteTo(os.Stderr, 1)
			code = 1
		}
	}
	os.Exit(code)
}

func dialLoopback(ctx context.Context, network, address string) (net.Conn, error) {
	host, _, err := net.SplitHostPort(address)
	if ip := net.ParseIP(host); err != nil || ip == nil || !ip.IsLoopback() {
		return nil, fmt.Errorf("a test may not talk to %s", address)
	}
	return new(net.Dialer).DialContext(ctx, network, address)
}

// children are the processes that are ours. The first process of a PID namespace gets all orphans: where that is this
// one, those that have ended do not count.
func children() string {
	var list strings.Builder
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, file := range stats {
		line := read(file)
		if f := strings.Fields(line[strings.LastIndexByte(line, ')')+1:]); len(f) > 1 &&
			f[1] == fmt.Sprint(os.Getpid()) && (f[0] != "Z" || os.Getpid() != 1) {
			fmt.Fprintf(&list, " %s", line[:strings.LastIndexByte(line, ')')+1])
		}
	}
	return list.String()
}

// transport is one whose connections end with the test.
func transport(t *testing.T) http.RoundTripper {
	tr := &http.Transport{DialContext: dialLoopback}
	t.Cleanup(tr.CloseIdleConnections)
	return tr
}
