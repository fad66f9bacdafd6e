package daytona

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"

	"arbe.0sk.ar/runner/host/sandbox/kit"
)

// apiError is an answer without success.
type apiError struct {
	doing   string
	status  int
	message string
	path    string // in the body, if that is an error of the control plane
	own     bool   // the body is an error of the control plane, of this status
}

func (e *apiError) Error() string {
	why := cmp.Or(e.message, http.StatusText(e.status), "without a reason")
	return fmt.Sprintf("daytona: %s: %d %s", e.doing, e.status, why)
}

// answered reports whether err is an answer with one of the statuses.
func answered(err error, statuses ...int) bool {
	e, is := errors.AsType[*apiError](err)
	return is && slices.Contains(statuses, e.status)
}

// notFound reports whether err is the control plane's answer for an id or a name that no sandbox has:
//
//	{"path":"/api/sandbox/x","statusCode":404,"error":"Not Found","message":"Sandbox with ID or name x not found",…}
//
// Any other 404 is no evidence: it may come from an ingress without a backend, from another program, or from another
// route of the API ("Cannot GET /…"), which a wrong address leads to.
func notFound(err error, id string) bool {
	e, is := errors.AsType[*apiError](err)
	if id == "" || !is || e.status != http.StatusNotFound || !e.own {
		return false
	}
	message := strings.TrimSuffix(strings.ToLower(e.message), ".")
	if !strings.HasSuffix(message, "not found") || !strings.Contains(message, "sandbox") {
		return false
	}
	named := regexp.MustCompile(`(^|[^\w-])` + regexp.QuoteMeta(id) + `([^\w-]|$)`)
	asked, _, _ := strings.Cut(e.path, "?")
	return path.Base(asked) == id || named.MatchString(e.message)
}

// whole reads each answer to its end, so that a truncated answer is an error, and retried if that is safe.
type whole struct{ next http.RoundTripper }

func (w whole) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := w.next.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if err = errors.Join(err, resp.Body.Close()); err != nil {
		return nil, err
	}
	if len(body) > maxAnswer {
		return nil, fmt.Errorf("the answer is larger than %d bytes", maxAnswer)
	}
	resp.Body = io.NopCloser(bytes.NewReader(body))
	return resp, nil
}

// read decodes an answer into q.into, or returns an error that begins with q.doing.
func (c *client) read(q request, resp *http.Response, err error) error {
	secrets := append([]string{c.key}, q.secrets...)
	if err != nil {
		if resp != nil { // there is an answer, too, if ctx has ended meanwhile
			err = errors.Join(err, resp.Body.Close())
		}
		if ue, is := errors.AsType[*url.Error](err); is {
			err = ue.Err
		}
		return kit.Redacted(fmt.Errorf("daytona: %s: %w", q.doing, err), secrets...)
	}
	body, err := io.ReadAll(resp.Body) // it is whole
	if err = errors.Join(err, resp.Body.Close()); err != nil {
		return fmt.Errorf("daytona: %s: %w", q.doing, err)
	}
	if resp.StatusCode/100 != 2 {
		return refusal(q.doing, resp, body, secrets)
	}
	if q.into == nil {
		return nil
	}
	if err := json.Unmarshal(body, q.into); err != nil {
		return fmt.Errorf("daytona: %s: the answer can't be read: %w", q.doing, err)
	}
	return nil
}

// refusal returns the error of an answer without success.
func refusal(doing string, resp *http.Response, body []byte, secrets []string) *apiError {
	message := cmp.Or(problem(resp.Header.Get("Content-Type"), body), http.StatusText(resp.StatusCode))
	e := &apiError{doing: doing, status: resp.StatusCode, message: kit.Redact(message, secrets...)}
	var own struct {
		StatusCode int     `json:"statusCode"`
		Message    *string `json:"message"`
		Path       string  `json:"path"`
	}
	if json.Unmarshal(body, &own) == nil && own.Message != nil && own.StatusCode == resp.StatusCode {
		e.own, e.path = true, own.Path
	}
	return e
}

// problem returns the error message in an answer; "" if it has none. Each part of Daytona has a format of its own.
func problem(contentType string, body []byte) string {
	var p struct {
		Message json.RawMessage `json:"message"`
		Errors  []string        `json:"errors"`
		Error   json.RawMessage `json:"error"`
		Code    string          `json:"code"`
	}
	if json.Unmarshal(body, &p) != nil {
		if strings.HasPrefix(contentType, "text/html") {
			return "" // a page of another server, which explains nothing
		}
		return kit.Clip(string(body))
	}
	var list []string
	for _, raw := range []json.RawMessage{p.Message, p.Error} {
		var one string
		if json.Unmarshal(raw, &list) == nil && len(list) > 0 {
			return kit.Clip(strings.Join(list, "; "))
		}
		if json.Unmarshal(raw, &one) == nil && one != "" {
			return kit.Clip(one)
		}
		if len(p.Errors) > 0 {
			return kit.Clip(strings.Join(p.Errors, "; "))
		}
	}
	return kit.Clip(p.Code)
}

// Busy reports whether the call may succeed when it is repeated later, for sandbox.Temporary.
func (e *apiError) Busy() bool {
	return slices.Contains([]int{
		http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout,
	}, e.status)
}
