package metrics

import (
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"arbe.0sk.ar/runner/host/httpd"
	"arbe.0sk.ar/runner/host/memory"
)

// Health is the route of health, readiness and measurements, whose 503 is no refusal.
const Health = "health"

// request is the kind of a request that has ended.
type request struct {
	route  string
	method string // of methodOf
	code   int
}

// series are the counters of one kind of request.
type series struct {
	count    prometheus.Counter
	duration prometheus.Observer
	refused  prometheus.Counter // nil for one that was not refused
}

// Measured measures the requests that next answers, by their routes, of which there have to be few. The reason of a
// refusal follows from its status, so that none is left out.
func (m *Set) Measured(next http.Handler, routeOf func(*http.Request) string) http.Handler {
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
func (m *Set) of(r request) series {
	m.mu.RLock()
	s, ok := m.series[r]
	m.mu.RUnlock()
	if ok {
		return s
	}
	s = series{
		count:    m.requests.WithLabelValues(r.route, r.method, strconv.Itoa(r.code)),
		duration: m.durations.WithLabelValues(r.route, r.method),
	}
	if r.route != Health {
		s.refused = m.refusedTotal[refusal(r.code)]
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.series[r] = s
	return s
}

// Appended implements log.Observer.
func (m *Set) Appended(entries, duplicates, bytes int, took time.Duration) {
	m.entries.Add(float64(entries))
	m.duplicates.Add(float64(duplicates))
	m.entryBytes.Add(float64(bytes))
	m.durable.Observe(took.Seconds())
}

// Conflicted implements log.Observer.
func (m *Set) Conflicted(entries int) {
	m.conflictsTotal.Add(float64(entries))
}

// Sent counts bytes of entries that were sent to a reader.
func (m *Set) Sent(bytes int) {
	m.readBytes.Add(float64(bytes))
}

// Reader counts a waiting reader until done is called, once. kind is LongPoll or Events.
func (m *Set) Reader(kind string) (done func()) {
	g := m.readers[kind]
	g.Inc()
	return g.Dec
}

// Dropped counts a reader that was disconnected for being slow.
func (m *Set) Dropped() {
	m.droppedTotal.Inc()
}

// OfBudget registers the measurements of the budget for requests.
func (m *Set) OfBudget(b *memory.Budget) {
	f := promauto.With(m.registry)
	gauge(f, "arbe_memory_budget_bytes", "Bytes that all requests may hold at the same time.").Set(float64(b.Size()))
	gaugeFunc(f, "arbe_memory_budget_held_bytes", "Bytes that requests hold.",
		func() float64 { return float64(b.Held()) })
}

// Panicked counts a handler that panicked.
func (m *Set) Panicked() {
	m.panicsTotal.Inc()
}

// Expired implements log.Observer.
func (m *Set) Expired() {
	m.expiredTotal.Inc()
}

// Deleted implements log.Observer.
func (m *Set) Deleted() {
	m.deletedTotal.Inc()
}

// BackedUp sets when the newest backup was made.
func (m *Set) BackedUp(at time.Time) {
	m.lastBackup.Set(float64(at.Unix()))
}

// Certificate sets when the served certificate expires.
func (m *Set) Certificate(until time.Time) {
	m.certificateEnd.Set(float64(until.Unix()))
}

// Connected implements httpd.ConnCounter.
func (m *Set) Connected(n float64) {
	m.connections.Add(n)
}

// TurnedAway implements httpd.ConnCounter.
func (m *Set) TurnedAway() {
	m.turnedAwayTotal.Inc()
}

// methodOf returns a request's method; OTHER for one that no handler serves, since clients can make up any number.
func methodOf(r *http.Request) string {
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete,
		http.MethodOptions:
		return r.Method
	default:
		return "OTHER"
	}
}

// refusals are the reasons of refusals in the measurements.
var refusals = []string{
	"auth", "conflict", "error", "full", "invalid", "not_found", "rate", "too_large", "unavailable",
}

// refusal returns the reason of an answer with this status; "" for a success, and for a client that went away.
func refusal(status int) string {
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden:
		return "auth"
	case http.StatusNotFound, http.StatusGone:
		return "not_found"
	case http.StatusConflict, http.StatusPreconditionFailed:
		return "conflict"
	case http.StatusRequestEntityTooLarge:
		return "too_large"
	case http.StatusTooManyRequests:
		return "rate"
	case http.StatusServiceUnavailable:
		return "unavailable"
	case http.StatusInsufficientStorage:
		return "full"
	case httpd.StatusGone:
		return ""
	}
	switch {
	case status < 400:
		return ""
	case status < 500:
		return "invalid"
	default:
		return "error"
	}
}
