package server

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
	"os"
	"time"

	"golang.org/x/sync/errgroup"

	"arbe.0sk.ar/runner/host/httpd"
	"arbe.0sk.ar/runner/host/index"
	"arbe.0sk.ar/runner/host/log"
	"arbe.0sk.ar/runner/host/log/jetstream"
	"arbe.0sk.ar/runner/host/log/pebble"
	"arbe.0sk.ar/runner/host/member"
	"arbe.0sk.ar/runner/host/memory"
	"arbe.0sk.ar/runner/host/rows"
	"arbe.0sk.ar/runner/host/server/metrics"
	"arbe.0sk.ar/runner/host/token"
	"arbe.0sk.ar/runner/internal/durable"
	"arbe.0sk.ar/runner/internal/openfiles"
	"arbe.0sk.ar/runner/thread"
)

// Config is the configuration of Serve.
type Config struct {
	Addr     string // to listen on, "127.0.0.1:8787"
	Data     Data
	Secrets  [][]byte // nil for one that the server makes; only on a loopback address
	LongPoll time.Duration
	Budget   int64 // bytes that all requests may hold at the same time; 0 is a quarter of memory.Limit
	Insecure bool  // the Durable Streams protocol needs no token; only on a loopback address
	Limits   Limits

	NATS      *jetstream.Config // cluster for the log; nil for the data folder
	Retention log.Retention     // of what the log holds

	Cert, Key string    // files of a certificate and its key; "" for no TLS
	Debug     string    // a loopback address to serve profiles on; "" for none
	Access    io.Writer // for the access log; nil for none
	Version   string    // of the program, for the measurements
	Logger    *slog.Logger

	// Beside runs while the server serves, and ends when ctx does; nil for none.
	Beside func(ctx context.Context, s Serving) error

	// Settle returns what settles a thread; nil for a server that settles none.
	Settle func(s Serving) func(ctx context.Context, threadID string) (Settled, error)

	// SettleReads has each thread settled whose summary is read. It needs Settle.
	SettleReads bool

	// Commands returns what runs commands in the boxes of threads; nil for a server that runs none.
	Commands func(s Serving) Commands

	// Delegate makes the row of a member's task; nil for a server that takes none.
	Delegate func(ctx context.Context, t Task) (Delegated, error)

	// Opened is called once the log is open, before anything is served; nil for nothing.
	Opened func(ctx context.Context, streams *log.Log)

	// Rows are the rows about houses; nil for a server without houses. Provider has login tokens of their members that
	// this server did not sign; nil for none.
	Rows     member.Rows
	Provider *member.Provider

	// Store has the rows that members read and write over HTTP; nil for none. It needs Rows. CheckRecipe is Server's.
	Store       rows.Store
	CheckRecipe func(r *rows.Recipe) error

	// Page returns the page that shows threads to people; nil for a server without one.
	Page func(s Serving) http.Handler

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
}

// check returns why a server must not start.
func (c Config) check() error {
	for _, secret := range c.Secrets {
		if len(secret) < token.MinSecret {
			return fmt.Errorf("DURABLE_STREAMS_SECRET: %w", token.ErrShortSecret)
		}
	}
	switch public := !httpd.Loopback(c.Addr); {
	case public && c.Secrets == nil:
		return ErrNoSecret
	case public && c.Insecure:
		return ErrInsecure
	}
	return nil
}

// expireEvery is the time between two passes of log.Expire.
const expireEvery = 10 * time.Minute

// Serve runs a server until ctx is done. Then it accepts no more requests, answers the waiting readers, gives the
// others 10 s and closes the log. It calls ready with the base URL when requests can come. Where the log fails for
// good, it returns engine.ErrFailed at once, and the process has to end: requests may be stuck in the log.
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
	secrets := cfg.Secrets
	if secrets == nil {
		if secrets, err = cfg.Data.makeSecret(); err != nil {
			return err
		}
	}
	installation, err := identify(ctx, streams)
	if err != nil {
		installation = rand.Text() // no index is of this log
		cfg.Logger.Warn("installation id unknown: /healthz leaves it out until it can be read or written",
			"error", err)
	}
	if cfg.Opened != nil {
		cfg.Opened(ctx, streams)
	}
	disk := cfg.Data.log()
	if cfg.NATS != nil {
		disk = ""
	}
	m := metrics.New(cmp.Or(cfg.Version, "dev"), streams.Engine().Check, disk)
	streams.Observer = m

	together, ctx := errgroup.WithContext(ctx) // one that fails ends all
	s := &Server{
		Log:      streams,
		Secrets:  secrets,
		LongPoll: cfg.LongPoll,
		Budget:   cfg.Budget,
		Insecure: cfg.Insecure,
		Closing:  ctx,
		Delegate: cfg.Delegate,
		Logger:   cfg.Logger,
		metrics:  m,
	}
	if cfg.Rows != nil {
		s.Doors = &member.Doors{
			Logins: member.Logins{Secrets: secrets, Provider: cfg.Provider}, Rows: cfg.Rows,
		}
		s.Rows, s.CheckRecipe = cfg.Store, cfg.CheckRecipe
	}
	x, err := index.Open(cfg.Data.index(), installation, streams, cfg.Logger)
	if err != nil { // without a cache there is a server still
		cfg.Logger.Error("no list of threads: the index can't be opened", "error", err)
	} else {
		s.Index, streams.Changed = x, x.Changed
		defer func() { err = errors.Join(err, x.Close()) }()
	}
	streams.Quota, s.TokenQuota = cfg.Limits.StreamBytes, cfg.Limits.TokenBytes
	h := httpd.Recovered(s.handler(), cfg.Logger, m.Panicked)
	srv := httpd.NewServer(front(h, m, cfg.Limits, cfg.Access, s.core.Holder), cfg.Logger)
	scheme := "http"
	if cfg.Cert != "" || cfg.Key != "" {
		scheme = "https"
		if srv.TLSConfig, err = httpd.LoadTLS(cfg.Cert, cfg.Key, cfg.Logger, m.Certificate); err != nil {
			return err
		}
	}
	ln, err := net.Listen("tcp", cfg.Addr)
	if err != nil {
		return err
	}
	most := cfg.Limits.MostConnections(1)
	if asked := cfg.Limits.Connections; most < asked {
		cfg.Logger.Warn("connections are limited by the limit of open files", "asked", asked, "connections", most,
			"files", openfiles.Limit())
	}
	url := scheme + "://" + ln.Addr().String()
	serving := Serving{
		URL: url, HTTP: ownClient(srv.TLSConfig),
		Secret: secrets[0], Secrets: secrets, Streams: streams, Threads: s.Index, Closing: ctx,
		Budget: s.core.Budget, Doors: s.Doors,
	}
	if cfg.Settle != nil {
		s.Settle = cfg.Settle(serving)
	}
	if cfg.Commands != nil {
		s.Commands = cfg.Commands(serving)
	}
	if cfg.Page != nil {
		s.Page = cfg.Page(serving)
	}
	if err := durable.WriteFile(cfg.Data.addressFile(), []byte(url+"\n")); err != nil {
		return errors.Join(err, ln.Close())
	}
	defer func() { err = errors.Join(err, os.Remove(cfg.Data.addressFile())) }()

	together.Go(func() error { return httpd.ServeUntil(ctx, srv, httpd.LimitConnections(ln, most, m)) })
	together.Go(func() error { return streams.Watch(ctx) })
	if s.Index != nil {
		together.Go(func() error { return x.Run(ctx) })
	}
	together.Go(func() error { return streams.ExpireLoop(ctx, expireEvery, cfg.Retention, cfg.Logger) })
	if cfg.Debug != "" {
		together.Go(func() error { return httpd.ServeProfiles(ctx, cfg.Debug, cfg.Logger) })
	}
	if s.Settle != nil && cfg.SettleReads {
		together.Go(func() error { return s.SettleLoop(ctx) })
	}
	if cfg.Beside != nil {
		together.Go(func() error { return cfg.Beside(ctx, serving) })
	}
	ready(url)
	return together.Wait()
}

// ownClient returns a client for the server of this process; serves is nil for one without TLS.
func ownClient(serves *tls.Config) *http.Client {
	client := thread.NewHTTP()
	transport := client.Transport.(*http.Transport)
	if transport.Proxy = nil; serves != nil {
		transport.TLSClientConfig = httpd.OwnTLS(serves)
	}
	return client
}

// OpenLog opens the log in the folder dir on this machine's disk, and makes it where there is none. One process at a
// time can open it.
func OpenLog(dir string, logger *slog.Logger) (*log.Log, error) {
	e, err := pebble.Open(dir, logger)
	if err != nil {
		return nil, err
	}
	return log.New(e), nil
}

// open opens the configured log.
func (c Config) open(ctx context.Context) (*log.Log, error) {
	if c.engine != nil {
		return log.New(c.engine), nil
	}
	if c.NATS == nil {
		return OpenLog(c.Data.log(), c.Logger)
	}
	e, err := jetstream.Open(ctx, *c.NATS)
	if err != nil {
		return nil, err
	}
	return log.New(e), nil
}

// identifyTimeout bounds the read of the installation's id at the start.
const identifyTimeout = 5 * time.Second

// identify reads the installation's id, and makes it at the first start. On a full disk, and on a cluster without a
// majority, the server starts without it.
func identify(ctx context.Context, streams *log.Log) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, identifyTimeout)
	defer cancel()
	return streams.Installation(ctx)
}
