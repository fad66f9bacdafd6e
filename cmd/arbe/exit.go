package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"time"

	arbe "arbe.0sk.ar/runner"
	"arbe.0sk.ar/runner/cmd/internal/cmdline"
	"arbe.0sk.ar/runner/host/daemon"
	"arbe.0sk.ar/runner/host/httpd"
	"arbe.0sk.ar/runner/host/log/engine"
	"arbe.0sk.ar/runner/host/reap"
	"arbe.0sk.ar/runner/host/recipe"
	"arbe.0sk.ar/runner/host/rows"
	"arbe.0sk.ar/runner/host/token"
	"arbe.0sk.ar/runner/internal/procfs"
	"arbe.0sk.ar/runner/thread"
	"arbe.0sk.ar/runner/thread/client"
)

// Exit statuses beside 0, 1 and cmdline.StatusUsage.
const (
	exitNoThread = cmdline.StatusNoInput // there is no such thread, or no such row
	exitNoReach  = 69                    // the thread server can't be reached, or refuses (EX_UNAVAILABLE)
	exitDisk     = 74                    // the server's log has failed, mostly because of its disk (EX_IOERR)
	exitConfig   = cmdline.StatusConfig  // the environment is wrong or incomplete, or data is of a later arbe
)

// exitBusy is the exit status of a launch on a thread with an open run (EX_TEMPFAIL).
const exitBusy = 75

// exitData is the exit status for an environment that is not valid (EX_DATAERR).
const exitData = 65

// reach gives an error of the thread server its exit status.
func reach(err error) error {
	switch {
	case err == nil || errors.Is(err, context.Canceled):
		return nil // the user ended it
	case errors.As(err, new(*cmdline.Exit)):
		return err
	case client.Gone(err):
		return &cmdline.Exit{Status: exitNoThread, Cause: err}
	}
	if failed, is := errors.AsType[*url.Error](err); is {
		const next = "start it with arbe serve, or check ARBE_STREAM_URL"
		err = fmt.Errorf("no answer from %s: %w; %s", serverOf(failed.URL), failed.Err, next)
	}
	return &cmdline.Exit{Status: exitNoReach, Cause: err}
}

// serverOf returns the server of a URL, for messages: its scheme and host, or its socket.
func serverOf(address string) string {
	if socket, is := thread.SocketOf(address); is {
		return thread.Unix + socket
	}
	u, err := url.Parse(address)
	if err != nil {
		return "the thread server" // the address may have a password
	}
	return u.Scheme + "://" + u.Host
}

// ofServer reports whether an error is one of the thread server, or that it can't be reached.
func ofServer(err error) bool {
	return errors.As(err, new(*client.StatusError)) || errors.As(err, new(*url.Error)) || client.Foreign(err)
}

// reachThread is reach for a command about one thread. It distinguishes a thread that does not exist from an address
// with another server.
func reachThread(cl *client.Client, err error) error {
	switch {
	case client.Gone(err):
		return cmdline.Fail(exitNoThread,
			"thread %s was deleted, and its id is not given again: arbe thread new makes another one", cl.Thread)
	case client.NoThread(err):
		return noThread(cl.Thread)
	case client.Foreign(err):
		return &cmdline.Exit{Status: exitNoReach, Cause: foreign(cl, err)}
	}
	return reach(err)
}

// foreign is the error of an answer that no thread server of this version gives. It asks the address what has it.
func foreign(at interface {
	Address() string
	Health(ctx context.Context) (client.Health, error)
}, err error,
) error {
	answer := foreignAnswer(err)
	ctx, cancel := context.WithTimeout(context.Background(), healthTimeout) // it has just answered
	defer cancel()
	h, unknown := at.Health(ctx)
	if unknown != nil || h.Installation == "" || h.Version == arbe.This().String() {
		return fmt.Errorf("%s answers, but is no thread server: check ARBE_STREAM_URL (%s)", at.Address(), answer)
	}
	its := "an earlier arbe"
	if h.Version != "" {
		its = "arbe " + h.Version
	}
	return fmt.Errorf("%s is a thread server of %s, which lacks what this one, %s, asks for (%s): upgrade the server",
		at.Address(), its, arbe.This().String(), answer)
}

// noThread is the error of a thread that does not exist.
func noThread(id string) error {
	return cmdline.Fail(exitNoThread, "no such thread: %s; arbe ls lists the threads", id)
}

// foreignAnswer describes the answer of another server, without the page that it may be.
func foreignAnswer(err error) string {
	if status, is := errors.AsType[*client.StatusError](err); is {
		return strings.TrimSpace(fmt.Sprintf("%d %s", status.Status, http.StatusText(status.Status)))
	}
	return "a page of HTML"
}

// reachList is reach for the list of threads.
func reachList(l client.List, err error) error {
	if errors.Is(err, client.ErrNoList) && client.Foreign(err) {
		err = foreign(l, err)
	}
	return reach(err)
}

// errNoDatabase returns the error of a command that needs a database.
func errNoDatabase() error {
	return cmdline.Fail(exitConfig, "no database: set ARBE_DATABASE or use --database")
}

// exits are the exit statuses of errors of the rows, by their kind. Others are of the configuration: exitConfig.
var exits = []struct {
	kind   error
	status int
}{
	{rows.ErrAway, exitNoReach},
	{rows.ErrBusy, exitNoReach},
	{rows.ErrTimeout, exitNoReach},
	{rows.ErrAbsent, exitNoThread},
	{rows.ErrTaken, 1},
	{rows.ErrReference, 1},
	{rows.ErrInUse, 1},
	{rows.ErrInvalid, 1},
	{rows.ErrArchived, 1},
	{rows.ErrLastOwner, 1},
	{rows.ErrRunning, 1},
	{rows.ErrClosed, 1},
}

// databaseExit gives an error of rows, or of what is given to a run by them, its exit status.
func databaseExit(err error) error {
	if err == nil || errors.As(err, new(*cmdline.Exit)) {
		return err
	}
	if errors.As(err, new(*recipe.Error)) {
		return &cmdline.Exit{Status: exitData, Cause: err}
	}
	for _, e := range exits {
		if errors.Is(err, e.kind) {
			return &cmdline.Exit{Status: e.status, Cause: err}
		}
	}
	return &cmdline.Exit{Status: exitConfig, Cause: err}
}

// serveExit gives a server's error its exit status.
func serveExit(err error) error {
	for _, config := range []error{
		daemon.ErrNoSecret, daemon.ErrInsecure, token.ErrShortSecret,
		httpd.ErrDebugAddress,
	} {
		if errors.Is(err, config) {
			return &cmdline.Exit{Status: exitConfig, Cause: err}
		}
	}
	switch {
	case errors.As(err, new(*daemon.UnsafeError)):
		return &cmdline.Exit{Status: exitConfig, Cause: err}
	case errors.Is(err, engine.ErrFailed):
		err = fmt.Errorf("%w; acknowledged entries are safe: repair the disk, then start the server again", err)
		return &cmdline.Exit{Status: exitDisk, Cause: err}
	}
	return err
}

// inUse rewords a server's error that its address or its data folder is in use: with the process, and the next step.
func inUse(err error, d daemon.Data) error {
	by := func(pid int) string {
		if pid == 0 {
			return "another process"
		}
		return fmt.Sprintf("process %d", pid)
	}
	if store, is := errors.AsType[*daemon.InUseError](err); is {
		return fmt.Errorf("data folder %s is in use by %s: stop that server, or name another folder with --data",
			d, by(store.PID))
	}
	if op, is := errors.AsType[*net.OpError](err); is && errors.Is(err, syscall.EADDRINUSE) {
		pid := 0
		if at, is := op.Addr.(*net.TCPAddr); is {
			pid = procfs.Listener(at.Port)
		}
		return fmt.Errorf("address %s is in use by %s: stop it, or listen elsewhere with --addr", op.Addr, by(pid))
	}
	return err
}

// settleTimeout bounds the wait for a server that is asked to settle a thread.
const settleTimeout = 10 * time.Second

// doubtful gives the error of a box that can neither be used nor replaced now its exit status, and asks the server to
// settle the thread. Any other error is returned as it is.
func doubtful(ctx context.Context, cl *client.Client, err error) error {
	if !errors.As(err, new(*reap.DoubtError)) {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	if body, aerr := ask(ctx, cl, http.MethodPost, "/api/threads/"+cl.Thread+"/reconcile", nil); aerr == nil {
		_ = body.Close() // who is asked next finds out
	}
	return &cmdline.Exit{Status: exitBusy, Cause: err}
}
