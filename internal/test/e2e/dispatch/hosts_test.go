package dispatch_test

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"arbe.0sk.ar/runner/internal/test/botchaos"
)

// host is an arbe dispatch, started again when it has died.
type host struct {
	t      *testing.T
	w      *world
	front  *front
	name   string // of its connections to Postgres
	env    []string
	log    output
	cmd    *exec.Cmd
	ended  chan error // of cmd
	logged int        // length of the log when cmd was started

	count map[botchaos.Kind]int // of strikes that have met it
}

// hosts starts hosts that dispatch, each by a front of its own to one of the servers in turn.
func (w *world) hosts(n int) (all []*host) {
	w.t.Helper()
	for i := range n {
		h := &host{
			t: w.t, w: w, front: newFront(w.t, w.servers[i%len(w.servers)].addr), count: map[botchaos.Kind]int{},
			name: fmt.Sprint("host", i),
		}
		h.env = []string{
			"ARBE_DATA=" + w.t.TempDir(), "ARBE_STREAM_URL=http://" + h.front.listening().String(),
			"PGAPPNAME=" + h.name,
		}
		h.start()
		all = append(all, h)
	}
	w.t.Cleanup(func() {
		for _, h := range all {
			if h.cmd != nil {
				_ = h.cmd.Process.Kill() // it may have ended
				<-h.ended
			}
			if w.t.Failed() {
				w.t.Logf("a host's log:\n%.20000s", h.log.String())
			}
		}
	})
	return all
}

// start starts the host.
func (h *host) start() {
	h.front.begin()
	h.cmd = h.w.command(h.env, "dispatch", "--local-boxes", "--reactions", "200",
		"--model-url", "anthropic="+h.w.model.url, "--model-url", "openai="+h.w.model.url+"/v1")
	h.cmd.Stderr, h.logged = &h.log, len(h.log.String())
	h.ended = make(chan error, 1)
	if err := h.cmd.Start(); err != nil {
		h.t.Error(err)
		h.cmd = nil
		return
	}
	cmd := h.cmd
	go func() { h.ended <- cmd.Wait() }()
}

// signal sends a signal. A host that has ended without one is a fault.
func (h *host) signal(s syscall.Signal) {
	select {
	case err := <-h.ended:
		h.t.Errorf("arbe dispatch ended without a signal: %v", err)
		h.ended <- err
	default:
		_ = h.cmd.Process.Signal(s) // it may have ended meanwhile
	}
}

// end ends the host by a signal, and waits for it.
func (h *host) end(s syscall.Signal) {
	h.front.strike()
	h.signal(s)
	err := <-h.ended
	// One that has logged nothing may have been ended before it could listen to signals.
	if s == syscall.SIGTERM && err != nil && len(h.log.String()) > h.logged {
		h.t.Errorf("arbe dispatch ended by TERM with %v", err)
	}
	h.cmd = nil
}

// trapFor is how long a strike waits for the append that it is meant for.
const trapFor = 10 * time.Second

// play plays strikes, one after the other. None begins after the end.
func (h *host) play(strikes []botchaos.Strike, end time.Time) {
	for _, s := range strikes {
		if time.Now().Add(s.After).After(end) {
			return
		}
		time.Sleep(s.After) // this is the schedule
		var tr *trap
		switch s.Kind {
		case botchaos.Commit:
			if h.killAtCommit() {
				h.count[s.Kind]++
				time.Sleep(s.Lasts) // this is the schedule
				h.start()
			}
			continue
		case botchaos.Drop, botchaos.Late, botchaos.Applied, botchaos.StopAt:
			tr = h.front.set(s.Kind, s.At)
			select {
			case <-tr.held:
			case <-time.After(trapFor): // no such append came
				if h.front.unset(tr) {
					continue
				}
				<-tr.held
			}
		}
		h.strike(s, tr)
		h.count[s.Kind]++
	}
}

func (h *host) strike(s botchaos.Strike, tr *trap) {
	free := func() {
		if tr != nil {
			close(tr.freed)
		}
	}
	switch s.Kind {
	case botchaos.Stop, botchaos.StopAt:
		h.front.strike()
		h.signal(syscall.SIGSTOP)
		time.Sleep(s.Lasts) // this is the schedule
		h.signal(syscall.SIGCONT)
		free()
		return
	case botchaos.Term:
		h.end(syscall.SIGTERM)
	default:
		h.end(syscall.SIGKILL)
		h.front.cut()
	}
	time.Sleep(s.Lasts) // this is the schedule
	free()
	h.start()
}

// stops lets a host wait before it commits a row of the cache, where the table stops has its name.
const stops = `
	create table stops (host text);
	create function stop() returns trigger language plpgsql as $$
	begin
		if exists (select from public.stops where host = current_setting('application_name')) then
			perform pg_advisory_xact_lock(4242, hashtext(current_setting('application_name')));
		end if;
		return new;
	end;
	$$;
	create trigger stop_cache before insert or update on dispatch_cache for each row execute function stop();`

// killAtCommit kills the host before it commits a row of the cache, and reports whether it came to that.
func (h *host) killAtCommit() bool {
	ctx := context.WithoutCancel(h.t.Context())
	c, err := pgx.Connect(ctx, h.w.db)
	if err == nil {
		_, err = c.Exec(ctx, "select pg_advisory_lock(4242, hashtext($1))", h.name)
	}
	if err == nil {
		_, err = c.Exec(ctx, "insert into stops (host) values ($1)", h.name)
	}
	there := 0
	for end := time.Now().Add(trapFor); err == nil && there == 0 && time.Now().Before(end); {
		time.Sleep(20 * time.Millisecond) // between two looks
		err = c.QueryRow(ctx, `select count(*) from pg_locks
			where locktype = 'advisory' and not granted and objid = hashtext($1)::oid`, h.name).Scan(&there)
	}
	if there > 0 {
		h.end(syscall.SIGKILL)
	}
	if err == nil {
		_, err = c.Exec(ctx, "delete from stops where host = $1", h.name)
	}
	if c != nil {
		err = errors.Join(err, c.Close(ctx)) // the lock ends with it
	}
	if err != nil {
		h.t.Errorf("stop a host at a commit: %v", err)
	}
	return there > 0
}

// playAll plays the strikes of a seed on all hosts, at most for a time. It returns how many of each kind have met one.
func playAll(hosts []*host, seed uint64, lasts time.Duration) map[botchaos.Kind]int {
	var all sync.WaitGroup
	end := time.Now().Add(lasts)
	for i, h := range hosts {
		all.Go(func() { h.play(botchaos.Strikes(seed+uint64(i), lasts, 2*time.Second), end) })
	}
	all.Wait()
	count := map[botchaos.Kind]int{}
	for _, h := range hosts {
		for kind, n := range h.count {
			count[kind] += n
		}
	}
	return count
}

// struck reports whether something has happened to the host with an instance.
func struck(hosts []*host) func(string) bool {
	return func(instance string) bool {
		return slices.ContainsFunc(hosts, func(h *host) bool { return h.front.wasStruck(instance) })
	}
}

// endAll ends all hosts as their operators do.
func endAll(hosts []*host) {
	for _, h := range hosts {
		h.end(syscall.SIGTERM)
	}
}
