package fakedaytona

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/coder/websocket"
)

// shape is how a client wants a command's output: taken apart, which a new SDK does, or with the marks in it.
func shape(r *http.Request) (split, marks bool) {
	v := strings.Split(r.Header.Get("X-Daytona-SDK-Version"), ".")
	if len(v) >= 2 {
		major, _ := strconv.Atoi(v[0]) // what is no number is an old one
		minor, _ := strconv.Atoi(v[1])
		split = major > 0 || minor >= 167
	}
	return split, r.Header.Get("X-Daytona-Split-Output") == "true"
}

func (d *daemon) logs(w http.ResponseWriter, r *http.Request, s *session, c *command) {
	if r.URL.Query().Get("follow") == "true" && strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
		d.follow(w, r, s, c)
		return
	}
	log, _ := c.since(0)
	merged, stdout, stderr := splitLog(log)
	switch split, marks := shape(r); {
	case split:
		reply(
			w,
			http.StatusOK,
			map[string]any{"output": string(merged), "stdout": string(stdout), "stderr": string(stderr)},
		)
	case marks:
		merged = log
		fallthrough
	default:
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = w.Write(merged) // the client may have gone
	}
}

// linger is for how long a log stays open after the command's end. The original's is about a second.
const linger = 250 * time.Millisecond

// follow sends a log while it grows. Each piece is cut within the first mark in it, as may happen with the original.
func (d *daemon) follow(w http.ResponseWriter, r *http.Request, s *session, c *command) {
	ws, err := websocket.Accept(w, r, &websocket.AcceptOptions{InsecureSkipVerify: true})
	if err != nil {
		return // it has answered
	}
	defer ws.CloseNow()
	ctx := ws.CloseRead(context.WithoutCancel(r.Context()))
	split, marks := shape(r)
	for offset := 0; ; {
		log, grew := c.since(offset)
		if len(log) == 0 {
			select {
			case <-grew:
				continue
			case <-c.done:
				if log, _ = c.since(offset); len(log) > 0 {
					break
				}
				select {
				case <-time.After(linger):
				case <-d.dead:
				}
				_ = ws.Close(websocket.StatusNormalClosure, "")
				return
			case <-s.gone:
				_ = ws.Close(websocket.StatusNormalClosure, "")
				return
			case <-d.dead:
				return
			case <-ctx.Done():
				return
			}
		}
		offset += len(log)
		if !split && !marks {
			log, _, _ = splitLog(log)
		}
		for n := 2; len(log) > 0; n = 16 << 10 {
			n = min(n, len(log))
			if err := ws.Write(ctx, websocket.MessageBinary, log[:n]); err != nil {
				return // the client has gone
			}
			log = log[n:]
		}
	}
}
