package figures_test

import (
	"cmp"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"arbe.0sk.ar/runner/internal/test/scene"

	"arbe.0sk.ar/runner/thread"
	"arbe.0sk.ar/runner/thread/client"
)

// traffic is what passed through a front of the thread server.
type traffic struct {
	url            string
	requests       atomic.Int64
	up, down, gets atomic.Int64 // bytes of bodies; gets: requests
}

// counted counts the bytes that are read of a body.
type counted struct {
	io.ReadCloser
	n *atomic.Int64
}

func (c counted) Read(b []byte) (int, error) {
	n, err := c.ReadCloser.Read(b)
	c.n.Add(int64(n))
	return n, err
}

// newTraffic starts a front of the tests' thread server.
func newTraffic(t testing.TB) *traffic {
	t.Helper()
	to, err := url.Parse(scene.Server)
	if err != nil {
		t.Fatal(err)
	}
	var c traffic
	front := &httputil.ReverseProxy{
		FlushInterval: -1,
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(to)
			if r.Out.Body != nil {
				r.Out.Body = counted{r.Out.Body, &c.up}
			}
			c.requests.Add(1)
			if r.In.Method == http.MethodGet {
				c.gets.Add(1)
			}
		},
		ModifyResponse: func(r *http.Response) error {
			r.Body = counted{r.Body, &c.down}
			return nil
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
	}
	srv := httptest.NewServer(front)
	t.Cleanup(func() {
		srv.CloseClientConnections()
		srv.Close()
	})
	c.url = srv.URL
	return &c
}

// A resume in a new box reads the thread once in the box, and next to nothing on the host. ARBE_RESUME_MB is the size
// of the thread, 4 MB by default.
func TestFullResumeTraffic(t *testing.T) {
	mb, err := strconv.Atoi(cmp.Or(os.Getenv("ARBE_RESUME_MB"), "4"))
	if err != nil {
		t.Fatal(err)
	}
	h := scene.NewHost(t, scene.Say("One."), scene.Say("Two."))
	first, _ := h.Launch("--", "the first question")
	h.Ends(first.ThreadID)
	if got := h.Arbe("thread", "status", first.ThreadID); got != thread.StatusCompleted {
		t.Fatalf("the run is %s", got)
	}
	c := &client.Client{
		Base: thread.BaseURL(scene.Server), Thread: first.ThreadID,
		Token: client.StaticToken(h.Arbe("token", "mint", "--thread", first.ThreadID)),
	}
	text := strings.Repeat("word ", 200)
	for i := range mb {
		var batch []thread.Entry
		for j := range 1000 {
			batch = append(batch, thread.Entry{
				ID: fmt.Sprintf("chat.%d.%d", i, j), TS: "2026-01-01T00:00:00.000Z",
				// of another run: not pending, so the resume does not deliver it
				Payload: thread.Marshal(thread.Chat{Type: thread.TypeChat, Text: text, RunID: "r0"}),
			})
		}
		if _, err := c.Append(t.Context(), batch); err != nil {
			t.Fatal(err)
		}
	}
	host, box := newTraffic(t), newTraffic(t)
	cmd := h.Command(h.With("run", []string{"--thread", first.ThreadID, "--resume", "--", "the second question"})...)
	cmd.Env = append(cmd.Env, "ARBE_STREAM_URL="+host.url, "ARBE_BOX_STREAM_URL="+box.url)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	size := int64(mb) * 1_100_000
	t.Logf("a thread of %d MB: the host read %d bytes in %d requests, the box %d bytes in %d requests",
		size/1e6, host.down.Load(), host.gets.Load(), box.down.Load(), box.gets.Load())
	if host.down.Load() > 64<<10 || box.down.Load() > size*11/10 || box.down.Load() < int64(mb)*1_000_000 {
		t.Errorf("of %d bytes the host read %d, the box %d", size, host.down.Load(), box.down.Load())
	}
}

// A run that uploads reads none of its own lines: 1 MB a second, for ARBE_UPLOAD_SECONDS, 3 by default.
func TestFullUploadTraffic(t *testing.T) {
	seconds, err := strconv.Atoi(cmp.Or(os.Getenv("ARBE_UPLOAD_SECONDS"), "3"))
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	box := newTraffic(t)
	id := arbe(t, "thread", "new")
	cmd := exec.Command(filepath.Join(scene.Bin, "arbe-pi-runner"), "run", "--agent-bin", self, "--", "hi")
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "ARBE_THREAD_ID=" + id, "ARBE_STREAM_URL=" + box.url,
		"ARBE_STREAM_TOKEN=" + arbe(t, "token", "mint", "--thread", id), "ARBE_RUN_ID=r1",
		fmt.Sprintf("%s=%d %d 0", loadVar, 850, 850*seconds),
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	posts := box.requests.Load() - box.gets.Load()
	t.Logf("%d bytes up in %d posts; %d bytes down in %d reads and the posts' answers",
		box.up.Load(), posts, box.down.Load(), box.gets.Load())
	if up := box.up.Load(); box.down.Load() > up/10 || up < int64(seconds)*500_000 {
		t.Errorf("%d bytes up, %d down", up, box.down.Load())
	}
}
