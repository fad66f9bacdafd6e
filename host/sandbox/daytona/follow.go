package daytona

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"github.com/coder/websocket"

	"arbe.0sk.ar/runner/host/sandbox"
	"arbe.0sk.ar/runner/host/sandbox/kit"
	"arbe.0sk.ar/runner/internal/pause"
)

// maxLogLine exceeds any line that execScript prints. A longer line is not the script's, and is cut.
const maxLogLine = 1 << 20

// follow reads the command's log while it grows, until both outputs have ended. It reconnects if the connection breaks;
// the daemon then sends the log from its beginning, and follow skips what it has read already.
func (s *session) follow(ctx context.Context) error {
	fails, ended := 0, 0
	for {
		before := s.seen
		rerr := s.read(ctx)
		if s.ended == [2]bool{true, true} {
			return nil
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		code, err := s.look(ctx)
		if err != nil {
			return errors.Join(err, rerr)
		}
		if s.seen > before {
			fails, ended = 0, 0
		}
		if code != nil && websocket.CloseStatus(rerr) == websocket.StatusNormalClosure {
			// The daemon has sent the whole log, without the ends: the shell that prints them was killed.
			if s.code, ended = *code, ended+1; ended == 2 {
				return nil
			}
		}
		if fails++; fails == tries {
			return rerr
		}
		if !pause.For(ctx, backoff(s.b.p.pace, slower*s.b.p.pace, fails, nil)) {
			return context.Cause(ctx)
		}
	}
}

// look returns the command's exit code; nil while it runs.
func (s *session) look(ctx context.Context) (code *int, err error) {
	var answer struct {
		ExitCode *int `json:"exitCode"`
	}
	err = s.b.call(ctx, request{
		doing: "look at a command", method: http.MethodGet, url: s.url("/command/" + s.cmd), into: &answer,
	})
	return answer.ExitCode, err
}

// read reads the log over one connection. Its error is never nil.
func (s *session) read(ctx context.Context) error {
	q := request{doing: "follow a command's output", method: http.MethodGet}
	q.url = s.b.toolbox + s.url("/command/"+s.cmd+"/logs?follow=true")
	header, err := http.NewRequestWithContext(ctx, q.method, q.url, nil)
	if err != nil {
		return err
	}
	s.b.p.sign(header, q)
	dial, cancel := context.WithTimeout(ctx, attempt)
	defer cancel()
	o := &websocket.DialOptions{HTTPClient: s.b.p.hc, HTTPHeader: header.Header}
	conn, resp, err := websocket.Dial(dial, q.url, o)
	if err != nil {
		if resp != nil && resp.Body != nil {
			return s.b.judge(ctx, s.b.p.read(q, resp, nil))
		}
		return kit.Redacted(fmt.Errorf("daytona: %s: %w", q.doing, err), s.b.p.key)
	}
	defer conn.CloseNow()
	conn.SetReadLimit(-1) // frames are read as streams
	ctx, stop := context.WithCancel(ctx)
	var watcher sync.WaitGroup
	defer watcher.Wait()
	defer stop()
	watcher.Go(func() {
		defer stop()
		s.watch(ctx, conn)
	})
	return fmt.Errorf("daytona: %s: %w", q.doing, s.take(ctx, conn))
}

// watch returns when the connection is of no more use: the command has ended, or its state could not be read, for a
// while. Meanwhile it pings, because a proxy may close an idle connection.
func (s *session) watch(ctx context.Context, conn *websocket.Conn) {
	every := 100 * s.b.p.pace
	for idle := 0; idle < 2; {
		if !pause.For(ctx, every) {
			return
		}
		ping, cancel := context.WithTimeout(ctx, every)
		_ = conn.Ping(ping) // an answer is not needed
		cancel()
		if code, err := s.look(ctx); err != nil || code != nil {
			idle++
		} else {
			idle = 0
		}
	}
}

// take reads the log, after the part that was read before, until both outputs have ended.
func (s *session) take(ctx context.Context, conn *websocket.Conn) error {
	log := &logReader{s: s, skip: s.seen}
	for {
		_, frame, err := conn.Reader(ctx)
		if err != nil {
			return err
		}
		if _, err := io.Copy(log, frame); err != nil {
			return err
		}
	}
}

var errEnded = errors.New("both outputs have ended")

// logReader receives the log and ignores its first skip bytes.
type logReader struct {
	s    *session
	skip int64
}

func (l *logReader) Write(b []byte) (int, error) {
	n := len(b)
	drop := min(l.skip, int64(n))
	l.skip -= drop
	b = b[drop:]
	for s := l.s; len(b) > 0; {
		piece := b
		if end := bytes.IndexByte(b, '\n'); end >= 0 {
			piece = b[:end+1]
		}
		b = b[len(piece):]
		s.seen += int64(len(piece))
		s.line = append(s.line, piece[:min(len(piece), maxLogLine-len(s.line))]...)
		if piece[len(piece)-1] != '\n' {
			break
		}
		s.takeLine(s.line)
		if s.line = s.line[:0]; s.ended == [2]bool{true, true} {
			return n, errEnded
		}
	}
	return n, nil
}

// takeLine takes one line of the log: three bytes that name the stream, and a line of execScript. It ignores any other
// line.
func (s *session) takeLine(line []byte) {
	var stream sandbox.Stream
	switch {
	case bytes.HasPrefix(line, []byte("\x01\x01\x01")):
		stream = sandbox.Stdout
	case bytes.HasPrefix(line, []byte("\x02\x02\x02")):
		stream = sandbox.Stderr
	default:
		return
	}
	text := strings.TrimSuffix(string(line[3:]), "\n")
	switch {
	case strings.HasPrefix(text, ">"):
		// If a relay was killed in the middle of a line, the whole part of the line is decoded.
		b, _ := base64.StdEncoding.DecodeString(text[1:])
		s.out.Add(stream, b)
	case strings.HasPrefix(text, "="):
		word, code, _ := strings.Cut(text[1:], " ")
		if n, err := strconv.Atoi(code); err == nil {
			s.ended[stream-sandbox.Stdout], s.code, s.never = true, n, s.never || word == "never"
		}
	}
}

// inputChunk is the number of bytes of input in one line. With its number and its newline the line is shorter than what
// a pipe takes in one piece (PIPE_BUF, 4096 bytes), so lines never mix.
const inputChunk = 3000

// feed sends an input to the command while it arrives, and then its end. It returns when the input has ended, or the
// daemon refuses it.
func (s *session) feed(ctx context.Context, in io.Reader) error {
	buf := make([]byte, inputChunk)
	for number := 1; ; number++ {
		n, err := in.Read(buf)
		if n > 0 {
			line := strconv.Itoa(number) + " " + base64.StdEncoding.EncodeToString(buf[:n])
			if serr := s.send(ctx, line); serr != nil {
				return serr
			}
		} else {
			number--
		}
		switch {
		case errors.Is(err, io.EOF):
			return s.send(ctx, strconv.Itoa(number+1)+" =")
		case err != nil:
			return fmt.Errorf("read its input: %w", err)
		case ctx.Err() != nil:
			return ctx.Err()
		}
	}
}

// send sends a line of input, and again if the answer is lost: the command's shell takes each number once. The daemon
// answers after writing the line to a pipe, which may be full until the command reads.
func (s *session) send(ctx context.Context, line string) error {
	for {
		err := s.b.call(ctx, request{
			doing: "send input", method: http.MethodPost, url: s.url("/command/" + s.cmd + "/input"),
			body: map[string]string{"data": line},
		})
		var timeout interface{ Timeout() bool }
		if err == nil || ctx.Err() != nil || !errors.As(err, &timeout) || !timeout.Timeout() {
			return err
		}
	}
}
