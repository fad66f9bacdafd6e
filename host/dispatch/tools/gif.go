package tools

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"arbe.0sk.ar/runner/host/dispatch"
)

// Gifs looks for gifs on a service of the operator's.
type Gifs struct {
	// URL has {query} in the place of what is looked for. The first line of the answer is the gif's address.
	URL  string
	HTTP *http.Client // nil for http.DefaultClient
}

// Limits of a request for a gif.
const (
	gifFor  = 10 * time.Second
	gifMost = 1 << 20
	gifLine = 2 << 10 // of its address
)

// sendGif looks for a gif.
func (h *Host) sendGif() dispatch.Tool {
	t := shown("send_gif", "Find a gif. Its address comes back: put it into your reply.",
		`{"query": {"type": "string", "minLength": 1, "maxLength": 100}}`, "query")
	return dispatch.Tool{Tool: t, Asked: h.Gifs == nil, Run: taking(t, h.gif)}
}

type wanting struct{ Query string }

func (h *Host) gif(ctx context.Context, _ dispatch.ToolCall, a wanting) (dispatch.ToolResult, error) {
	if h.Gifs == nil {
		return failed("no gif service is configured")
	}
	found, err := h.Gifs.find(ctx, a.Query)
	switch {
	case ctx.Err() != nil:
		return dispatch.ToolResult{}, ctx.Err()
	case err != nil:
		return ended(err)
	}
	return result("%s", found)
}

// find returns the address of a gif. Its errors do not have the URL of the service, which may have a key.
func (g *Gifs) find(ctx context.Context, query string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, gifFor)
	defer cancel()
	escaped := strings.ReplaceAll(url.QueryEscape(query), "+", "%20") // right in a path, too
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.ReplaceAll(g.URL, "{query}", escaped), nil)
	if err != nil {
		return "", errOther("the address of the gif service is not valid")
	}
	to := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	if g.HTTP != nil {
		to.Transport = g.HTTP.Transport
	}
	resp, err := to.Do(req)
	if err != nil {
		return "", errOther("the gif service does not answer")
	}
	defer resp.Body.Close() // it is only read
	if resp.StatusCode != http.StatusOK {
		return "", errOther("the gif service answers " + resp.Status)
	}
	line, err := bufio.NewReader(io.LimitReader(resp.Body, gifMost)).ReadString('\n')
	if err != nil && err != io.EOF {
		return "", errOther("the gif service's answer broke off")
	}
	at, err := url.Parse(strings.TrimSpace(line))
	if err != nil || at.Scheme != "http" && at.Scheme != "https" || at.Host == "" || len(line) > gifLine {
		return "", errOther("the gif service has no address of a gif for it")
	}
	return at.String(), nil
}
