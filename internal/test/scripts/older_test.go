package scripts

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// A server of another version that lacks a route is named with its version, and is not called another program.
func TestOlderServer(t *testing.T) {
	for version, want := range map[string]string{
		"":             "a thread server of an earlier arbe, which lacks what this one, ",
		"0.0.9":        "a thread server of arbe 0.0.9, which lacks what this one, ",
		"no such arbe": "answers, but is no thread server",
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/healthz" {
				http.NotFound(w, r) // as arbe did, without an error of its own
				return
			}
			switch version {
			case "":
				fmt.Fprint(w, `{"status":"ok","installation":"i"}`)
			case "no such arbe":
				fmt.Fprint(w, "ok")
			default:
				fmt.Fprintf(w, `{"status":"ok","installation":"i","version":%q}`, version)
			}
		}))
		defer server.Close()
		for _, args := range [][]string{{"thread", "status", "t1"}, {"ls"}} {
			cmd := exec.Command(arbe, args...)
			cmd.Env = append(os.Environ(), "ARBE_STREAM_URL="+server.URL, "ARBE_DATA="+t.TempDir(),
				"DURABLE_STREAMS_SECRET="+strings.Repeat("s", 32))
			out, _ := cmd.CombinedOutput() // its status is compared
			if got := cmd.ProcessState.ExitCode(); got != 69 || !strings.Contains(string(out), want) {
				t.Errorf("%q of %q: %d: %s", args, version, got, out)
			}
		}
	}
}
