package metrics

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// scraped returns the lines of m's metrics that begin with one of the prefixes.
func scraped(t *testing.T, m *Set, prefixes ...string) []string {
	t.Helper()
	w := httptest.NewRecorder()
	all := func(*http.Request) bool { return true }
	m.Handler(all, http.NotFound).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
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

// countAll counts one of each event in m.
func countAll(m *Set) {
	m.Appended(2, 1, 300, 3*time.Millisecond)
	m.Conflicted(4)
	m.Sent(500)
	m.Reader(Events)
	m.Reader(LongPoll)()
	m.Dropped()
	for range 6 {
		m.Expired()
	}
	m.Deleted()
	m.BackedUp(time.Unix(7_000_000, 0))
	m.Certificate(time.Unix(8_000_000, 0))
	m.Connected(1)
	m.TurnedAway()
}

func TestMetricsOfLog(t *testing.T) {
	m := New("v1.2.3", nil, "")
	countAll(m)
	want := []string{
		"arbe_append_bytes_total 300", "arbe_append_conflicts_total 4", `arbe_append_duration_seconds_bucket{le="0.0025"} 0`,
		`arbe_append_duration_seconds_bucket{le="0.005"} 1`, "arbe_append_duration_seconds_count 1", "arbe_append_duplicates_total 1", "arbe_append_entries_total 2",
		"arbe_backup_last_success_timestamp_seconds 7e+06", "arbe_connections_open 1",
		"arbe_connections_refused_total 1",
		"arbe_live_readers_dropped_total 1", `arbe_live_readers{kind="long-poll"} 0`, `arbe_live_readers{kind="sse"} 1`,
		"arbe_read_bytes_total 500", "arbe_streams_deleted_total 1", "arbe_streams_expired_total 6",
		"arbe_tls_certificate_expiry_timestamp_seconds 8e+06",
	}
	got := scraped(
		t,
		m,
		"arbe_append",
		"arbe_backup",
		"arbe_connections",
		"arbe_live",
		"arbe_read",
		"arbe_streams",
		"arbe_tls",
	)
	got = slices.DeleteFunc(got, func(line string) bool {
		return strings.Contains(line, "bucket") && !strings.Contains(line, `"0.0025"`) &&
			!strings.Contains(line, `"0.005"`) ||
			strings.Contains(line, "_sum")
	})
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if info := scraped(t, m, "arbe_build_info"); len(info) != 1 ||
		!regexp.MustCompile(`^arbe_build_info\{goversion="go.*",version="v1.2.3"\} 1$`).MatchString(info[0]) {
		t.Errorf("got %q", info)
	}
	for _, name := range []string{
		"go_goroutines ", "process_resident_memory_bytes ", "process_open_fds ",
		"process_max_fds ",
	} {
		if len(scraped(t, m, name)) != 1 {
			t.Errorf("%s is not exposed", name)
		}
	}
	if with := scraped(t, m, "arbe_engine", "arbe_disk"); len(with) != 0 {
		t.Errorf("metrics of an engine or disk that is not there: %q", with)
	}
}

// The engine is checked by a scrape, at most once a second. One that does not answer counts as down.
func TestMetricsOfEngine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked, hangs := 0, false
		var trouble error
		m := New("test", func(ctx context.Context) error {
			asked++
			if hangs {
				<-ctx.Done()
				return ctx.Err()
			}
			return trouble
		}, "")
		up := func() string { return strings.Join(scraped(t, m, "arbe_engine_up"), "\n") }
		if got := up(); got != "arbe_engine_up 1" || asked != 1 {
			t.Errorf("%q, asked %d times", got, asked)
		}
		trouble = errors.New("full")
		if got := up(); got != "arbe_engine_up 1" || asked != 1 {
			t.Errorf("%q, asked %d times", got, asked)
		}
		time.Sleep(time.Second)
		if got := up(); got != "arbe_engine_up 0" {
			t.Error(got)
		}
		trouble, hangs = nil, true
		time.Sleep(time.Second)
		if got := up(); got != "arbe_engine_up 0" {
			t.Error(got)
		}
		hangs = false
		time.Sleep(time.Second)
		if got := up(); got != "arbe_engine_up 1" {
			t.Error(got)
		}
	})
}

func TestMetricsOfDisk(t *testing.T) {
	var free, size float64
	for _, line := range scraped(t, New("test", nil, t.TempDir()), "arbe_disk") {
		for name, v := range map[string]*float64{"arbe_disk_free_bytes %g": &free, "arbe_disk_size_bytes %g": &size} {
			_, _ = fmt.Sscanf(line, name, v) // it is the other one
		}
	}
	if free <= 0 || size < free {
		t.Errorf("%v of %v are free", free, size)
	}
	want := []string{"arbe_disk_free_bytes -1", "arbe_disk_size_bytes -1"}
	if diff := cmp.Diff(want, scraped(t, New("test", nil, "/not/there"), "arbe_disk")); diff != "" {
		t.Error(diff)
	}
}
