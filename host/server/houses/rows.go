package houses

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
	"arbe.0sk.ar/runner/host/server/request"
	"arbe.0sk.ar/runner/host/token"
	"arbe.0sk.ar/runner/thread"
)

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
func (a *API) rowError(err error) error {
	if err == nil || errors.As(err, new(*request.Problem)) || errors.As(err, new(*logError)) {
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
		return request.Refuse(r.status, r.code, "%s", cmp.Or(r.text, text))
	}
	err = fmt.Errorf("%w: %w", member.ErrRows, err)
	a.LogRows(err)
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
	return "", request.Refuse(http.StatusBadRequest, "house", "want a house: you are a member of %d", len(m.Houses))
}

// errNoHouse is the answer about a house that does not exist, or is not the member's.
var errNoHouse = request.Refuse(http.StatusNotFound, "not_found", "you are a member of no such house")

// readRow reads the JSON object of a request about a row into v. secret is set where an error must not quote the body.
func (a *API) readRow(
	w http.ResponseWriter, r *http.Request, m member.Member, most int64, v any, secret bool,
) error {
	body, free, err := a.ReadJSON(w, r, request.MemberGrant(m), most)
	if err != nil {
		return err
	}
	defer free()
	switch err := request.DecodeStrictly(body, v); {
	case err == nil:
		return nil
	case secret:
		return request.Refuse(http.StatusBadRequest, "json", "the body is not as this route has it")
	default:
		return request.Refuse(http.StatusBadRequest, "json", "the body is not as this route has it: %v", err)
	}
}

// Query is the part of a list's query that is about rows.
type Query struct {
	rows.Query
	agent string // for which the rows are read; "" for the host
}

// rowFilters are the parameters of the list that are about rows.
var rowFilters = []string{"house", "tag", "pinned", "parent"}

// mostTags bounds the tags of a query and of a thread.
const mostTags = 32

// parseRowQuery parses the parameters of the list that are about rows. asked reports whether any was set.
func parseRowQuery(values url.Values) (q rows.Query, asked bool, err error) {
	asked = slices.ContainsFunc(rowFilters, values.Has)
	q.House, q.Parent, q.Tags = values.Get("house"), values.Get("parent"), values["tag"]
	if len(q.Tags) > mostTags || slices.Contains(q.Tags, "") {
		return q, asked, request.Refuse(http.StatusBadRequest, "tag", "tag: want 1 to %d tags, none of them empty",
			mostTags)
	}
	switch given := values.Get("pinned"); given {
	case "":
	case "true":
		q.Pinned = true
	default:
		return q, asked, request.Refuse(http.StatusBadRequest, "pinned", "pinned=%.20q: want true", given)
	}
	return q, asked, nil
}

// QueryOfMember returns the query of a member's list. It is nil without rows: then the list is read from the index.
func (a *API) QueryOfMember(values url.Values, m member.Member) (*Query, error) {
	q, asked, err := parseRowQuery(values)
	switch {
	case err != nil:
		return nil, err
	case a.Rows == nil && asked:
		return nil, request.ErrNoHouses
	case a.Rows == nil:
		return nil, nil
	case q.House != "" && !slices.Contains(m.Houses, q.House):
		return nil, errNoHouse
	}
	return &Query{q, m.Agent}, nil
}

// QueryOfToken returns the query of a list for a token. It is nil where no parameter is about rows: such a list needs
// no database. A token names a house, or is of one.
func (a *API) QueryOfToken(values url.Values, g token.Grant) (*Query, error) {
	q, asked, err := parseRowQuery(values)
	switch {
	case err != nil || !asked:
		return nil, err
	case a.Rows == nil:
		return nil, request.ErrNoHouses
	case q.House == "":
		q.House = g.House
	case g.House != "" && g.House != q.House:
		return nil, request.ErrWrongHouse
	}
	if q.House == "" {
		return nil, request.Refuse(http.StatusBadRequest, "house", "want a house: a token of the list names one")
	}
	return &Query{q, ""}, nil
}

// List returns a page of the list from rows, the newest thread first.
func (a *API) List(ctx context.Context, q index.Query, rq Query) (page thread.SummaryPage, err error) {
	page.Threads = []thread.Summary{}
	rq.Statuses, rq.Limit = q.Statuses, q.Limit
	if rq.After, err = parseMark(q.Cursor); err != nil {
		return page, err
	}
	all, err := a.Rows.As(rq.agent).Threads(ctx, rq.Query)
	if err != nil {
		return page, a.rowError(err)
	}
	ids := make([]string, len(all))
	for i, t := range all {
		ids[i] = t.ID
	}
	summaries, err := a.Index.Summaries(ctx, ids)
	if err != nil {
		return page, err
	}
	for _, t := range all {
		v, is := summaries[t.ID]
		if v = WithRow(v, is, t); q.Covers(v) {
			page.Threads = append(page.Threads, v)
		}
	}
	if n := len(all); n == q.Limit {
		page.Cursor = markOf(all[n-1])
	}
	return page, nil
}

// WithRow returns a thread's summary with its row; of a thread without entries, where is is false, with nothing else.
func WithRow(v thread.Summary, is bool, t rows.Thread) thread.Summary {
	made := thread.Stamp(t.CreatedAt)
	if !is {
		v = thread.Summary{ID: t.ID, Status: thread.StatusIdle, StartedAt: made, Offset: request.Offset(0)}
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
		ParentAgent: t.ParentAgent, Config: t.Config, CreatedAt: thread.Stamp(t.CreatedAt),
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
		return m, index.ErrCursor
	}
	return rows.Mark{CreatedAt: time.UnixMicro(micros), ID: id}, nil
}

// Changes makes a query of changes one of rows: only has the threads that the rows have, and with adds theirs.
func (a *API) Changes(q *index.Query, rq Query) (with func(thread.Summary) thread.Summary) {
	found := map[string]rows.Thread{}
	q.Only = func(ctx context.Context, ids []string) (map[string]bool, error) {
		clear(found)
		if len(ids) == 0 {
			return nil, nil
		}
		rq.IDs, rq.Limit = ids, len(ids)
		all, err := a.Rows.As(rq.agent).Threads(ctx, rq.Query)
		if err != nil {
			return nil, a.rowError(err)
		}
		may := map[string]bool{}
		for _, t := range all {
			found[t.ID], may[t.ID] = t, true
		}
		return may, nil
	}
	return func(v thread.Summary) thread.Summary { return WithRow(v, true, found[v.ID]) }
}
