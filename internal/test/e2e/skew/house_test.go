package skew_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"arbe.0sk.ar/runner/internal/test/postgres"
	"arbe.0sk.ar/runner/thread"
)

// The members of the house.
const (
	ann  = "0a000000-0000-4000-8000-000000000001"
	piet = "0d000000-0000-4000-8000-000000000003"
)

// house is a Postgres with a house: ann, who owns it, the bot piet, and an environment of local boxes.
type house struct {
	t     *testing.T
	url   string
	token string // ann's
}

// newHouse makes a house in a database with the schema of a version.
func newHouse(t *testing.T, s *site, v version) *house {
	t.Helper()
	_, url := postgres.Own(t)
	s.env = append(s.env, "ARBE_DATABASE="+url)
	h := &house{t: t, url: url}
	s.arbe(v, "db", "migrate")
	h.sql(`insert into agents (id, kind, runtime, name) values ('`+ann+`', 'human', null, 'ann'),
			('`+piet+`', 'bot', 'pi', 'piet')`,
		`insert into houses (id, name) values ('h1', 'lab')`,
		`insert into members (house_id, agent_id, role) values ('h1', '`+ann+`', 'owner'), ('h1', '`+piet+`', 'member')`,
		`insert into environments (id, house_id, name, runtime, config) values ('e1', 'h1', 'base', 'local', '{}')`)
	h.token = s.arbe(v, "token", "mint", "--scope", "member", "--agent", ann)
	return h
}

// sql changes rows as their owner.
func (h *house) sql(statements ...string) {
	h.t.Helper()
	h.with(func(ctx context.Context, c *pgx.Conn) (err error) {
		for _, s := range statements {
			_, one := c.Exec(ctx, s)
			err = errors.Join(err, one)
		}
		return err
	})
}

// text returns the only value of a query.
func (h *house) text(sql string) (v string) {
	h.t.Helper()
	h.with(func(ctx context.Context, c *pgx.Conn) error { return c.QueryRow(ctx, sql).Scan(&v) })
	return v
}

func (h *house) with(f func(context.Context, *pgx.Conn) error) {
	h.t.Helper()
	ctx := context.WithoutCancel(h.t.Context())
	c, err := pgx.Connect(ctx, h.url)
	if err != nil {
		h.t.Fatal(err)
	}
	if err := errors.Join(f(ctx, c), c.Close(ctx)); err != nil {
		h.t.Fatal(err)
	}
}

// thread makes a thread of the house.
func (h *house) thread(id string) string {
	h.t.Helper()
	h.sql(`insert into threads (id, stream_id, house_id, environment_id) values ('` + id + `', '` + id + `', 'h1', 'e1')`)
	return id
}

// asks makes a request of ann to a server, and returns the answer.
func (h *house) asks(addr, method, path, body string, headers ...string) (status int, answer string, err error) {
	req, err := http.NewRequestWithContext(context.WithoutCancel(h.t.Context()), method, "http://"+addr+path,
		bytes.NewBufferString(body))
	if err != nil {
		return 0, "", err
	}
	req.Header.Set("Authorization", "Bearer "+h.token)
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, "", err
	}
	b, err := io.ReadAll(resp.Body)
	return resp.StatusCode, strings.TrimSpace(string(b)), errors.Join(err, resp.Body.Close())
}

// gets checks the answer to a request of ann's for her threads.
func (h *house) gets(addr string, want int, part string) {
	h.t.Helper()
	status, answer, err := h.asks(addr, http.MethodGet, "/api/threads", "")
	if err != nil || status != want || !strings.Contains(answer, part) {
		h.t.Errorf("ann's threads: %d %s, %v; want %d with %s", status, answer, err, want, part)
	}
}

// results returns how often a thread has the result of a task, as a chat and as a signal.
func results(entries []thread.Entry, task string) (chats, signals int) {
	for _, e := range entries {
		switch f := thread.TypeOf(e.Payload); {
		case !strings.HasPrefix(e.ID, task+"."):
		case f == thread.TypeChat:
			chats++
		case f == thread.TypeChildFinished:
			signals++
		}
	}
	return chats, signals
}
