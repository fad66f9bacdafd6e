// Package metrics is the measurements of a server for Prometheus. No label has a value that a client can choose, so the
// number of series is bounded.
package metrics

import (
	"bytes"
	"context"
	"net/http"
	"runtime"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sync/semaphore"
)

// Set is the measurements of one server. New makes one.
type Set struct {
	registry *prometheus.Registry
	houses   *prometheus.Registry // of what is not for everyone

	inFlight, connections                           prometheus.Gauge
	turnedAwayTotal, abortedTotal, panicsTotal      prometheus.Counter
	bytesIn, bytesOut                               prometheus.Counter
	requests                                        *prometheus.CounterVec
	durations                                       *prometheus.HistogramVec
	refusedTotal                                    map[string]prometheus.Counter // by reason
	readers                                         map[string]prometheus.Gauge   // by kind
	droppedTotal, readBytes                         prometheus.Counter
	entries, entryBytes, duplicates, conflictsTotal prometheus.Counter
	durable                                         prometheus.Histogram
	expiredTotal, deletedTotal                      prometheus.Counter
	lastBackup, certificateEnd                      prometheus.Gauge

	mu     sync.RWMutex
	series map[request]series // of requests and durations, since finding a series by its labels is slow
}

// Kinds of readers that wait for more.
const (
	LongPoll = "long-poll"
	Events   = "sse"
)

// New returns the measurements of a server of this version. check returns why the log takes no appends, and disk
// is a folder on the log's disk; both are read for each scrape. nil and "" leave them out.
func New(version string, check func(context.Context) error, disk string) *Set {
	m := &Set{
		registry: prometheus.NewRegistry(), houses: prometheus.NewRegistry(), series: map[request]series{},
		refusedTotal: map[string]prometheus.Counter{}, readers: map[string]prometheus.Gauge{},
	}
	m.registry.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	f := promauto.With(m.registry)
	f.NewGaugeVec(prometheus.GaugeOpts{
		Name: "arbe_build_info", Help: "1, with what this server was built from.",
	}, []string{"version", "goversion"}).WithLabelValues(version, runtime.Version()).Set(1)
	m.ofRequests(f)
	m.ofLog(f)
	if check != nil {
		gaugeFunc(f, "arbe_engine_up", "1 if the log takes appends now, else 0.", probe(check))
	}
	if disk != "" {
		gaugeFunc(f, "arbe_disk_free_bytes", "Room on the log's disk for this server; -1 if unknown.",
			func() float64 { free, _ := diskRoom(disk); return free })
		gaugeFunc(f, "arbe_disk_size_bytes", "Size of the log's disk; -1 if unknown.",
			func() float64 { _, size := diskRoom(disk); return size })
	}
	return m
}

// ofRequests registers the measurements of requests and connections.
func (m *Set) ofRequests(f promauto.Factory) {
	m.connections = gauge(f, "arbe_connections_open", "Connections that are open.")
	m.turnedAwayTotal = counter(f, "arbe_connections_refused_total",
		"Connections that were closed at once because too many were open.")
	m.inFlight = gauge(f, "arbe_http_requests_in_flight",
		"Requests that are being answered, those of waiting readers among them.")
	m.abortedTotal = counter(f, "arbe_http_aborted_total", "Answers that were broken off.")
	m.panicsTotal = counter(f, "arbe_http_panics_total",
		"Requests whose handler panicked: defects of this program, which the log has with their stacks.")
	m.bytesIn = counter(f, "arbe_http_request_bytes_total", "Bytes of requests' bodies that were read.")
	m.bytesOut = counter(f, "arbe_http_response_bytes_total", "Bytes of answers' bodies.")
	m.requests = f.NewCounterVec(prometheus.CounterOpts{
		Name: "arbe_http_requests_total",
		Help: "Requests that have ended. Code 499: the client went away before there was an answer.",
	}, []string{"route", "method", "code"})
	m.durations = f.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "arbe_http_request_duration_seconds",
		Help:    "Time from a request's header to the end of its answer. Route live: reads that wait.",
		Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60},
	}, []string{"route", "method"})
	refused := f.NewCounterVec(
		prometheus.CounterOpts{Name: "arbe_refused_total", Help: "Requests that were refused, by reason."},
		[]string{"reason"},
	)
	for _, reason := range refusals { // all from the start: a rate misses the first count of a series
		m.refusedTotal[reason] = refused.WithLabelValues(reason)
	}
	m.certificateEnd = gauge(f, "arbe_tls_certificate_expiry_timestamp_seconds",
		"When the certificate that is served expires; 0 without TLS.")
}

// ofLog registers the measurements of the log and its readers.
func (m *Set) ofLog(f promauto.Factory) {
	m.entries = counter(f, "arbe_append_entries_total", "Entries that were appended.")
	m.entryBytes = counter(f, "arbe_append_bytes_total", "Bytes of entries that were appended.")
	m.duplicates = counter(f, "arbe_append_duplicates_total",
		"Entries that were posted again and were there already.")
	m.conflictsTotal = counter(f, "arbe_append_conflicts_total",
		"Entries that were refused because their id is taken by another payload.")
	m.durable = f.NewHistogram(prometheus.HistogramOpts{
		Name: "arbe_append_duration_seconds", Help: "Time that the log took to make an append durable.",
		Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
	})
	readers := f.NewGaugeVec(
		prometheus.GaugeOpts{Name: "arbe_live_readers", Help: "Readers that wait for more."},
		[]string{"kind"},
	)
	for _, kind := range []string{LongPoll, Events} {
		m.readers[kind] = readers.WithLabelValues(kind)
	}
	m.droppedTotal = counter(f, "arbe_live_readers_dropped_total",
		"Readers that were dropped because they did not accept what they had asked for.")
	m.readBytes = counter(f, "arbe_read_bytes_total", "Bytes of entries that were sent to readers.")
	m.expiredTotal = counter(f, "arbe_streams_expired_total", "Streams that went because their time was over.")
	m.deletedTotal = counter(f, "arbe_streams_deleted_total", "Streams that were deleted on demand.")
	m.lastBackup = gauge(f, "arbe_backup_last_success_timestamp_seconds",
		"When the newest backup was finished; 0 for none that is known.")
}

func counter(f promauto.Factory, name, help string) prometheus.Counter {
	return f.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
}

func gauge(f promauto.Factory, name, help string) prometheus.Gauge {
	return f.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
}

func gaugeFunc(f promauto.Factory, name, help string, value func() float64) {
	f.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value)
}

// probeTimeout bounds a check: a cluster that does not answer is down.
const probeTimeout = 2 * time.Second

// probe calls check once a second at most.
func probe(check func(context.Context) error) func() float64 {
	var mu sync.Mutex
	var asked time.Time
	var up float64
	return func() float64 {
		mu.Lock()
		defer mu.Unlock()
		if time.Since(asked) < time.Second {
			return up
		}
		ctx, cancel := context.WithTimeout(context.Background(), probeTimeout)
		defer cancel()
		up = 0
		if check(ctx) == nil {
			up = 1
		}
		asked = time.Now()
		return up
	}
}

// Handler serves the measurements; those of houses to requests that may have them. It gathers them for two requests at
// a time, since that is expensive; others wait, and busy answers those that have waited too long. A client that does
// not read its answer delays none of them.
func (m *Set) Handler(may func(*http.Request) bool, busy http.HandlerFunc) http.Handler {
	open, turn := promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{}), semaphore.NewWeighted(2)
	all := promhttp.HandlerFor(prometheus.Gatherers{m.registry, m.houses}, promhttp.HandlerOpts{})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), scrapeTimeout)
		defer cancel()
		if turn.Acquire(ctx, 1) != nil {
			busy(w, r)
			return
		}
		gather := open
		if may(r) {
			gather = all
		}
		p := page{header: w.Header(), status: http.StatusOK}
		gather.ServeHTTP(&p, r)
		turn.Release(1)
		w.WriteHeader(p.status)
		_, _ = w.Write(p.body.Bytes()) // the client may be gone
	})
}

// scrapeTimeout bounds the wait of a request for the measurements.
const scrapeTimeout = 5 * time.Second

// page buffers an answer.
type page struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (p *page) Header() http.Header         { return p.header }
func (p *page) WriteHeader(status int)      { p.status = status }
func (p *page) Write(b []byte) (int, error) { return p.body.Write(b) }
