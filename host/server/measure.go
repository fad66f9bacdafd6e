package server

import (
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// request is what is told apart among requests that have ended.
type request struct {
	route  route
	method string // of methodOf
	code   int
}

// series is where a request of this kind is counted.
type series struct {
	count    prometheus.Counter
	duration prometheus.Observer
	refused  prometheus.Counter // nil for one that was not
}

// measured measures the requests that next answers. Why one was refused is told from its status, so that no refusal is forgotten.
func (m *metrics) measured(next http.Handler) http.Handler {
	if m == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began := time.Now()
		m.inFlight.Inc()
		x, r := watch(w, r)
		whole := false
		defer func() { // also when an answer is broken off, which is a panic
			m.inFlight.Dec()
			s := m.of(request{routeOf(r), methodOf(r), x.code(r, whole)})
			s.count.Inc()
			s.duration.Observe(time.Since(began).Seconds())
			if s.refused != nil {
				s.refused.Inc()
			}
			m.bytesIn.Add(float64(x.in.Load()))
			m.bytesOut.Add(float64(x.sent(r)))
			if !whole {
				m.abortedTotal.Inc()
			}
		}()
		next.ServeHTTP(x, r)
		whole = true
	})
}

// of is the series of such requests.
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
	if r.route != routeHealth { // a server that is not ready has refused nobody
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

// sent says that so many bytes of entries went to a reader.
func (m *metrics) sent(bytes int) {
	if m != nil {
		m.readBytes.Add(float64(bytes))
	}
}

// reader says that a reader waits from now on, until done is called, once. kind is readerLongPoll or readerSSE.
func (m *metrics) reader(kind string) (done func()) {
	if m == nil {
		return func() {}
	}
	g := m.readers[kind]
	g.Inc()
	return g.Dec
}

// dropped says that a reader was dropped because he was slow.
func (m *metrics) dropped() {
	if m != nil {
		m.droppedTotal.Inc()
	}
}

// ofBudget makes what is measured of the budget for requests.
func (m *metrics) ofBudget(b *budget) {
	if m == nil {
		return
	}
	f := promauto.With(m.registry)
	gauge(f, "arbe_memory_budget_bytes", "Bytes that all requests may hold at the same time.").Set(float64(b.size))
	f.NewGaugeFunc(
		prometheus.GaugeOpts{Name: "arbe_memory_budget_held_bytes", Help: "Bytes that requests hold."},
		func() float64 { return float64(b.held()) },
	)
}

// panicked says that a handler panicked.
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

// backedUp says when the newest backup was finished: when one is made, and at the start where there is one from before.
func (m *metrics) backedUp(at time.Time) {
	if m != nil {
		m.lastBackup.Set(float64(at.Unix()))
	}
}

// certificate says when the certificate that is served expires.
func (m *metrics) certificate(until time.Time) {
	if m != nil {
		m.certificateEnd.Set(float64(until.Unix()))
	}
}

// connected says that a connection was opened (1) or closed (-1).
func (m *metrics) connected(n float64) {
	if m != nil {
		m.connections.Add(n)
	}
}

// turnedAway says that a connection was closed at once.
func (m *metrics) turnedAway() {
	if m != nil {
		m.turnedAwayTotal.Inc()
	}
}
