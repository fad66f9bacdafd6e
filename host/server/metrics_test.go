package server

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"arbe.0sk.ar/runner/host/server/metrics"
)

// none may see what houses spend.
func none(*http.Request) bool { return false }

// scraped returns the lines of m's metrics that begin with one of the prefixes.
func scraped(t *testing.T, m *metrics.Set, prefixes ...string) []string {
	t.Helper()
	w := httptest.NewRecorder()
	m.Handler(none, http.NotFound).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if w.Code != http.StatusOK {
		t.Fatalf("/metrics: %d %s", w.Code, w.Body)
	}
	var found []string
	for line := range strings.Lines(w.Body.String()) {
		if slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(line, p) }) {
			found = append(found, strings.TrimSpace(line))
		}
	}
	return found
}

func TestMetricsOfRequests(t *testing.T) {
	m := metrics.New("test", nil, "")
	h := front(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, err := io.Copy(io.Discard, r.Body)
		if err != nil {
			t.Error(err)
		}
		status := 200
		if _, err := fmt.Sscan(r.Header.Get("Authorization"), &status); err == nil {
			w.WriteHeader(status)
		}
		if status != http.StatusNoContent {
			if _, err := io.WriteString(w, "answer"); err != nil {
				t.Error(err)
			}
		}
		if status == 206 {
			panic(http.ErrAbortHandler)
		}
	}), m, Rate{}, nil, nobody)
	const name = "arbe-thread-0123456789"
	for _, tt := range []struct {
		method, target, body, status string
		want                         string // the series
	}{
		{"POST", "/api/stream/" + name, "body", "", `route="append",method="POST",code="200"`},
		{"POST", "/api/stream/" + name, "body", "", `route="append",method="POST",code="200"`},
		{"POST", "/api/stream/" + name, "", "409", `route="append",method="POST",code="409"`},
		{"POST", "/api/stream/" + name, "", "413", `route="append",method="POST",code="413"`},
		{"POST", "/api/stream/" + name, "", "507", `route="append",method="POST",code="507"`},
		{"GET", "/api/stream/" + name + "?offset=0", "", "", `route="read",method="GET",code="200"`},
		{"GET", "/api/stream/" + name, "", "401", `route="read",method="GET",code="401"`},
		{"GET", "/api/stream/" + name, "", "206", `route="read",method="GET",code="206"`}, // and breaks off
		{"GET", "/api/stream/" + name + "?offset=now&live=long-poll", "", "204", `route="live",method="GET",code="204"`},
		{"GET", "/v1/stream/a/b/" + name + "?live=sse&offset=now", "", "", `route="live",method="GET",code="200"`},
		{"POST", "/api/stream/" + name + "/token", "", "403", `route="token",method="POST",code="403"`},
		{"GET", "/api/stream/" + name + "/entries/a", "", "", `route="entry",method="GET",code="200"`},
		{"PUT", "/api/stream/" + name, "", "201", `route="make",method="PUT",code="201"`},
		{"PUT", "/v1/stream/a/b/" + name, "", "201", `route="stream",method="PUT",code="201"`},
		{"HEAD", "/v1/stream/a/b/" + name, "", "", `route="stream",method="HEAD",code="200"`},
		{"GET", "/v1/stream/a/b/" + name + "?alive=1", "", "", `route="stream",method="GET",code="200"`},
		{"GET", "/v1/admin/backup", "", "403", `route="admin",method="GET",code="403"`},
		{"GET", "/readyz", "", "503", `route="health",method="GET",code="503"`},
		{"GET", "/" + name, "", "404", `route="other",method="GET",code="404"`},
		{"MADE-UP", "/v1/stream/" + name, "", "405", `route="stream",method="OTHER",code="405"`},
		{"DELETE", "/api/stream/" + name, "", "405", `route="other",method="DELETE",code="405"`},
	} {
		r := httptest.NewRequest(tt.method, tt.target, strings.NewReader(tt.body))
		r.Header.Set("Authorization", tt.status) // for the handler above only
		count := func() (n float64) {
			for _, line := range scraped(t, m, "arbe_http_requests_total") {
				sorted := strings.Split(
					strings.TrimSuffix(strings.SplitAfter(line, "}")[0], "}")[len("arbe_http_requests_total{"):],
					",",
				)
				want := strings.Split(tt.want, ",")
				slices.Sort(sorted)
				slices.Sort(want)
				if slices.Equal(sorted, want) {
					if _, err := fmt.Sscan(line[strings.Index(line, "} ")+2:], &n); err != nil {
						t.Error(err)
					}
				}
			}
			return n
		}
		before := count()
		func() {
			defer func() {
				if e := recover(); (e == http.ErrAbortHandler) != (tt.status == "206") {
					t.Errorf("%s %s: panicked with %v", tt.method, tt.target, e)
				}
			}()
			h.ServeHTTP(httptest.NewRecorder(), r)
		}()
		if n := count() - before; n != 1 {
			t.Errorf("%s %s: %s has grown by %v", tt.method, tt.target, tt.want, n)
		}
	}
	want := []string{
		"arbe_http_aborted_total 1", "arbe_http_request_bytes_total 8", "arbe_http_requests_in_flight 0",
		"arbe_http_response_bytes_total 114",
		`arbe_refused_total{reason="auth"} 3`, `arbe_refused_total{reason="conflict"} 1`, `arbe_refused_total{reason="error"} 0`,
		`arbe_refused_total{reason="full"} 1`, `arbe_refused_total{reason="invalid"} 2`, `arbe_refused_total{reason="not_found"} 1`,
		`arbe_refused_total{reason="rate"} 0`, `arbe_refused_total{reason="too_large"} 1`, `arbe_refused_total{reason="unavailable"} 0`,
	}
	if diff := cmp.Diff(want, scraped(t, m, "arbe_refused", "arbe_http_aborted", "arbe_http_request_bytes",
		"arbe_http_requests_in", "arbe_http_response")); diff != "" {
		t.Error(diff)
	}
	if all := scraped(t, m, ""); slices.ContainsFunc(all, func(line string) bool {
		return strings.Contains(line, "0123456789") || strings.Contains(line, "MADE-UP")
	}) {
		t.Error("a label holds what a client has chosen")
	}
}

// Requests that exceed the rate are counted, and waiting readers while they wait.
func TestMetricsOfWaits(t *testing.T) {
	m := metrics.New("test", nil, "")
	waits, end := make(chan struct{}), make(chan struct{})
	h := front(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		defer m.Reader(metrics.Events)()
		defer m.Reader(metrics.LongPoll)()
		close(waits)
		<-end
	}), m, Rate{PerSecond: 0.001}, nil, nobody)
	done := make(chan struct{})
	go func() {
		defer close(done)
		asks(h, http.MethodGet, "/v1/stream/a?live=sse", "192.0.2.1:1", "x")
	}()
	<-waits
	if w := asks(h, http.MethodGet, "/v1/stream/a", "192.0.2.1:1", "x"); w.Code != http.StatusTooManyRequests {
		t.Errorf("got %d", w.Code)
	}
	prefixes := []string{
		"arbe_live_readers{",
		"arbe_http_requests_in_flight",
		`arbe_refused_total{reason="rate"}`,
		"arbe_http_requests_total",
	}
	want := []string{
		"arbe_http_requests_in_flight 1", `arbe_http_requests_total{code="429",method="GET",route="stream"} 1`,
		`arbe_live_readers{kind="long-poll"} 1`, `arbe_live_readers{kind="sse"} 1`, `arbe_refused_total{reason="rate"} 1`,
	}
	if diff := cmp.Diff(want, scraped(t, m, prefixes...)); diff != "" {
		t.Error(diff)
	}
	close(end)
	<-done
	want = []string{
		"arbe_http_requests_in_flight 0", `arbe_http_requests_total{code="200",method="GET",route="live"} 1`, want[1],
		`arbe_live_readers{kind="long-poll"} 0`, `arbe_live_readers{kind="sse"} 0`, `arbe_refused_total{reason="rate"} 1`,
	}
	if diff := cmp.Diff(want, scraped(t, m, prefixes...)); diff != "" {
		t.Error(diff)
	}
}

// silent is a http.ResponseWriter that drops all.
type silent struct{ h http.Header }

func (s silent) Header() http.Header         { return s.h }
func (s silent) Write(b []byte) (int, error) { return len(b), nil }
func (s silent) WriteHeader(int)             {}

// BenchmarkCare measures the cost of metrics, the rate limit and the access log for a request.
func BenchmarkCare(b *testing.B) {
	answer := []byte(`{"nextOffset":"00000000000000000001","appended":1,"duplicates":0}`)
	h := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(answer) })
	for _, c := range []struct {
		name string
		h    http.Handler
	}{
		{"nothing", h},
		{"metrics", front(h, metrics.New("test", nil, ""), Rate{}, nil, nobody)},
		{"metrics+rate", front(h, metrics.New("test", nil, ""), Rate{PerSecond: 1e9}, nil, nobody)},
		{"metrics+rate+access", front(h, metrics.New("test", nil, ""), Rate{PerSecond: 1e9}, io.Discard, nobody)},
	} {
		b.Run(c.name, func(b *testing.B) {
			r := httptest.NewRequest(http.MethodPost, "/api/stream/arbe-thread-t1", strings.NewReader("{}"))
			r.Header.Set("Authorization", "Bearer "+strings.Repeat("x", 250))
			w := silent{http.Header{}}
			b.ReportAllocs()
			for b.Loop() {
				c.h.ServeHTTP(w, r)
			}
		})
	}
}
