package sandbox_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"arbe.0sk.ar/runner/host/sandbox"
	"arbe.0sk.ar/runner/host/sandbox/daytona"
	"arbe.0sk.ar/runner/internal/test/fakedaytona"
)

// TestExecInteractive talks to a command: each answer comes before the next question is asked.
func TestExecInteractive(t *testing.T) {
	each(t, func(t *testing.T, h *house) {
		b := h.create(t, sandbox.Options{})
		questions, ask := io.Pipe()
		var answers bytes.Buffer
		c := script(`while read -r x; do echo "got $x"; done; echo end >&2`)
		c.Stdin, c.Timeout = questions, 5*time.Minute
		n := 0
		c.Output = func(s sandbox.Stream, p []byte) {
			answers.Write(p)
			if s != sandbox.Stdout || !strings.HasSuffix(answers.String(), fmt.Sprintf("got %d\n", n)) {
				return
			}
			if n++; n == 5 {
				_ = ask.Close() // never fails
				return
			}
			go fmt.Fprintln(ask, n)
		}
		go fmt.Fprintln(ask, n)
		res, err := b.Exec(t.Context(), c)
		if err != nil || res.ExitCode != 0 || answers.String() != "got 0\ngot 1\ngot 2\ngot 3\ngot 4\nend\n" {
			t.Errorf("%+v, %v; got %q", res, err, answers.String())
		}
	})
}

// TestExecInputBreaks has an input whose read fails: the command does not see that as the input's end.
func TestExecInputBreaks(t *testing.T) {
	each(t, func(t *testing.T, h *house) {
		b := h.create(t, sandbox.Options{})
		c := script("cat; sleep 0.3; echo all")
		c.Stdin = io.MultiReader(strings.NewReader("some\n"), broken{})
		if res, err := b.Exec(t.Context(), c); err == nil || !strings.Contains(err.Error(), "the disk is broken") {
			t.Errorf("%+v, %v", res, err)
		}
	})
}

// TestLargeExec: the output has no limit where it is streamed, and is kept up to the limit where it is not.
func TestLargeExec(t *testing.T) {
	each(t, func(t *testing.T, h *house) {
		b := h.create(t, sandbox.Options{})
		const size = 17 << 20
		c := script(fmt.Sprintf("yes 'a line of output' | head -c %d", size))
		c.Timeout = 5 * time.Minute
		got, want, n := sha256.New(), sha256.New(), 0
		c.Output = func(_ sandbox.Stream, p []byte) { got.Write(p); n += len(p) }
		line := []byte("a line of output\n")
		want.Write(bytes.Repeat(line, size/len(line)+1)[:size])
		res, err := b.Exec(t.Context(), c)
		same := n == size && bytes.Equal(got.Sum(nil), want.Sum(nil))
		if err != nil || !same || len(res.Stdout) != sandbox.DefaultMaxOutput {
			t.Errorf("%d bytes of %d, %d kept, %v", n, size, len(res.Stdout), err)
		}
		c.Output = nil
		before := h.asked()
		res, err = b.Exec(t.Context(), c)
		if err != nil || len(res.Stdout) != sandbox.DefaultMaxOutput || !res.Truncated || res.ExitCode != 0 {
			t.Errorf("%d kept, exit %d, %v; %d requests", len(res.Stdout), res.ExitCode, err, h.asked()-before)
		}
	})
}

// TestExecSlowReader: what a command has printed arrives, however long its reader takes with each piece.
func TestExecSlowReader(t *testing.T) {
	each(t, func(t *testing.T, h *house) {
		b := h.create(t, sandbox.Options{})
		want := string(run(t, b, "seq 1 17500").Stdout)
		var got strings.Builder
		c := script("seq 1 17500")
		c.Output = func(_ sandbox.Stream, p []byte) {
			if got.Write(p); got.Len() == len(p) {
				<-time.After(1500 * time.Millisecond) // longer than what a command left behind is waited for
			}
		}
		res, err := b.Exec(t.Context(), c)
		if err != nil || got.String() != want || string(res.Stdout) != want {
			t.Errorf("%d bytes of %d, %d kept, %v", got.Len(), len(want), len(res.Stdout), err)
		}
	})
}

// TestExecLeavesPrintingProcess: a process that was left behind and prints without end does not delay the command's
// end.
func TestExecLeavesPrintingProcess(t *testing.T) {
	each(t, func(t *testing.T, h *house) {
		b := h.create(t, sandbox.Options{})
		c := script("setsid yes & echo $! >talker")
		c.MaxOutput = 10
		if res, err := b.Exec(t.Context(), c); err != nil || res.ExitCode != 0 || res.TimedOut {
			t.Errorf("%+v, %v", res, err)
		}
		soon(t, "it is gone", func() bool { return !living(t, read(b.WorkDir()+"/talker")) })
	})
}

// breaking is a connection that breaks after some bytes.
type breaking struct {
	io.ReadWriteCloser
	left int
}

func (b *breaking) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, errors.New("the connection breaks")
	}
	n, err := b.ReadWriteCloser.Read(p[:min(len(p), b.left)])
	b.left -= n
	return n, err
}

// TestExecReconnects breaks the stream of the output again and again, in ever other places: no byte is lost or doubled.
func TestExecReconnects(t *testing.T) {
	t.Parallel()
	h := daytonaHouse(t)
	base := transport(t)
	var dials atomic.Int32
	breaks := roundTrip(func(r *http.Request) (*http.Response, error) {
		resp, err := base.RoundTrip(r)
		if err == nil && resp.StatusCode == http.StatusSwitchingProtocols {
			resp.Body = &breaking{resp.Body.(io.ReadWriteCloser), 3000 * int(dials.Add(1))}
		}
		return resp, err
	})
	conf := daytona.Config{Key: h.fake.Key, URL: h.fake.URL, Pace: time.Millisecond, Transport: breaks}
	p, err := daytona.New(conf)
	if err != nil {
		t.Fatal(err)
	}
	b, err := p.Open(t.Context(), h.create(t, sandbox.Options{}).Ref().ID)
	if err != nil {
		t.Fatal(err)
	}
	want := string(run(t, h.create(t, sandbox.Options{}), "seq 1 20000").Stdout)
	var got strings.Builder
	c := script("seq 1 10000; seq 10001 20000")
	c.Output = func(_ sandbox.Stream, p []byte) { got.Write(p) }
	res, err := b.Exec(t.Context(), c)
	if err != nil || got.String() != want || res.ExitCode != 0 || dials.Load() < 5 {
		t.Errorf("%d bytes of %d, %d connections; exit %d, %v", got.Len(), len(want), dials.Load(), res.ExitCode, err)
	}
}

// TestExecTimeoutBegins: the time before a command starts is not the command's.
func TestExecTimeoutBegins(t *testing.T) {
	t.Parallel()
	f := newFaulty(t)
	b := f.create(t, sandbox.Options{})
	const limit = 15 * time.Second // and longer than the command takes on a busy machine
	slow := func(r *http.Request) fakedaytona.Fault {
		if strings.HasSuffix(r.URL.Path, "/process/session") {
			<-time.After(limit + limit/10)
		}
		return fakedaytona.Fault{}
	}
	f.hook.Store(&slow)
	c := script("echo x")
	c.Timeout = limit
	res, err := b.Exec(t.Context(), c)
	if err != nil || res.TimedOut || string(res.Stdout) != "x\n" {
		t.Errorf("%+v, %v", res, err)
	}
	f.hook.Store(nil)
}

// TestExecShellKilled: a command that kills the shell above it, which reports its end, is over, too.
func TestExecShellKilled(t *testing.T) {
	t.Parallel()
	b := daytonaHouse(t).create(t, sandbox.Options{})
	res, err := b.Exec(t.Context(), script("echo x; kill -9 $PPID"))
	if err != nil || res.ExitCode != -1 || string(res.Stdout) != "x\n" {
		t.Errorf("%+v, %v", res, err)
	}
}

// TestExecInputAgain loses the answers to lines of input: each line reaches the command once.
func TestExecInputAgain(t *testing.T) {
	t.Parallel()
	f := newFaulty(t)
	b := f.create(t, sandbox.Options{})
	hits := f.fail(3, http.MethodPost, "/input", fakedaytona.Fault{After: true})
	c := script("cat")
	c.Stdin = live{strings.NewReader(strings.Repeat("line\n", 2000))}
	res, err := b.Exec(t.Context(), c)
	if err != nil || string(res.Stdout) != strings.Repeat("line\n", 2000) || hits.Load() < 4 {
		t.Errorf("%d bytes, %v; %d requests", len(res.Stdout), err, hits.Load())
	}
}
