package server

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"arbe.0sk.ar/runner/host/index"
	"arbe.0sk.ar/runner/host/log"
	"arbe.0sk.ar/runner/host/server/houses"
	"arbe.0sk.ar/runner/host/server/metrics"
	"arbe.0sk.ar/runner/host/server/request"
	"arbe.0sk.ar/runner/host/server/streams"
	"arbe.0sk.ar/runner/thread"
)

// Threads on a page of the list.
const (
	pageThreads     = 50
	mostPageThreads = 200
)

// summaryBytes is the memory of a summary while it is answered.
const summaryBytes = 4 << 10

// Settled is the result of settling a thread.
type Settled struct {
	Status  string          `json:"status"`
	Open    bool            `json:"open"` // a later pass has work to do
	Actions []SettledAction `json:"actions"`
}

// SettledAction is one thing that was done on a thread.
type SettledAction struct {
	ThreadID string `json:"threadId"`
	RunID    string `json:"runId,omitempty"`
	Did      string `json:"did"`
	Why      string `json:"why,omitempty"`
}

// serveThreads adds the routes of summaries.
func (s *Server) serveThreads(mux *http.ServeMux) {
	for pattern, h := range map[string]func(http.ResponseWriter, *http.Request) error{
		"GET " + houses.ThreadsPath:                      s.listThreads,
		"GET " + houses.ThreadsPath + "/{id}":            s.threadSummary,
		"POST " + houses.ThreadsPath + "/{id}/reconcile": s.settle,
		"GET " + houses.ThreadsPath + "/{id}/entries":    s.memberEntries,
	} {
		mux.HandleFunc(pattern, s.core.Answered(h))
	}
}

// listThreads serves the list of threads, or its changes.
func (s *Server) listThreads(w http.ResponseWriter, r *http.Request) error {
	permit, err := s.permitList(r)
	if err != nil {
		return err
	}
	if s.Index == nil {
		return request.ErrNoIndex
	}
	values := r.URL.Query()
	q, err := parseQuery(values)
	if err != nil {
		return err
	}
	q.Only = permit.only
	l := s.core.Lease(r, permit.grant)
	defer l.Free()
	if err := l.Grow(q.Limit * summaryBytes); err != nil {
		return err
	}
	switch live := values.Get("live"); live {
	case "":
	case "sse":
		return s.threadEvents(w, r, q, permit.rows)
	default:
		return request.Refuse(http.StatusBadRequest, "live", "live=%.20q is not served: want sse", live)
	}
	page, err := s.pageOf(r.Context(), q, permit.rows)
	if err != nil {
		return err
	}
	s.core.AnswerJSON(r.Context(), w, page)
	return nil
}

// pageOf returns a page of the list, from rows where there is a query of rows.
func (s *Server) pageOf(ctx context.Context, q index.Query, rq *houses.Query) (thread.SummaryPage, error) {
	if rq != nil {
		return s.houses.List(ctx, q, *rq)
	}
	return s.Index.List(ctx, q)
}

// threadSummary serves the summary of a thread, to readers of the list and of the thread. It queues a thread
// that has had a run to be settled.
func (s *Server) threadSummary(w http.ResponseWriter, r *http.Request) error {
	id := r.PathValue("id")
	row, err := s.permitSummary(r, id)
	if err != nil {
		return err
	}
	if s.Index == nil {
		return request.ErrNoIndex
	}
	v, err := s.Index.Summary(r.Context(), id)
	if err != nil && (row == nil || !errors.Is(err, index.ErrAbsent)) {
		if _, gone := s.Log.Stat(r.Context(), thread.StreamName(id)); errors.Is(gone, log.ErrGone) {
			return gone
		}
		return err
	}
	if row != nil {
		v = houses.WithRow(v, err == nil, *row)
	}
	if v.Run != "" || v.Reactions > 0 {
		s.settles.add(id, time.Now())
	}
	s.core.AnswerJSON(r.Context(), w, v)
	return nil
}

// settle settles a thread, for its writers and the members of its house.
func (s *Server) settle(w http.ResponseWriter, r *http.Request) error {
	id := r.PathValue("id")
	if _, _, err := s.core.PermitWriter(r, "a run's token does not settle its thread"); err != nil {
		return err
	}
	if s.Settle == nil {
		return request.Refuse(http.StatusNotImplemented, "no_reconcile", "this server settles no threads")
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(s.core.Closing, cancel)()
	result, err := s.Settle(ctx, id)
	if err != nil {
		s.Logger.Warn("reconcile", "thread", id, "error", err)
		return request.Refuse(http.StatusServiceUnavailable, "unsettled",
			"the thread could not be settled; the server's log has why").With("Retry-After", 5)
	}
	if result.Actions == nil {
		result.Actions = []SettledAction{}
	}
	s.core.AnswerJSON(r.Context(), w, result)
	return nil
}

// parseQuery parses the query of the list.
func parseQuery(values url.Values) (q index.Query, err error) {
	for name, given := range values {
		if len(given) > 1 && name != "tag" {
			return q, request.Refuse(http.StatusBadRequest, "query", "%.20q is there %d times", name, len(given))
		}
	}
	q.Limit, q.Cursor = pageThreads, values.Get("cursor")
	if given := values.Get("status"); given != "" {
		q.Statuses = strings.Split(given, ",")
		for _, status := range q.Statuses {
			if !slices.Contains(index.Statuses, status) {
				return q, request.Refuse(http.StatusBadRequest, "status",
					"status=%.20q: want some of %s, with commas between them", status,
					strings.Join(index.Statuses, ", "))
			}
		}
	}
	if given := values.Get("harness"); given != "" {
		q.Harnesses = strings.Split(given, ",")
	}
	if given := values.Get("since"); given != "" {
		if q.Since, err = time.Parse(time.RFC3339, given); err != nil {
			return q, request.Refuse(http.StatusBadRequest, "since", "since=%.40q: want a time of RFC 3339", given)
		}
	}
	if given := values.Get("limit"); given != "" {
		n, err := strconv.Atoi(given)
		if err != nil || n < 1 || n > mostPageThreads {
			return q, request.Refuse(http.StatusBadRequest, "limit", "limit=%.20q: want 1 to %d", given,
				mostPageThreads)
		}
		q.Limit = n
	}
	return q, nil
}

// threadEvents serves the list as server-sent events: the threads of its page, the oldest start first, then a control
// event, then each thread that changes. The query's status is for the page alone: a thread that no longer has it is a
// change, too.
func (s *Server) threadEvents(w http.ResponseWriter, r *http.Request, q index.Query, rq *houses.Query) error {
	changes := s.Index.Watch() // before the list: what changes meanwhile is sent again
	defer changes.Close()
	page, err := s.pageOf(r.Context(), q, rq)
	if err != nil {
		return err
	}
	with := func(v thread.Summary) thread.Summary { return v }
	if rq != nil {
		with = s.houses.Changes(&q, *rq)
	}
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("X-Accel-Buffering", "no")
	defer s.core.Metrics.Reader(metrics.Events)()
	rc := http.NewResponseController(w)
	out := s.core.Answer(r.Context(), w, request.AnswerBuffer)
	slices.Reverse(page.Threads)
	sent := map[string]bool{}
	for _, v := range page.Threads {
		sent[v.ID] = true
		writeThread(out, v)
	}
	_, _ = io.WriteString(out, "event: control\ndata:{\"upToDate\":true}\n\n")
	if out.Flush() != nil || rc.Flush() != nil {
		return nil
	}
	life := time.NewTimer(streams.Life)
	defer life.Stop()
	ping := time.NewTicker(streams.Ping)
	defer ping.Stop()
	for {
		select {
		case <-changes.News():
			if !s.sendChanges(r.Context(), out, changes, q, sent, with) {
				return nil
			}
		case <-ping.C:
			_, _ = io.WriteString(out, ": waiting\n\n")
		case <-life.C:
			return nil
		case <-s.core.Closing.Done():
			return nil
		case <-r.Context().Done():
			return nil
		}
		if out.Flush() != nil || rc.Flush() != nil {
			return nil
		}
	}
}

// sendChanges writes the changes that wait for a reader. It reports false where the reader has to come again.
func (s *Server) sendChanges(
	ctx context.Context, out *bufio.Writer, r *index.Reader, q index.Query, sent map[string]bool,
	with func(thread.Summary) thread.Summary,
) bool {
	for more := true; more; {
		changes, rest, err := r.Take(ctx, mostPageThreads)
		if err == nil {
			changes, err = q.Seen(ctx, changes, sent)
		}
		if err != nil {
			if !errors.Is(err, index.ErrSlow) && ctx.Err() == nil {
				s.Logger.Error("live list interrupted", "error", err)
			}
			return false
		}
		for _, c := range changes {
			switch {
			case c.Deleted:
				_, _ = fmt.Fprintf(out, "event: deleted\ndata:{\"id\":%q}\n\n", c.ID)
			case q.Covers(c.Summary):
				writeThread(out, with(c.Summary))
			}
		}
		more = rest
	}
	return true
}

// writeThread writes a summary as an event. An error stays in w.
func writeThread(w *bufio.Writer, v thread.Summary) {
	_, _ = fmt.Fprintf(w, "event: thread\ndata:%s\n\n", thread.Marshal(v))
}
