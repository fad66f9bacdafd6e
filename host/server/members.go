package server

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"arbe.0sk.ar/runner/host/member"
	"arbe.0sk.ar/runner/host/rows"
	"arbe.0sk.ar/runner/host/token"
	"arbe.0sk.ar/runner/thread"
)

// errNoThread is the answer about a thread that does not exist, and to a member about a thread of a house that is not
// the member's: ids can't be probed.
var errNoThread = refuse(http.StatusNotFound, "not_found", "the thread was never written")

// member returns the member whose login token a request has; false for a request with another token, or none.
func (s *Server) member(r *http.Request) (m member.Member, is bool, err error) {
	signed := bearer(r.Header.Get("Authorization"))
	if s.Doors == nil || !member.IsLogin(signed) {
		return m, false, nil
	}
	if _, err := s.verify(signed); err == nil {
		return m, false, nil
	}
	m, err = s.Doors.Member(r.Context(), signed)
	s.logRows(err)
	return m, true, err
}

// logRows logs that the rows about houses can't be read.
func (s *Server) logRows(err error) {
	if errors.Is(err, member.ErrRows) && !errors.Is(err, context.Canceled) {
		s.Logger.Warn("houses not read", "error", err)
	}
}

// mayOpen returns errNoThread for a thread that a member may not open.
func (s *Server) mayOpen(ctx context.Context, m member.Member, id string) error {
	if !thread.ValidThread(id) {
		return errNoThread
	}
	may, err := s.Doors.MayOpen(ctx, m, id)
	s.logRows(err)
	if err == nil && !may {
		err = errNoThread
	}
	return err
}

// permitHouse refuses a token of a house for what is not the house's. Where the house of its thread can't be read, the
// token is good: the server signed it for this thread, and a run must not end with the database.
func (s *Server) permitHouse(ctx context.Context, g token.Grant) error {
	if s.Doors == nil || g.House == "" || g.Stream == token.SubjectThreads {
		return nil
	}
	if isThread(g.Stream) {
		house, err := s.Doors.HouseOf(ctx, threadOf(g))
		s.logRows(err)
		if err != nil || house == g.House {
			return nil
		}
	}
	return errWrongHouse
}

var errWrongHouse = refuse(http.StatusForbidden, "wrong_house", "the token is for the threads of another house")

// listPermit is what a request for the list of threads may read.
type listPermit struct {
	grant token.Grant
	only  func(context.Context, []string) (map[string]bool, error) // which of some threads; nil for all
	rows  *rowQuery                                                // nil for a list that is read from the index
}

// permitList checks that a request may read the list of threads.
func (s *Server) permitList(r *http.Request) (p listPermit, err error) {
	m, is, err := s.member(r)
	switch {
	case err != nil:
		return p, err
	case is:
		p.grant, p.only = memberGrant(m), s.Doors.Filter(m.Agent)
		p.rows, err = s.rowsOfMember(r.URL.Query(), m)
		return p, err
	}
	g, err := s.permit(r.Context(), r.Header.Get("Authorization"), token.SubjectThreads, token.ScopeThreads)
	if err != nil {
		return p, err
	}
	if p.grant = g; s.Doors != nil && g.House != "" {
		p.only = func(ctx context.Context, ids []string) (map[string]bool, error) {
			return s.Doors.Open(ctx, member.Member{Houses: []string{g.House}}, ids)
		}
	}
	p.rows, err = s.rowsOfToken(r.URL.Query(), g)
	return p, err
}

// permitSummary checks that a request may read the summary of a thread: with a token of the thread or of the list, or
// as a member of its house. For a member it returns the thread's row, where there are rows.
func (s *Server) permitSummary(r *http.Request, id string) (*rows.Thread, error) {
	m, is, err := s.member(r)
	switch {
	case err != nil:
		return nil, err
	case is && s.Rows != nil:
		return s.rowOf(r.Context(), m, id)
	case is:
		return nil, s.mayOpen(r.Context(), m, id)
	case !thread.ValidThread(id):
		return nil, errBadThread
	}
	authorization := r.Header.Get("Authorization")
	if g, err := s.verify(bearer(authorization)); err != nil || g.Stream != token.SubjectThreads {
		_, err := s.permit(r.Context(), authorization, thread.StreamName(id), token.ScopeRead)
		return nil, err
	}
	g, err := s.permit(r.Context(), authorization, token.SubjectThreads, token.ScopeThreads)
	if err == nil && s.Doors != nil && g.House != "" {
		err = s.mayOpen(r.Context(), member.Member{Houses: []string{g.House}}, id)
	}
	return nil, err
}

// rowOf returns the row of a thread of a member's houses, or errNoThread.
func (s *Server) rowOf(ctx context.Context, m member.Member, id string) (*rows.Thread, error) {
	if !thread.ValidThread(id) {
		return nil, errNoThread
	}
	t, err := s.Rows.Thread(ctx, m.Agent, id)
	switch {
	case errors.Is(err, rows.ErrAbsent):
		return nil, errNoThread
	case err != nil:
		return nil, s.rowError(err)
	}
	return &t, nil
}

// permitSettle checks that a request may settle a thread: with a write token that is for no single run, or as a member
// of its house.
func (s *Server) permitSettle(r *http.Request, id string) error {
	switch m, is, err := s.member(r); {
	case err != nil:
		return err
	case is:
		return s.mayOpen(r.Context(), m, id)
	}
	if !thread.ValidThread(id) {
		return errBadThread
	}
	g, err := s.permit(r.Context(), r.Header.Get("Authorization"), thread.StreamName(id), token.ScopeWrite)
	if err == nil && g.Run != "" {
		err = refuse(http.StatusForbidden, "wrong_run", "a run's token does not settle its thread")
	}
	return err
}

var errBadThread = refuse(http.StatusNotFound, "not_found", "no such thread: want a threadId of A-Z a-z 0-9 _ -")

// permitMember returns the grant of a member for a thread of its houses.
func (s *Server) permitMember(r *http.Request, scope string) (token.Grant, error) {
	if s.Doors == nil {
		return token.Grant{}, errNoHouses
	}
	m, is, err := s.member(r)
	switch {
	case err != nil:
		return token.Grant{}, err
	case !is && bearer(r.Header.Get("Authorization")) == "":
		return token.Grant{}, refuse(http.StatusUnauthorized, "no_token", "a member's login token is required")
	case !is:
		return token.Grant{}, refuse(http.StatusUnauthorized, "invalid_token", "want a member's login token")
	}
	id := r.PathValue("id")
	if err := s.mayOpen(r.Context(), m, id); err != nil {
		return token.Grant{}, err
	}
	g := token.Grant{Stream: thread.StreamName(id), Scope: []string{scope}, Author: m.Agent}
	return g.By("member " + m.Agent), nil
}

// memberEntries serves the entries of a thread to members of its house, as the thread API does.
func (s *Server) memberEntries(w http.ResponseWriter, r *http.Request) error {
	g, err := s.permitMember(r, token.ScopeRead)
	if err != nil {
		return err
	}
	return s.read(w, r, g)
}

// Bounds of a member's post.
const (
	memberBody = 1 << 20   // bytes of the body
	memberText = 256 << 10 // bytes of the text
	memberKey  = 100       // characters of an idempotency key
)

// memberPost posts a chat to a thread, as a member of its house.
func (s *Server) memberPost(w http.ResponseWriter, r *http.Request) error {
	g, err := s.permitMember(r, token.ScopeWrite)
	if err != nil {
		return err
	}
	id, err := memberEntryID(g.Author, r.Header.Values("Idempotency-Key"))
	if err != nil {
		return err
	}
	body, free, err := s.readJSON(w, r, g, memberBody)
	if err != nil {
		return err
	}
	defer free()
	payload, err := parseChat(body, g.Author)
	if err == nil {
		err = s.refuseClosed(r.Context(), r.PathValue("id"))
	}
	if err != nil {
		return err
	}
	res, err := s.Log.Append(r.Context(), threadOf(g), []thread.Entry{{
		ID: id, TS: thread.Stamp(time.Now()), AuthorID: g.Author, Payload: payload,
	}})
	if err != nil {
		return err
	}
	w.Header().Set(headerNext, offset(res.Next))
	w.Header().Set("Content-Type", jsonType)
	if res.Appended > 0 {
		w.WriteHeader(http.StatusCreated)
	}
	_, _ = w.Write(append(thread.Marshal(struct {
		ID         string `json:"id"`
		NextOffset string `json:"nextOffset"`
	}{id, offset(res.Next)}), '\n')) // the client may be gone
	return nil
}

// refuseClosed refuses a member's chat in a thread that was closed.
func (s *Server) refuseClosed(ctx context.Context, id string) error {
	closed, err := s.Doors.IsClosed(ctx, id)
	s.logRows(err)
	if err == nil && closed {
		err = refuse(http.StatusConflict, "closed", "the thread is closed: open it again to post")
	}
	return err
}

// memberEntryID returns the id of a member's entry. Of one key it is always the same, so that a post can be repeated.
// It begins so that it is no id of a run or of another member.
func memberEntryID(agent string, keys []string) (string, error) {
	if len(keys) == 0 {
		return "member." + agent + "." + strings.ToLower(rand.Text()), nil
	}
	id := "member." + agent + "." + keys[0]
	if len(keys) > 1 || keys[0] == "" || len(keys[0]) > memberKey || !thread.ValidID(id) {
		return "", refuse(http.StatusBadRequest, "idempotency_key",
			"Idempotency-Key: want 1 to %d characters of A-Z a-z 0-9 . _ : ~ -, once", memberKey)
	}
	return id, nil
}

// parseChat returns the payload of a member's post. A member posts chats alone, under its own name: signals, lines of
// sessions and prompts of runs are refused.
func parseChat(body []byte, author string) (json.RawMessage, error) {
	var e struct {
		AuthorID *string         `json:"authorId"`
		Payload  json.RawMessage `json:"payload"`
	}
	if err := decodeStrictly(body, &e); err != nil {
		return nil, refuse(http.StatusBadRequest, "json", `want {"payload":{"type":"chat","text":"…"}}: %v`, err)
	}
	if e.AuthorID != nil && *e.AuthorID != author {
		return nil, refuse(http.StatusForbidden, "wrong_author", "a member posts as itself: leave authorId out")
	}
	var kind struct {
		Type string `json:"type"`
	}
	if json.Unmarshal(e.Payload, &kind) == nil && kind.Type != "" && kind.Type != thread.TypeChat {
		return nil, refuse(http.StatusForbidden, "chats_only", "a member posts chats only, no %.40q", kind.Type)
	}
	var chat struct {
		Type    string `json:"type"`
		Text    string `json:"text"`
		Deliver string `json:"deliver,omitempty"`
	}
	err := decodeStrictly(e.Payload, &chat)
	switch {
	case err != nil:
		return nil, refuse(http.StatusBadRequest, "payload", "want type, text and deliver alone: %v", err)
	case chat.Type != thread.TypeChat || strings.TrimSpace(chat.Text) == "" || len(chat.Text) > memberText:
		return nil, refuse(http.StatusBadRequest, "payload",
			"want the type chat, and a text of 1 to %d bytes", memberText)
	case chat.Deliver != "" && !slices.Contains(delivers, chat.Deliver):
		return nil, refuse(http.StatusBadRequest, "deliver", "deliver: want steer, followUp or interrupt")
	}
	return thread.Marshal(chat), nil
}

// delivers are the values of a chat's deliver.
var delivers = []string{thread.DeliverSteer, thread.DeliverFollowUp, thread.DeliverInterrupt}

// decodeStrictly parses one JSON object without members that v lacks.
func decodeStrictly(b []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("there is more than one value")
	}
	return nil
}
