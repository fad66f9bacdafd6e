package folder_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"
	"time"

	"arbe.0sk.ar/runner/host/sandbox"
	"arbe.0sk.ar/runner/host/sandbox/local"
)

// BenchmarkScale copies a folder in, has half of it changed in the box, and merges. The figures are in docs/SANDBOX.md.
// Peak memory is of the whole process, which for daytona has the double in it, above what it was before.
func BenchmarkScale(b *testing.B) {
	for _, size := range []struct {
		name         string
		files, bytes int
	}{{"1000files", 1000, 100}, {"100000files", 100_000, 100}, {"1GiB", 16, 64 << 20}} {
		for name, provider := range map[string]func() sandbox.Provider{
			"local":   func() sandbox.Provider { return local.New(b.TempDir()) },
			"daytona": func() sandbox.Provider { return atDaytona(b) },
		} {
			b.Run(size.name+"/"+name, func(b *testing.B) {
				s := newScene(b, provider())
				random := rand.NewChaCha8([32]byte{})
				each := func(dir string, part int) {
					for i := range size.files / part {
						must(b, os.MkdirAll(fmt.Sprintf("%s/%d", dir, i/1000), 0o755))
						f, err := os.Create(fmt.Sprintf("%s/%d/%d", dir, i/1000, i))
						must(b, err)
						_, err = io.CopyN(f, random, int64(size.bytes))
						must(b, errors.Join(err, f.Close()))
					}
				}
				each(s.Path, 1)
				for b.Loop() {
					debug.FreeOSMemory()
					must(b, os.WriteFile("/proc/self/clear_refs", []byte("5"), 0)) // the peak begins anew
					before, began := peak(b), time.Now()
					s.copyIn(b)
					in, inTime := peak(b), time.Since(began)
					each(s.work(), 2)
					debug.FreeOSMemory()
					must(b, os.WriteFile("/proc/self/clear_refs", []byte("5"), 0))
					began = time.Now()
					res, err := s.Pull(b.Context(), s.box)
					must(b, err)
					b.ReportMetric(inTime.Seconds(), "s/in")
					b.ReportMetric(time.Since(began).Seconds(), "s/pull")
					b.ReportMetric(float64(in-before)/(1<<20), "MiB/in")
					b.ReportMetric(float64(peak(b)-before)/(1<<20), "MiB/pull")
					if res.Copied != size.files/2 {
						b.Errorf("copied %d", res.Copied)
					}
				}
			})
		}
	}
}

// peak is the most memory that this process has had, in bytes.
func peak(t testing.TB) int {
	t.Helper()
	data, err := os.ReadFile("/proc/self/status")
	must(t, err)
	_, rest, _ := bytes.Cut(data, []byte("VmHWM:"))
	kib, err := strconv.Atoi(strings.Fields(string(rest))[0])
	must(t, err)
	return kib << 10
}
