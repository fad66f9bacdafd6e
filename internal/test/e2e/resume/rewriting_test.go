package resume_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strconv"
	"testing"

	"arbe.0sk.ar/runner/internal/test/scene"

	"arbe.0sk.ar/runner/harness"
)

// rewriting is the tests' server behind one that gives entries back in other bytes: with keys in alphabetical
// order, and where spaced is set with blanks between tokens.
func rewriting(t *testing.T, spaced bool) string {
	t.Helper()
	upstream, err := url.Parse(scene.Server)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(upstream)
	proxy.ModifyResponse = func(resp *http.Response) error {
		if typ := resp.Header.Get("Content-Type"); resp.StatusCode != http.StatusOK || typ != "application/x-ndjson" {
			return nil
		}
		var out bytes.Buffer
		for lines := bufio.NewReader(resp.Body); ; {
			line, err := lines.ReadBytes('\n')
			if err != nil {
				break
			}
			dec := json.NewDecoder(bytes.NewReader(line))
			dec.UseNumber()
			var v any
			if err := dec.Decode(&v); err != nil {
				return err
			}
			b, err := json.Marshal(v)
			if err != nil {
				return err
			}
			if spaced {
				var indented bytes.Buffer
				if err := json.Indent(&indented, b, "", " "); err != nil {
					return err
				}
				b = bytes.ReplaceAll(indented.Bytes(), []byte("\n"), []byte(" "))
			}
			out.Write(append(b, '\n'))
		}
		resp.Body, resp.ContentLength = io.NopCloser(&out), int64(out.Len())
		resp.Header.Set("Content-Length", strconv.Itoa(out.Len()))
		return nil
	}
	srv := httptest.NewServer(proxy)
	t.Cleanup(func() {
		srv.CloseClientConnections()
		srv.Close()
	})
	return srv.URL
}

// A session is rebuilt from a server that gives JSON back in other bytes, continues in its box, and mirrored again
// adds nothing.
func TestFullServerRewritesJSON(t *testing.T) {
	for _, how := range []string{"keys in another order", "spaces, too"} {
		for _, name := range harness.Names() {
			version := scene.Pi078
			if name != "pi" {
				version = scene.Others(t)[name]
			}
			t.Run(how+"/"+name, func(t *testing.T) {
				t.Parallel()
				s := scene.NewOf(
					t,
					name,
					version,
					scene.Calling(name, "echo the-tool-says-$((40+2))"),
					scene.Say("Seen."),
				)
				s.Prompt = "the first question"
				if got := s.Status(s.Start()); got != 0 {
					t.Fatalf("exit status %d", got)
				}
				n := s.Next(version, "r2")
				n.Without("ARBE_STREAM_URL")
				n.Env = append(n.Env, "ARBE_STREAM_URL="+rewriting(t, how != "keys in another order"))
				told := []string{"the first question", "the-tool-says-42", "Seen."}
				n.OnFrom("r2", "hydrate", told...)
				n.OnFrom("r3", "continue", append(told, "go on with r2", "This is said in r2.")...)
				before := len(n.Entries())
				file := n.Known("r3").Session
				if out, err := n.Box("mirror", "--harness", name, "--session", file); err != nil {
					t.Fatalf("%v: %s", err, out)
				}
				for _, e := range n.Entries()[before:] {
					t.Errorf("mirrored twice: %s %.200s", e.ID, e.Payload)
				}
				n.Once()
			})
		}
	}
}
