package provider

import (
	"errors"
	"io"
	"mime"
	"net/http"
	"time"

	"arbe.0sk.ar/runner/host/model"
)

const (
	mostBytes = 64 << 20 // of an answer: 128,000 tokens, each an event of its own, have 40 MB
	mostError = 64 << 10 // of an answer that is no stream

	restBytes = 4 << 10 // behind the last event
	restTime  = 100 * time.Millisecond
)

// watch is the transport and the answer of one request. The timer runs only while the provider is waited for: what
// the caller does with an event takes as long as it takes. All of it is used by one goroutine.
type watch struct {
	next    http.RoundTripper
	timer   *time.Timer
	silence time.Duration
	left    int64 // bytes that the answer may still have

	sent  bool
	body  io.ReadCloser
	broke error // what ended the connection, but for the answer's regular end
}

// RoundTrip implements http.RoundTripper. An answer that is no stream is an error, so that no client follows a redirect
// or reads a body without a bound.
func (w *watch) RoundTrip(r *http.Request) (*http.Response, error) {
	w.sent = true
	w.timer.Reset(w.silence)
	resp, err := w.next.RoundTrip(r)
	w.timer.Stop()
	if err != nil {
		w.broke = err
		return nil, err
	}
	w.body = resp.Body
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")) // "" is no stream either
	if resp.StatusCode == http.StatusOK && kind == "text/event-stream" {
		resp.Body = w
		return resp, nil
	}
	defer w.Close()
	body, _ := io.ReadAll(io.LimitReader(w, mostError)) // the status counts, even where the text is cut
	return nil, refused(resp, kind, body)
}

// Read reads from the answer.
func (w *watch) Read(p []byte) (int, error) {
	w.timer.Reset(w.silence)
	n, err := w.body.Read(p)
	w.timer.Stop()
	if err != nil && !errors.Is(err, io.EOF) {
		w.broke = err
	}
	if w.left -= int64(n); w.left < 0 {
		return 0, &model.Error{Kind: model.Garbage, Message: "the provider's answer is too large"}
	}
	return n, err
}

// Close closes the answer. Its connection can be used again if the answer has ended: nobody reads further than the
// last event, which stands just before the end.
func (w *watch) Close() error {
	w.timer.Reset(restTime)
	_, _ = io.CopyN(io.Discard, w.body, restBytes) // an answer that continues costs its connection
	w.timer.Stop()
	return w.body.Close()
}
