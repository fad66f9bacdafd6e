package client

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"arbe.0sk.ar/runner/thread"
)

// StatusError is an answer of the server that is no success.
type StatusError struct {
	Status  int
	Code    string            // error.code of the answer; "" where it has none
	Message string            // error.message of the answer, or the beginning of its body
	Entries []thread.BadEntry // the refused entries, where the answer lists them

	page bool // the answer is a page of HTML, of a proxy in front of the server
}

func (e *StatusError) Error() string {
	name := http.StatusText(e.Status)
	switch e.Status {
	case http.StatusUnauthorized:
		name = "the token is missing, wrong or expired"
	case http.StatusForbidden:
		name = "the token does not allow this"
	case http.StatusConflict:
		name = "an id is taken by another payload"
	}
	s := fmt.Sprintf("%d %s", e.Status, name)
	if e.Message != "" {
		s += ": " + e.Message
	}
	return s
}

// answerOf returns the StatusError in err; an empty one for any other error.
func answerOf(err error) *StatusError {
	if answer, is := errors.AsType[*StatusError](err); is {
		return answer
	}
	return &StatusError{}
}

func statusOf(err error) int { return answerOf(err).Status }

func codeOf(err error) string { return answerOf(err).Code }

// lists reports whether err names the entries that the server refuses.
func lists(err error) bool { return len(answerOf(err).Entries) > 0 }

// Refused reports whether the server refused the token: 401 or 403.
func Refused(err error) bool {
	status := statusOf(err)
	return status == http.StatusUnauthorized || status == http.StatusForbidden
}

// Taken reports whether an entry's id is on the thread with another payload (409).
func Taken(err error) bool { return statusOf(err) == http.StatusConflict }

// BadEntries reports whether the server refuses the entries themselves: they are bad or too large.
func BadEntries(err error) bool { return refusesEntries(err) && !Taken(err) }

// NotFound reports whether there is no such thread: it was never written (404), or it is Gone.
func NotFound(err error) bool { return statusOf(err) == http.StatusNotFound || Gone(err) }

// Gone reports whether the thread was deleted (410). Its id is not given again: no later request gets another answer.
func Gone(err error) bool { return statusOf(err) == http.StatusGone }

// NoThread reports whether err is a thread server's answer that the thread does not exist.
func NoThread(err error) bool { return Gone(err) || NotFound(err) && codeOf(err) == codeNotFound }

// Redirected reports whether err means that the server has another address.
func Redirected(err error) bool { return statusOf(err)/100 == 3 }

// Foreign reports whether err is an answer that no thread server gives: a page of HTML, or a refusal of the route
// without the error of a thread server. Some other server has the address, or a proxy in front of the thread server.
func Foreign(err error) bool {
	answer := answerOf(err)
	switch answer.Status {
	case http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusNotImplemented:
		return answer.Code == ""
	}
	return answer.page || errors.Is(err, errPage)
}

// refusesEntries reports whether err is the server's answer on the entries of a post. A page of HTML is of a proxy: it
// means nothing for them, except with the status of a post that is too large.
func refusesEntries(err error) bool {
	answer := answerOf(err)
	switch answer.Status {
	case http.StatusBadRequest, http.StatusConflict:
		return !answer.page
	}
	return answer.Status == http.StatusRequestEntityTooLarge
}

// statusError reads the answer's error, whatever shape it has.
func statusError(resp *http.Response) error {
	se := &StatusError{Status: resp.StatusCode, page: claimsHTML(resp)}
	if resp.StatusCode/100 == 3 {
		se.Message = redirectMessage(resp)
		return se
	}
	b, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<20)) // the beginning of a body that broke off serves
	var answer struct {
		Error struct {
			Code    string            `json:"code"`
			Message string            `json:"message"`
			Entries []thread.BadEntry `json:"entries"`
		} `json:"error"`
	}
	if json.Unmarshal(b, &answer) == nil && (answer.Error.Message != "" || answer.Error.Code != "") {
		se.Code, se.Message, se.Entries = answer.Error.Code, answer.Error.Message, answer.Error.Entries
		for i := range se.Entries {
			se.Entries[i].Status = se.Status
		}
		return se
	}
	line, _, _ := strings.Cut(strings.TrimSpace(string(b)), "\n")
	se.page = se.page || strings.HasPrefix(line, "<")
	se.Message = strings.ToValidUTF8(line[:min(len(line), 200)], "\uFFFD")
	return se
}

// redirectMessage names the target of a redirect, as a base URL where it is one, without user, password and query.
func redirectMessage(resp *http.Response) string {
	const unfollowed = "redirects are not followed"
	to, err := resp.Location()
	if err != nil {
		return unfollowed
	}
	clean := url.URL{Scheme: to.Scheme, Host: to.Host, Path: to.Path}
	at := clean.String()
	if base, _, ok := strings.Cut(at, "/"+thread.StreamName("")); ok {
		at = base
	}
	return "redirected to " + at + ", and " + unfollowed + ": set ARBE_STREAM_URL to the thread server's own address"
}
