package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"arbe.0sk.ar/runner/thread"
	"arbe.0sk.ar/runner/thread/client"
)

// askIdle is the time without a byte after which a request fails.
const askIdle = 2 * time.Minute

// ask sends a request outside of the thread API to the server at url and returns the answer's body, which the caller
// closes. An answer without success is a *client.StatusError.
func ask(ctx context.Context, method, url, path, token string) (io.ReadCloser, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	idle := time.AfterFunc(askIdle, func() { cancel(fmt.Errorf("no data for %v", askIdle)) })
	body := &answerBody{idle: idle, ctx: ctx, end: func() { idle.Stop(); cancel(nil) }}
	at := strings.TrimSuffix(thread.BaseURL(url), "/api/stream") + path
	req, err := http.NewRequestWithContext(ctx, method, at, nil)
	if err != nil {
		body.end()
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+token)
	// A redirect is not followed: net/http would make a GET of a DELETE, and its 200 a success.
	stay := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	resp, err := (&http.Client{CheckRedirect: stay}).Do(req)
	if err != nil {
		body.end()
		return nil, err
	}
	body.ReadCloser = resp.Body
	if resp.StatusCode/100 == 2 {
		return body, nil
	}
	defer body.Close()                              // it is read
	b, _ := io.ReadAll(io.LimitReader(body, 1<<16)) // a part of the message will do
	var answer struct {
		Error struct{ Code, Message string } `json:"error"`
	}
	if json.Unmarshal(b, &answer) != nil {
		answer.Error.Message, _, _ = strings.Cut(strings.ToValidUTF8(string(b[:min(len(b), 200)]), "\uFFFD"), "\n")
	}
	return nil, &client.StatusError{Status: resp.StatusCode, Code: answer.Error.Code, Message: answer.Error.Message}
}

// answerBody is the body of an answer, which may be long; it fails after askIdle without a byte.
type answerBody struct {
	io.ReadCloser
	idle *time.Timer
	ctx  context.Context // its cause is the reason of the end
	end  func()
}

func (a *answerBody) Read(b []byte) (int, error) {
	n, err := a.ReadCloser.Read(b)
	a.idle.Reset(askIdle)
	if err != nil && a.ctx.Err() != nil {
		err = context.Cause(a.ctx)
	}
	return n, err
}

func (a *answerBody) Close() error {
	err := a.ReadCloser.Close()
	a.end()
	return err
}
