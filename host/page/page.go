// Package page is the page of `arbe serve`: threads for people, in a browser.
//
// Everything is rendered here, with html/template; page.js shows what it is sent, keeps ages and the tab's title
// current, and folds nothing. Style and script are embedded and served by their hash. Nothing is loaded from elsewhere.
//
// # Live
//
// What a thread gets is read and rendered once for all of its viewers, in a room, which passes it to them in chunks of
// server-sent events. A viewer that has just come, or was too slow for its chunks, renders alone what it lacks.
//
// # Access
//
// `arbe open` gets a login code from POST /login/codes with a token of the scope page:open, and opens
// /login#CODE in the browser. A fragment reaches no server, log or referrer. The script takes it out of the address and
// posts it to /login, which spends the code and answers with a session as a cookie: HttpOnly, SameSite=Strict, Secure
// over TLS. A share link is /share#CODE; its session is a cookie of the path /t/ID alone. Package access has the codes
// and sessions.
//
//	anybody          /login, /share, /assets/…
//	page:open        /login/codes, /share/codes
//	login            every path
//	member           the list and the threads of its houses, to read, to chat and to stop bots; it logs in by
//	                 /login#TOKEN
//	share            GET below /t/ID of its thread, but for its session
//
// Each request passes the same checks first: a Host that this server has (a page of another site can give its own name
// a loopback address), and for POST and DELETE an origin that is this server's (http.CrossOriginProtection). GET
// changes nothing. Every answer has a Content-Security-Policy that allows no script or style but those of /assets/, no
// HTML from a script but through the policy "arbe", no other origin, and no frame.
package page

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"arbe.0sk.ar/runner/host/access"
	"arbe.0sk.ar/runner/host/httpd"
	"arbe.0sk.ar/runner/host/index"
	"arbe.0sk.ar/runner/host/log"
	"arbe.0sk.ar/runner/host/log/engine"
	houses "arbe.0sk.ar/runner/host/member"
	"arbe.0sk.ar/runner/host/memory"
	"arbe.0sk.ar/runner/host/rows"
	"arbe.0sk.ar/runner/host/token"
	"arbe.0sk.ar/runner/session"
	"arbe.0sk.ar/runner/thread"
)

// Config is the configuration of a page.
type Config struct {
	Log     *log.Log
	Threads *index.Index // nil where it can't be opened
	Secrets [][]byte     // open sessions and verify tokens, and the first one seals; at least one
	// Local is set for a server that only this machine reaches: it answers to loopback names and to Names. Another one
	// answers to any name where Names is empty.
	Local   bool
	Names   []string        // host names, without ports, by which browsers reach the server
	Closing context.Context // ends live answers when it is done
	Budget  *memory.Budget  // of the memory of all requests; nil for one of the page's own
	Logger  *slog.Logger
	Doors   *houses.Doors // decide what members of houses may see; nil for a server without houses
	// Room returns the house of a thread: who is named on its page. It returns rows.ErrAbsent for a thread without a
	// row. nil for a server without houses.
	Room func(ctx context.Context, thread string) (rows.Room, error)
	// Mentions returns the ids of the bots of a room that a text names, and the names in it that several of them have.
	// It is set where Room is.
	Mentions func(text string, of rows.Room) (ids, shared []string)
	// Harnesses are those whose lines may be on threads; nil for session's list.
	Harnesses session.List
	// Session writes the session of a thread's last run as a file of its harness, from the thread's entries in their
	// order. It returns ErrNoSession for a thread that holds none, and writes nothing before it has all entries. nil
	// for a server that makes no such files.
	Session func(w io.Writer, harness string, entries iter.Seq2[thread.Entry, error]) error
}

// page serves the page.
type page struct {
	Config
	store  access.Store
	tokens *token.Verifier

	rebuilds chan struct{} // has one for each session that is rebuilt
	rooms    rooms
	who      who
}

// Handler returns the handler of the page's paths.
func Handler(c Config) http.Handler { return newPage(c).handler() }

func newPage(c Config) *page {
	if c.Closing == nil {
		c.Closing = context.Background()
	}
	if c.Budget == nil {
		c.Budget = memory.NewBudget(0)
	}
	return &page{
		Config: c, store: access.Store{Log: c.Log}, tokens: token.NewVerifier(c.Secrets),
		rebuilds: make(chan struct{}, mostRebuilds), rooms: rooms{open: map[roomKey]*room{}},
	}
}

func (p *page) handler() http.Handler {
	mux := http.NewServeMux()
	for pattern, h := range map[string]func(http.ResponseWriter, *http.Request) error{
		"GET /assets/{hash}/{name}": p.asset,

		"GET /login":        p.loginPage,
		"POST /login":       p.login,
		"GET /login/state":  p.loginState,
		"POST /login/codes": p.loginCode,
		"POST /logout":      p.logout,

		"GET /share":          p.loginPage,
		"POST /share":         p.openShare,
		"GET /share/codes":    p.shares,
		"POST /share/codes":   p.share,
		"DELETE /share/codes": p.revoke,

		"GET /{$}":  p.list,
		"GET /live": p.live,

		"GET /t/{thread}":                   p.thread,
		"GET /t/{thread}/older":             p.older,
		"GET /t/{thread}/newer":             p.newer,
		"GET /t/{thread}/find":              p.find,
		"GET /t/{thread}/live":              p.threadLive,
		"GET /t/{thread}/raw/{entry}":       p.raw,
		"GET /t/{thread}/image/{entry}/{n}": p.image,
		"GET /t/{thread}/session":           p.sessionFile,

		"POST /t/{thread}/cancel": p.cancel,
		"POST /t/{thread}/chat":   p.chat,
		"POST /t/{thread}/stop":   p.stop,
		"POST /t/{thread}/share":  p.shareHere,
		"POST /t/{thread}/revoke": p.revokeHere,
	} {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) { p.answerError(w, r, h(w, r)) })
	}
	origin := http.NewCrossOriginProtection()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		secure(w.Header())
		switch {
		case !p.has(r.Host):
			p.answerError(w, r, refuse(http.StatusForbidden, "host",
				"this server does not answer to this name: start it with --page-host NAME to add one"))
		case origin.Check(r) != nil:
			p.answerError(w, r, refuse(http.StatusForbidden, "cross_origin", "a page of another origin sent this"))
		default:
			mux.ServeHTTP(w, r)
		}
	})
}

// policy is the Content-Security-Policy of each answer.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'self'; frame-ancestors 'none'; require-trusted-types-for 'script'; " +
	"trusted-types arbe"

// secure sets the headers of each answer.
func secure(h http.Header) {
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store") // the default
}

// has reports whether a request's Host is a name of this server.
func (p *page) has(host string) bool {
	if !p.Local && len(p.Names) == 0 || httpd.LoopbackName(host) {
		return true
	}
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.TrimSuffix(strings.ToLower(host), ".")
	return slices.ContainsFunc(p.Names, func(name string) bool { return strings.EqualFold(name, host) })
}

// problem is an answer to a request that failed.
type problem struct {
	status        int
	code, message string
}

// unsentError is the failure of a request that had a text.
type unsentError struct {
	error
	text string
}

// Unwrap returns the cause.
func (e *unsentError) Unwrap() error { return e.error }

// unsent adds the text that a browser has posted to the error that refuses it: it may have no other copy.
func unsent(err error, text string) error { return &unsentError{err, text} }

// Error implements error.
func (p *problem) Error() string { return p.message }

func refuse(status int, code, format string, args ...any) *problem {
	return &problem{status, code, fmt.Sprintf(format, args...)}
}

// problems are the answers to errors of other packages. The first one that fits holds.
var problems = []struct {
	is     error
	status int
	code   string
	text   string // "" for the error's own
}{
	{access.ErrUnknown, http.StatusUnauthorized, "link", ""},
	{access.ErrUsed, http.StatusUnauthorized, "link", ""},
	{access.ErrExpired, http.StatusUnauthorized, "link", ""},
	{access.ErrRevoked, http.StatusUnauthorized, "link", ""},
	{access.ErrFull, http.StatusTooManyRequests, "full", ""},
	{access.ErrEnded, http.StatusUnauthorized, "expired", "Your login has expired."},
	{access.ErrOut, http.StatusUnauthorized, "logged_out", "You have logged out."},
	{access.ErrForeign, http.StatusUnauthorized, "foreign", "Your login is not of this server."},
	{houses.ErrLogin, http.StatusUnauthorized, "login", "The login is not valid here, or has expired."},
	{rows.ErrOtherLog, http.StatusServiceUnavailable, "other_log", "The database is of another log."},
	{rows.ErrOlder, http.StatusServiceUnavailable, "schema", "The database has to be migrated."},
	{rows.ErrNewer, http.StatusServiceUnavailable, "schema", "The database is that of a newer arbe."},
	{houses.ErrRows, http.StatusServiceUnavailable, "houses", "The houses can't be read now. Come again."},
	{houses.ErrNoKeys, http.StatusServiceUnavailable, "houses", "The houses can't be read now. Come again."},
	{index.ErrAbsent, http.StatusNotFound, "not_found", errNoThread.message},
	{log.ErrAbsent, http.StatusNotFound, "not_found", errNoThread.message},
	{log.ErrGone, http.StatusNotFound, "not_found", errNoThread.message},
	{index.ErrBuilding, http.StatusServiceUnavailable, "building", "The list of threads is being made. Come again."},
	{index.ErrCursor, http.StatusBadRequest, "cursor", "cursor: want the one of the page before"},
	{memory.ErrShare, http.StatusTooManyRequests, "share", "Too many entries are being read at the same time."},
	{memory.ErrBusy, http.StatusServiceUnavailable, "busy", "The server has no memory for this now. Come again."},
	{engine.ErrFull, http.StatusInsufficientStorage, "full", "The log's disk is full."},
}

// problemOf returns the answer to an error; nil for one of the log.
func problemOf(err error) *problem {
	if p, ok := errors.AsType[*problem](err); ok {
		return p
	}
	for _, p := range problems {
		if errors.Is(err, p.is) {
			return &problem{p.status, p.code, cmp.Or(p.text, err.Error())}
		}
	}
	return nil
}

// answerError answers a request that failed; it does nothing for nil. A browser that asks for a page gets one, others
// JSON.
func (p *page) answerError(w http.ResponseWriter, r *http.Request, err error) {
	if err == nil {
		return
	}
	answer := problemOf(err)
	if answer == nil {
		if r.Context().Err() != nil {
			return // the client is gone
		}
		p.Logger.Error("page failed", "method", r.Method, "path", r.URL.Path, "error", err)
		answer = &problem{http.StatusServiceUnavailable, "unavailable", "The log can't do this now."}
	}
	if answer.status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "1")
	}
	if (r.Method == http.MethodGet || isForm(r)) && strings.Contains(r.Header.Get("Accept"), "text/html") {
		shown := problemPage{
			frame: newFrame("arbe"), Message: answer.message, Login: answer.status == http.StatusUnauthorized,
		}
		if u, is := errors.AsType[*unsentError](err); is {
			shown.Unsent = u.text
		}
		p.render(w, answer.status, "problem", shown)
		return
	}
	answerJSON(w, answer.status, map[string]any{
		"error": map[string]string{"code": answer.code, "message": answer.message},
	})
}

// answerJSON answers with a value. The client may be gone.
func answerJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(thread.Marshal(v), '\n'))
}

// now is the time of a request, in the precision of the log.
func now() time.Time { return time.Now().Truncate(time.Millisecond) }
