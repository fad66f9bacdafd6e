package server

import (
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"arbe.0sk.ar/runner/host/httpd"
	"arbe.0sk.ar/runner/host/memory"
)

// request is the kind of a request that has ended.
type request struct {
	route  route
	method string // of methodOf
	code   int
}

// series are the counters of one kind of request.
type series struct {
	count    prometheus.Counter
	duration prometheus.Observer
	refused  prometheus.Counter // nil for one that was not refused
}

// measured measures the requests that next answers. The reason of a refusal follows from its status, so that none is
// left out.
func (m *metrics) measured(next http.Handler) http.Handler {
	if m == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began := time.Now()
		m.inFlight.Inc()
		x, r := httpd.Watch(w, r)
		whole := false
		defer func() { // also after a panic, which breaks an answer off
			m.inFlight.Dec()
			s := m.of(request{routeOf(r), methodOf(r), x.Status(r, whole)})
			s.count.Inc()
			s.duration.Observe(time.Since(began).Seconds())
			if s.refused != nil {
				s.refused.Inc()
			}
			m.bytesIn.Add(float64(x.Received()))
			m.bytesOut.Add(float64(x.Sent(r)))
			if !whole {
				m.abortedTotal.Inc()
			}
		}()
		next.ServeHTTP(x, r)
		whole = true
	})
}

// of returns the series of a kind of request.
func (m *metrics) of(r request) series {
	m.mu.RLock()
	s, ok := m.series[r]
	m.mu.RUnlock()
	if ok {
		return s
	}
	s = series{
		count:    m.requests.WithLabelValues(r.route.String(), r.method, strconv.Itoa(r.code)),
		duration: m.durations.WithLabelValues(r.route.String(), r.method),
	}
	if r.route != routeHealth { // 503 of /readyz is no refusal
		s.refused = m.refusedTotal[refusal(r.code)]
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.series[r] = s
	return s
}

// Appended is Observer's.
func (m *metrics) Appended(entries, duplicates, bytes int, took time.Duration) {
	if m == nil {
		return
	}
	m.entries.Add(float64(entries))
	m.duplicates.Add(float64(duplicates))
	m.entryBytes.Add(float64(bytes))
	m.durable.Observe(took.Seconds())
}

// Conflicted is Observer's.
func (m *metrics) Conflicted(entries int) {
	if m != nil {
		m.conflictsTotal.Add(float64(entries))
	}
}

// sent counts bytes of entries that were sent to a reader.
func (m *metrics) sent(bytes int) {
	if m != nil {
		m.readBytes.Add(float64(bytes))
	}
}

// reader counts a waiting reader until done is called, once. kind is readerLongPoll or readerSSE.
func (m *metrics) reader(kind string) (done func()) {
	if m == nil {
		return func() {}
	}
	g := m.readers[kind]
	g.Inc()
	return g.Dec
}

// dropped counts a reader that was disconnected for being slow.
func (m *metrics) dropped() {
	if m != nil {
		m.droppedTotal.Inc()
	}
}

// ofBudget registers the measurements of the budget for requests.
func (m *metrics) ofBudget(b *memory.Budget) {
	if m == nil {
		return
	}
	f := promauto.With(m.registry)
	gauge(f, "arbe_memory_budget_bytes", "Bytes that all requests may hold at the same time.").Set(float64(b.Size()))
	f.NewGaugeFunc(
		prometheus.GaugeOpts{Name: "arbe_memory_budget_held_bytes", Help: "Bytes that requests hold."},
		func() float64 { return float64(b.Held()) },
	)
}

// panicked counts a handler that panicked.
func (m *metrics) panicked() {
	if m != nil {
		m.panicsTotal.Inc()
	}
}

// Expired is Observer's.
func (m *metrics) Expired() {
	if m != nil {
		m.expiredTotal.Inc()
	}
}

// Deleted is Observer's.
func (m *metrics) Deleted() {
	if m != nil {
		m.deletedTotal.Inc()
	}
}

// backedUp sets when the newest backup was made.
func (m *metrics) backedUp(at time.Time) {
	if m != nil {
		m.lastBackup.Set(float64(at.Unix()))
	}
}

// certificate sets when the served certificate expires.
func (m *metrics) certificate(until time.Time) {
	if m != nil {
		m.certificateEnd.Set(float64(until.Unix()))
	}
}

// Connected is httpd.ConnCounter's.
func (m *metrics) Connected(n float64) {
	if m != nil {
		m.connections.Add(n)
	}
}

// TurnedAway is httpd.ConnCounter's.
func (m *metrics) TurnedAway() {
	if m != nil {
		m.turnedAwayTotal.Inc()
	}
}
