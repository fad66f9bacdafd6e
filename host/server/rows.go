package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"arbe.0sk.ar/runner/host/index"
	"arbe.0sk.ar/runner/host/member"
	"arbe.0sk.ar/runner/host/rows"
	"arbe.0sk.ar/runner/host/token"
	"arbe.0sk.ar/runner/thread"
)

// Where the rows of houses are, beside their threads.
const (
	environmentsPath = "/api/environments"
	secretsPath      = "/api/secrets"
)

// serveRows adds the routes of rows.
func (s *Server) serveRows(mux *http.ServeMux) {
	type handler func(http.ResponseWriter, *http.Request, member.Member) error
	for pattern, h := range map[string]handler{
		"POST " + threadsPath:                  s.createThread,
		"PATCH " + threadsPath + "/{id}":       s.changeThread,
		"DELETE " + threadsPath + "/{id}":      s.deleteThread,
		"GET " + environmentsPath:              s.listEnvironments,
		"POST " + environmentsPath:             s.createEnvironment,
		"GET " + environmentsPath + "/{id}":    s.environment,
		"PUT " + environmentsPath + "/{id}":    s.replaceEnvironment,
		"PATCH " + environmentsPath + "/{id}":  s.changeEnvironment,
		"DELETE " + environmentsPath + "/{id}": s.deleteEnvironment,
		"GET " + secretsPath:                   s.listSecrets,
		"PUT " + secretsPath + "/{name}":       s.putSecret,
		"DELETE " + secretsPath + "/{name}":    s.deleteSecret,
	} {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Cache-Control", "no-store")
			m, err := s.permitRows(r)
			if err == nil {
				err = s.rowError(h(w, r, m))
			}
			s.answerError(w, r, err)
		})
	}
}

var errNoHouses = refuse(http.StatusNotImplemented, "no_houses", "this server has no houses")

// permitRows returns the member that a request is from. No other token is good at the routes of rows.
func (s *Server) permitRows(r *http.Request) (member.Member, error) {
	if s.Doors == nil || s.Rows == nil {
		return member.Member{}, errNoHouses
	}
	m, is, err := s.member(r)
	switch {
	case err != nil || is:
		return m, err
	case bearer(r.Header.Get("Authorization")) == "":
		return m, refuse(http.StatusUnauthorized, "no_token", "a member's login token is required")
	}
	return m, refuse(http.StatusUnauthorized, "invalid_token", "want a member's login token")
}

// memberGrant is the grant of a member as the holder of its requests.
func memberGrant(m member.Member) token.Grant { return token.Grant{}.By("member " + m.Agent) }

// rowRefusals are the answers to refusals of the rows, by their kind. Without a text the refusal's own is the answer.
var rowRefusals = []struct {
	kind   error
	status int
	code   string
	text   string
}{
	{rows.ErrAbsent, http.StatusNotFound, "not_found", "there is no such row in your houses"},
	{rows.ErrTaken, http.StatusConflict, "exists", ""},
	{rows.ErrArchived, http.StatusConflict, "archived", ""},
	{rows.ErrClosed, http.StatusConflict, "closed", ""},
	{
		rows.ErrRunning, http.StatusConflict, "running",
		"the thread, or a child of it, has an open run: cancel it first",
	},
	{rows.ErrReference, http.StatusBadRequest, "reference", ""},
	{rows.ErrInvalid, http.StatusBadRequest, "value", ""},
	{rows.ErrForbidden, http.StatusForbidden, "owners_only", "only owners of the house may do this"},
	{rows.ErrLocal, http.StatusForbidden, "local_boxes", ""},
	{rows.ErrNoKeys, http.StatusServiceUnavailable, "secret_keys", ""},
}

// rowError returns the answer to an error of the rows. One that is no refusal is one of rows that can't be read.
func (s *Server) rowError(err error) error {
	if err == nil || errors.As(err, new(*problem)) || errors.As(err, new(*logError)) {
		return err
	}
	for _, r := range rowRefusals {
		if !errors.Is(err, r.kind) {
			continue
		}
		text := r.kind.Error()
		if refused := (*rows.Refusal)(nil); errors.As(err, &refused) {
			text = refused.Text
		}
		return refuse(r.status, r.code, "%s", cmp.Or(r.text, text))
	}
	err = fmt.Errorf("%w: %w", member.ErrRows, err)
	s.logRows(err)
	return err
}

// logError is an error of the log within a call of the rows.
type logError struct{ error }

func (e *logError) Unwrap() error { return e.error }

// houseOf returns the house that a request names, one of the member's. A member of one house may leave it out.
func houseOf(m member.Member, given string) (string, error) {
	switch {
	case given != "" && slices.Contains(m.Houses, given):
		return given, nil
	case given != "":
		return "", errNoHouse
	case len(m.Houses) == 1:
		return m.Houses[0], nil
	}
	return "", refuse(http.StatusBadRequest, "house", "want a house: you are a member of %d", len(m.Houses))
}

// errNoHouse is the answer about a house that does not exist, or is not the member's.
var errNoHouse = refuse(http.StatusNotFound, "not_found", "you are a member of no such house")

// readRow reads the JSON object of a request about a row into v. secret is set where an error must not quote the body.
func (s *Server) readRow(
	w http.ResponseWriter, r *http.Request, m member.Member, most int64, v any, secret bool,
) error {
	body, free, err := s.readJSON(w, r, memberGrant(m), most)
	if err != nil {
		return err
	}
	defer free()
	switch err := decodeStrictly(body, v); {
	case err == nil:
		return nil
	case secret:
		return refuse(http.StatusBadRequest, "json", "the body is not as this route has it")
	default:
		return refuse(http.StatusBadRequest, "json", "the body is not as this route has it: %v", err)
	}
}

// rowQuery is what a query of the list asks of rows.
type rowQuery struct {
	rows.Query
	agent string // for which the rows are read; "" for the host
}

// rowFilters are the parameters of the list that are about rows.
var rowFilters = []string{"house", "tag", "pinned", "parent"}

// mostTags bounds the tags of a query and of a thread.
const mostTags = 32

// parseRowQuery parses the parameters of the list that are about rows. asked reports that there are some.
func parseRowQuery(values url.Values) (q rows.Query, asked bool, err error) {
	asked = slices.ContainsFunc(rowFilters, values.Has)
	q.House, q.Parent, q.Tags = values.Get("house"), values.Get("parent"), values["tag"]
	if len(q.Tags) > mostTags || slices.Contains(q.Tags, "") {
		return q, asked, refuse(http.StatusBadRequest, "tag", "tag: want 1 to %d tags, none of them empty", mostTags)
	}
	switch given := values.Get("pinned"); given {
	case "":
	case "true":
		q.Pinned = true
	default:
		return q, asked, refuse(http.StatusBadRequest, "pinned", "pinned=%.20q: want true", given)
	}
	return q, asked, nil
}

// rowsOfMember returns the query of a member's list. It is nil without rows: then the list is read from the index.
func (s *Server) rowsOfMember(values url.Values, m member.Member) (*rowQuery, error) {
	q, asked, err := parseRowQuery(values)
	switch {
	case err != nil:
		return nil, err
	case s.Rows == nil && asked:
		return nil, errNoHouses
	case s.Rows == nil:
		return nil, nil
	case q.House != "" && !slices.Contains(m.Houses, q.House):
		return nil, errNoHouse
	}
	return &rowQuery{q, m.Agent}, nil
}

// rowsOfToken returns the query of a list for a token. It is nil where no parameter is about rows: such a list needs no
// database. A token names a house, or is of one.
func (s *Server) rowsOfToken(values url.Values, g token.Grant) (*rowQuery, error) {
	q, asked, err := parseRowQuery(values)
	switch {
	case err != nil || !asked:
		return nil, err
	case s.Rows == nil:
		return nil, errNoHouses
	case q.House == "":
		q.House = g.House
	case g.House != "" && g.House != q.House:
		return nil, errWrongHouse
	}
	if q.House == "" {
		return nil, refuse(http.StatusBadRequest, "house", "want a house: a token of the list names one")
	}
	return &rowQuery{q, ""}, nil
}

// listRows returns a page of the list from rows, the newest thread first.
func (s *Server) listRows(ctx context.Context, q index.Query, rq rowQuery) (page thread.SummaryPage, err error) {
	page.Threads = []thread.Summary{}
	rq.Statuses, rq.Limit = q.Statuses, q.Limit
	if rq.After, err = parseMark(q.Cursor); err != nil {
		return page, err
	}
	all, err := s.Rows.Threads(ctx, rq.agent, rq.Query)
	if err != nil {
		return page, s.rowError(err)
	}
	ids := make([]string, len(all))
	for i, t := range all {
		ids[i] = t.ID
	}
	summaries, err := s.Index.Summaries(ctx, ids)
	if err != nil {
		return page, indexError(err)
	}
	for _, t := range all {
		v, is := summaries[t.ID]
		if v = withRow(v, is, t); q.Covers(v) {
			page.Threads = append(page.Threads, v)
		}
	}
	if n := len(all); n == q.Limit {
		page.Cursor = markOf(all[n-1])
	}
	return page, nil
}

// withRow returns a thread's summary with its row; of a thread without entries, where is is false, with nothing else.
func withRow(v thread.Summary, is bool, t rows.Thread) thread.Summary {
	made := thread.Stamp(t.CreatedAt)
	if !is {
		v = thread.Summary{ID: t.ID, Status: thread.StatusIdle, StartedAt: made, Offset: offset(0)}
	}
	if t.ClaimedRun != "" && v.Status != thread.StatusRunning { // the log does not know the run yet
		v.Status = thread.StatusRunning
	}
	v.Row = RowOf(t)
	return v
}

// RowOf returns the row of a thread as its summary has it.
func RowOf(t rows.Thread) *thread.Row {
	if t.Tags == nil {
		t.Tags = []string{}
	}
	return &thread.Row{
		House: t.House, Name: t.Name, Tags: t.Tags, Pinned: t.Pinned, Closed: t.Status == rows.ThreadClosed,
		ParentThread: t.Parent, SandboxID: t.Sandbox, Environment: t.Environment, Agent: t.Agent,
		CreatedAt: thread.Stamp(t.CreatedAt),
	}
}

// markOf returns the cursor of the page behind a thread.
func markOf(t rows.Thread) string { return fmt.Sprintf("row.%d.%s", t.CreatedAt.UnixMicro(), t.ID) }

// parseMark parses a cursor that markOf has made; "" is the start.
func parseMark(cursor string) (m rows.Mark, err error) {
	if cursor == "" {
		return m, nil
	}
	at, id, found := strings.Cut(strings.TrimPrefix(cursor, "row."), ".")
	micros, err := strconv.ParseInt(at, 10, 64)
	if err != nil || !found || !strings.HasPrefix(cursor, "row.") || !thread.ValidThread(id) {
		return m, indexError(index.ErrCursor)
	}
	return rows.Mark{CreatedAt: time.UnixMicro(micros), ID: id}, nil
}

// rowChanges makes a query of changes one of rows: only has the threads that the rows have, and with adds theirs.
func (s *Server) rowChanges(q *index.Query, rq rowQuery) (with func(thread.Summary) thread.Summary) {
	found := map[string]rows.Thread{}
	q.Only = func(ctx context.Context, ids []string) (map[string]bool, error) {
		clear(found)
		if len(ids) == 0 {
			return nil, nil
		}
		rq.IDs, rq.Limit = ids, len(ids)
		all, err := s.Rows.Threads(ctx, rq.agent, rq.Query)
		if err != nil {
			return nil, s.rowError(err)
		}
		may := map[string]bool{}
		for _, t := range all {
			found[t.ID], may[t.ID] = t, true
		}
		return may, nil
	}
	return func(v thread.Summary) thread.Summary { return withRow(v, true, found[v.ID]) }
}
