package main

import (
	"context"
	"log/slog"
	"time"

	"github.com/urfave/cli/v2"
	"golang.org/x/sync/errgroup"

	"arbe.0sk.ar/runner/host/answer"
	"arbe.0sk.ar/runner/host/control"
	"arbe.0sk.ar/runner/host/daemon"
	"arbe.0sk.ar/runner/host/provision"
	"arbe.0sk.ar/runner/host/reconcile"
	"arbe.0sk.ar/runner/host/server"
	"arbe.0sk.ar/runner/internal/pause"
	"arbe.0sk.ar/runner/thread"
	"arbe.0sk.ar/runner/thread/client"
)

// beside is this host beside a server of this process.
type beside struct {
	host
	server daemon.Serving
	own    *client.Client // of the server, as minted ones are; it has no token
	log    *slog.Logger
}

// beside returns this host beside a server with this configuration.
func (c command) beside(cfg daemon.Config, s daemon.Serving) beside {
	all := boxesOf(c.kinds, cfg.Data)
	h := host{
		data: cfg.Data, boxes: all, providers: all.configured(), folders: foldersOf(cfg.Data), limits: c.limits,
		keys: c.keys,
	}
	if rows, is := cfg.Rows.(*control.Store); is {
		h.database = rows.Open
	}
	own := &client.Client{Base: thread.BaseURL(s.URL), Log: cfg.Logger, HTTP: s.HTTP}
	h.client = minting(s.Secret, own)
	return beside{h, s, own, cfg.Logger}
}

// reconciler returns a reconciler that reads threads from the server's index where that has them.
func (b beside) reconciler() *reconcile.Reconciler {
	r := b.host.reconciler()
	r.Log = b.log
	if x := b.server.Threads; x != nil {
		r.Known = func(ctx context.Context, id string) (reconcile.Known, bool) {
			f, err := x.Fold(ctx, id)
			return reconcile.Known{Fold: f.Fold, Reactions: f.Reactions, Next: f.Next, Now: time.Now()}, err == nil
		}
	}
	return r
}

// settling returns what settles one of the server's threads, on request.
func (b beside) settling() func(context.Context, string) (server.Settled, error) {
	r := b.reconciler()
	return func(ctx context.Context, id string) (server.Settled, error) {
		s, err := b.settle(ctx, r, id)
		if !s.Open {
			b.forget(id)
		}
		result := server.Settled{Status: s.Status, Open: s.Open}
		for _, a := range s.Actions {
			result.Actions = append(result.Actions, server.SettledAction{
				ThreadID: a.Thread, RunID: a.Run, Did: a.Did, Why: a.Why,
			})
		}
		return result, err
	}
}

// reconcile settles the server's own threads until ctx is done.
func (b beside) reconcile(ctx context.Context) error {
	r := b.reconciler()
	threads := func(f func(id string, version uint64) error) error {
		if x := b.server.Threads; x != nil && x.Ready() {
			return x.Versions(f)
		}
		return b.server.Streams.Threads(ctx, f)
	}
	return r.Loop(ctx, reconcileEvery(r.OrphanAfter), threads, func(id string, s reconcile.State) {
		if !s.Open {
			b.forget(id)
		}
	})
}

// provision launches tasks beside a server until ctx is done, at most so many at the same time.
func (b beside) provision(ctx context.Context, to *provision.Host, most int) error {
	db, err := b.database(ctx)
	for ; err != nil; db, err = b.database(ctx) {
		if !pause.For(ctx, reopenEvery) {
			return nil
		}
	}
	return provisioner(db, to, most).Run(ctx)
}

// dispatch has bots answer beside a server until ctx is done.
func (b beside) dispatch(ctx context.Context, c *cli.Context, to *provision.Host, hook *answer.Hook) error {
	d, err := b.dispatcher(c, to, b.own)
	if err != nil {
		return err
	}
	d.Hook = hook
	return d.Run(ctx)
}

// services are the services that run beside a server.
type services []func(context.Context) error

// run runs them until ctx is done. One that fails ends the others.
func (b services) run(ctx context.Context) error {
	together, ctx := errgroup.WithContext(ctx)
	for _, f := range b {
		together.Go(func() error { return f(ctx) })
	}
	return together.Wait()
}
