package scripts

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	logs "arbe.0sk.ar/runner/internal/test/output"
	"arbe.0sk.ar/runner/internal/test/port"
)

// A host waits for a thread server that is replaced just when the host starts: after its first answer, and before the
// one by which the database is opened.
func TestServerReplacedAtStart(t *testing.T) {
	t.Parallel()
	var answers atomic.Int32
	var back atomic.Bool
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if answers.Add(1) > 1 && !back.Load() {
			panic(http.ErrAbortHandler)
		}
		fmt.Fprint(w, `{"status":"ok","installation":"i"}`)
	}))
	defer server.Close()
	var log logs.Buffer
	cmd := exec.Command(arbe, "provision", "--database", "postgres://u@"+port.Reserve(t)+"/db")
	cmd.Env = append(os.Environ(), "ARBE_STREAM_URL="+server.URL, "ARBE_DATA="+t.TempDir(),
		"DURABLE_STREAMS_SECRET="+strings.Repeat("s", 32))
	cmd.Stderr = &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for _, want := range []string{
		`error="which log the database has to be of is not known: no answer from `, "the database is away",
	} {
		for !strings.Contains(log.String(), want) {
			select {
			case err := <-ended:
				t.Fatalf("it ended before %q: %v\n%s", want, err, &log)
			case <-time.After(10 * time.Millisecond): // between two looks
			}
		}
		back.Store(true)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	if err := <-ended; err != nil {
		t.Errorf("%v\n%s", err, &log)
	}
}
