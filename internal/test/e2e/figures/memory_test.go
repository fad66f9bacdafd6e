package figures_test

import (
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"arbe.0sk.ar/runner/internal/test/scene"
)

// BenchmarkRunMemory measures the most memory of a run, keeper and worker added up, whose agent writes 100,000 lines as
// fast as it can and then 1,000 in a second. ARBE_BEFORE is as in BenchmarkLoad.
func BenchmarkRunMemory(b *testing.B) {
	builds := map[string]string{"": scene.Bin}
	if before := os.Getenv("ARBE_BEFORE"); before != "" {
		builds["-before"] = before
	}
	self, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	sums := map[string]int64{}
	for range b.N {
		for name, dir := range builds {
			server := httptest.NewServer(&acks{})
			cmd := exec.Command(filepath.Join(dir, "arbe-pi-runner"), "run", "--agent-bin", self, "--", "hi")
			cmd.Env = []string{
				"PATH=" + os.Getenv("PATH"), "HOME=" + b.TempDir(), "ARBE_THREAD_ID=load", "ARBE_RUN_ID=r1",
				"ARBE_STREAM_URL=" + server.URL, "ARBE_STREAM_TOKEN=token-of-the-load", loadVar + "=1000 1000 100000",
			}
			peak, err := runPeak(cmd)
			server.CloseClientConnections()
			server.Close()
			if err != nil {
				b.Fatal(err)
			}
			sums[name] += peak
		}
	}
	for name, sum := range sums {
		b.ReportMetric(float64(sum)/float64(b.N)/(1<<20), fmt.Sprint("MiB-rss", name))
	}
	b.ReportMetric(0, "ns/op")
}
