// Package daemon runs a thread server: it opens the log, in a data folder or on a cluster, and serves it until its
// context is done. It has the data folder, backups of its log, the expiry of what the log holds, and the limits of this
// machine.
//
// It alone, beside tests, imports the engines of the log. What works on threads beside the server, as reconciling and
// commands, is its caller's: Parts.
package daemon

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"time"

	"golang.org/x/sync/errgroup"

	"arbe.0sk.ar/runner/host/httpd"
	"arbe.0sk.ar/runner/host/index"
	"arbe.0sk.ar/runner/host/log"
	"arbe.0sk.ar/runner/host/member"
	"arbe.0sk.ar/runner/host/memory"
	"arbe.0sk.ar/runner/host/rows"
	"arbe.0sk.ar/runner/host/server"
	"arbe.0sk.ar/runner/host/server/houses"
	"arbe.0sk.ar/runner/host/server/metrics"
	"arbe.0sk.ar/runner/host/token"
	"arbe.0sk.ar/runner/internal/durable"
	"arbe.0sk.ar/runner/internal/openfiles"
	"arbe.0sk.ar/runner/session"
	"arbe.0sk.ar/runner/thread"
	"arbe.0sk.ar/runner/thread/client"
)

// Config is the configuration of Serve.
type Config struct {
	Addr     string // to listen on, "127.0.0.1:8787"; "" for Socket alone
	Socket   string // a path to listen on as a Unix socket, without TLS; "" for none
	Data     Data
	Secrets  [][]byte // nil for one that the server makes; only on a loopback address
	LongPoll time.Duration
	Budget   int64 // bytes that all requests may hold at the same time; 0 is a quarter of memory.Limit
	Insecure bool  // the Durable Streams protocol needs no token; only on a loopback address
	Limits   Limits

	NATS      *NATS         // cluster for the log; nil for the data folder
	Retention log.Retention // of what the log holds

	Cert, Key string    // files of a certificate and its key; "" for no TLS
	Debug     string    // a loopback address to serve profiles on; "" for none
	Access    io.Writer // for the access log; nil for none
	Version   string    // of the program; "" is dev
	Logger    *slog.Logger

	// Parts returns what is added to the server once it listens; nil for nothing.
	Parts func(s Serving) Parts

	// SettleReads has each thread settled whose summary is read. It needs Parts.Settle.
	SettleReads bool

	// Delegate makes the row of a member's task; nil for a server that takes none.
	Delegate func(ctx context.Context, t rows.Task) (made rows.Task, fresh bool, err error)

	// Changed is called after each change of a stream, as log.Log's; nil for nothing.
	Changed func(c log.Change)

	// Opened is called once the log is open, before anything is served; nil for nothing.
	Opened func(ctx context.Context, streams *log.Log)

	// Rows are the rows about houses; nil for a server without houses. Provider has login tokens of their members that
	// this server did not sign; nil for none.
	Rows     member.Rows
	Provider *member.Provider
	Unserved func(ctx context.Context) error // see Server

	// Store has the rows that members read and write over HTTP; nil for none. It needs Rows. CheckRecipe: see Server.
	Store       rows.Store
	CheckRecipe func(r *rows.Recipe) error

	// Harnesses are those whose lines threads take; nil for session's list.
	Harnesses session.List

	engine log.Engine // for tests; nil for the one that the fields above name
}

// Serving is a server that runs, for what works beside it.
type Serving struct {
	URL     string       // the base
	HTTP    *http.Client // for requests to the server itself, whatever its certificate and the proxy of this machine
	Secret  []byte       // signs tokens
	Secrets [][]byte     // verify them
	Streams *log.Log
	Threads *index.Index    // nil where it can't be opened
	Closing context.Context // done when waits have to end
	Budget  *memory.Budget  // of the memory of all requests
	Doors   *member.Doors   // nil for a server without houses
	Metrics *metrics.Set
}

// Parts are the services on the threads of a server that runs. Each may be nil.
type Parts struct {
	Settle   func(ctx context.Context, threadID string) (server.Settled, error) // settles a thread now
	Commands houses.Commands                                                    // run in the boxes of threads
	Page     http.Handler                                                       // shows threads to people
	Beside   func(ctx context.Context) error                                    // runs while the server serves
}

// check returns why a server must not start.
func (c Config) check() error {
	for _, secret := range c.Secrets {
		if len(secret) < token.MinSecret {
			return fmt.Errorf("DURABLE_STREAMS_SECRET: %w", token.ErrShortSecret)
		}
	}
	switch public := c.Addr != "" && !httpd.Loopback(c.Addr); {
	case public && c.Secrets == nil:
		return ErrNoSecret
	case (public || c.Socket != "") && c.Insecure:
		return ErrInsecure
	}
	return nil
}

// listeners are those of a server. Each may be nil.
type listeners struct{ tcp, socket net.Listener }

// listen listens on all that is configured, and returns the base URL: that of the socket where there is no other.
func (c Config) listen(scheme string) (l listeners, url string, err error) {
	if c.Socket != "" {
		if l.socket, err = httpd.ListenSocket(c.Socket); err != nil {
			return l, "", err
		}
		url = thread.Unix + c.Socket
	}
	if c.Addr != "" {
		if l.tcp, err = net.Listen("tcp", c.Addr); err != nil {
			return l, "", errors.Join(err, l.close())
		}
		url = scheme + "://" + l.tcp.Addr().String()
	}
	return l, url, nil
}

func (l listeners) close() (err error) {
	for _, ln := range []net.Listener{l.tcp, l.socket} {
		if ln != nil {
			err = errors.Join(err, ln.Close())
		}
	}
	return err
}

// expireEvery is the time between two passes of log.Expire.
const expireEvery = 10 * time.Minute

// Serve runs a server until ctx is done. Then it answers the waiting readers, accepts requests until the services
// beside it have ended, 5 s at most, gives those that are running 10 s and closes the log. It calls ready with the base
// URL when requests can come. Where the log fails for good, it returns engine.ErrFailed at once, and the process has to
// end: requests may be stuck in the log.
func Serve(ctx context.Context, cfg Config, ready func(url string)) (err error) {
	if err := cfg.check(); err != nil {
		return err
	}
	if err := durable.MkdirAll(string(cfg.Data)); err != nil {
		return fmt.Errorf("data folder: %w; name another one with --data", err)
	}
	streams, err := cfg.open(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	ended := make(chan error, 1)
	go func() { ended <- serve(ctx, cfg, streams, ready) }()
	var failed <-chan struct{}
	engine, ok := streams.Engine().(failer)
	if ok {
		failed = engine.Failed()
	}
	select {
	case err := <-ended:
		return errors.Join(err, streams.Close())
	case <-failed:
	}
	cancel(httpd.ErrAtOnce)
	select {
	case <-ended:
	case <-time.After(failedTimeout):
	}
	return engine.Failure()
}

// failer is an engine that can fail for good. Once Failed is closed, calls that are running may never return, their
// appends may be on disk or not, and new calls fail with engine.ErrFailed. Nothing more is written.
type failer interface {
	Failed() <-chan struct{}

	// Failure is an engine.ErrFailed with its cause; nil while the engine works.
	Failure() error
}

// failedTimeout bounds the end of a server whose log has failed.
const failedTimeout = time.Second

// serve is Serve with an open log.
func serve(ctx context.Context, cfg Config, streams *log.Log, ready func(url string)) (err error) {
	together, ctx := errgroup.WithContext(ctx) // one that fails ends all
	s, err := cfg.server(ctx, streams)
	if err != nil {
		return err
	}
	if s.Index != nil {
		defer func() { err = errors.Join(err, s.Index.Close()) }()
	}
	scheme := "http"
	var certificate *tls.Config
	if cfg.Cert != "" || cfg.Key != "" {
		scheme = "https"
		if certificate, err = httpd.LoadTLS(cfg.Cert, cfg.Key, cfg.Logger, s.Metrics.Certificate); err != nil {
			return err
		}
	}
	on, url, err := cfg.listen(scheme)
	if err != nil {
		return err
	}
	parts := cfg.parts(Serving{
		URL: url, HTTP: ownClient(certificate), Secret: s.Secrets[0], Secrets: s.Secrets, Streams: streams,
		Threads: s.Index, Closing: ctx, Budget: s.Budget, Doors: s.Doors, Metrics: s.Metrics,
	})
	s.Settle, s.Commands, s.Page = parts.Settle, parts.Commands, parts.Page
	forget, err := cfg.Data.publish(url, cfg.Socket)
	if err != nil {
		return errors.Join(err, on.close())
	}
	defer func() { err = errors.Join(err, forget()) }()
	lasting := startBeside(ctx, together, parts.Beside)
	cfg.serveOn(lasting, together, on, s, certificate)
	together.Go(func() error { return streams.Watch(lasting) })
	if s.Index != nil {
		together.Go(func() error { return s.Index.Run(lasting) })
	}
	together.Go(func() error { return streams.ExpireLoop(ctx, expireEvery, cfg.Retention, cfg.Logger) })
	if cfg.Debug != "" {
		together.Go(func() error { return httpd.ServeProfiles(ctx, cfg.Debug, cfg.Logger) })
	}
	if s.Settle != nil && cfg.SettleReads {
		together.Go(func() error { return s.SettleLoop(ctx) })
	}
	ready(url)
	return together.Wait()
}

// startBeside starts the services beside a server, which end with ctx; nil for none. It returns the context of the
// server itself, which outlasts them.
func startBeside(
	ctx context.Context, together *errgroup.Group, services func(context.Context) error,
) (lasting context.Context) {
	beside, leave := context.WithCancel(context.Background())
	lasting, end := context.WithCancelCause(context.WithoutCancel(ctx))
	together.Go(func() error {
		defer leave()
		if services == nil {
			return nil
		}
		return services(ctx)
	})
	together.Go(func() error {
		outlast(ctx, beside)
		end(context.Cause(ctx))
		return nil
	})
	return lasting
}

// leaveWithin bounds the time in which a server that ends is there for the services beside it.
const leaveWithin = 5 * time.Second

// outlast returns when ctx has ended, and then the services beside the server, or their time: a host that stops posts
// to this server what it leaves to others.
func outlast(ctx, beside context.Context) {
	<-ctx.Done()
	if errors.Is(context.Cause(ctx), httpd.ErrAtOnce) {
		return
	}
	late := time.NewTimer(leaveWithin)
	defer late.Stop()
	select {
	case <-beside.Done():
	case <-late.C:
	}
}

// serveOn serves on all listeners until ctx is done. They share the limit of connections.
func (c Config) serveOn(
	ctx context.Context, together *errgroup.Group, on listeners, s *server.Server, certificate *tls.Config,
) {
	front, limit := s.Front(), httpd.NewLimit(c.mostConnections(), s.Metrics)
	if on.tcp != nil {
		srv := httpd.NewServer(front, c.Logger)
		srv.TLSConfig = certificate
		together.Go(func() error { return httpd.ServeUntil(ctx, srv, limit.Of(on.tcp)) })
	}
	if on.socket != nil {
		srv := httpd.NewServer(front, c.Logger)
		together.Go(func() error { return httpd.ServeUntil(ctx, srv, limit.Of(on.socket)) })
	}
}

// server returns the server of an open log, without its parts. Its waits end with ctx.
func (c Config) server(ctx context.Context, streams *log.Log) (*server.Server, error) {
	secrets := c.Secrets
	if secrets == nil {
		var err error
		if secrets, err = c.Data.makeSecret(); err != nil {
			return nil, err
		}
	}
	installation, err := identify(ctx, streams)
	if err != nil {
		installation = rand.Text() // no index is of this log
		c.Logger.Warn("installation id unknown: /healthz leaves it out until it can be read or written", "error", err)
	}
	if c.Opened != nil {
		c.Opened(ctx, streams)
	}
	disk := c.Data.log()
	if c.NATS != nil {
		disk = ""
	}
	m := metrics.New(cmp.Or(c.Version, "dev"), streams.Engine().Check, disk)
	streams.Observer, streams.Quota = m, c.Limits.StreamBytes
	s := &server.Server{
		Log: streams, Secrets: secrets, LongPoll: c.LongPoll, Insecure: c.Insecure, Closing: ctx, Logger: c.Logger,
		Budget:  memory.NewBudget(cmp.Or(c.Budget, memory.Limit()/4)),
		Metrics: m, Rate: c.Limits.Rate, TokenQuota: c.Limits.TokenBytes, Access: c.Access, Delegate: c.Delegate,
		Harnesses: c.Harnesses, Version: c.Version,
	}
	if c.Rows != nil {
		logins := member.Logins{Secrets: secrets, Provider: c.Provider}
		s.Doors = &member.Doors{Logins: logins, Rows: c.Rows}
		s.Rows, s.CheckRecipe, s.Unserved = c.Store, c.CheckRecipe, c.Unserved
	}
	if c.Changed != nil {
		streams.Changed = c.Changed
	}
	x, err := index.Open(c.Data.index(), installation, streams, c.Logger)
	if err != nil { // without a cache there is a server still
		c.Logger.Error("no list of threads: the index can't be opened", "error", err)
		return s, nil
	}
	s.Index, streams.Changed = x, x.Changed
	if c.Changed != nil {
		streams.Changed = func(change log.Change) {
			x.Changed(change)
			c.Changed(change)
		}
	}
	return s, nil
}

// parts returns the configured parts of a server that runs.
func (c Config) parts(s Serving) Parts {
	if c.Parts == nil {
		return Parts{}
	}
	return c.Parts(s)
}

// mostConnections returns how many connections may be open, and logs where that is fewer than was asked for.
func (c Config) mostConnections() int {
	most := c.Limits.MostConnections(1)
	if asked := c.Limits.Connections; most < asked {
		c.Logger.Warn("connections are limited by the limit of open files", "asked", asked, "connections", most,
			"files", openfiles.Limit())
	}
	return most
}

// ownClient returns a client for the server of this process; serves is nil for one without TLS.
func ownClient(serves *tls.Config) *http.Client {
	cl := client.NewHTTP()
	transport := cl.Transport.(*http.Transport)
	if transport.Proxy = nil; serves != nil {
		transport.TLSClientConfig = httpd.OwnTLS(serves)
	}
	return cl
}
