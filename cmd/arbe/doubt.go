package main

import (
	"context"
	"errors"
	"net/http"
	"time"

	"arbe.0sk.ar/runner/cmd/internal/cmdline"
	"arbe.0sk.ar/runner/host/reap"
	"arbe.0sk.ar/runner/thread/client"
)

// settleTimeout bounds the wait for a server that is asked to settle a thread.
const settleTimeout = 10 * time.Second

// doubtful gives the error of a box that can neither be used nor replaced now its exit status, and asks the server to
// settle the thread. Any other error is returned as it is.
func doubtful(ctx context.Context, cl *client.Client, err error) error {
	var doubt *reap.DoubtError
	if !errors.As(err, &doubt) {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	if token, terr := cl.Token(); terr == nil {
		path := "/api/threads/" + cl.Thread + "/reconcile"
		body, aerr := ask(ctx, http.MethodPost, cl.Base, path, token)
		if aerr == nil {
			_ = body.Close() // who is asked next finds out
		}
	}
	return &cmdline.Exit{Status: exitBusy, Cause: err}
}
