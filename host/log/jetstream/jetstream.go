// Package jetstream is the log's engine on a NATS JetStream cluster that several servers share.
//
// The streams of the log are subjects of a few JetStream streams, the shards. An append is published with the seq at
// which its subject must end, so that the cluster accepts one of several concurrent appends and refuses the others. An
// append is durable when a majority of the shard's servers has stored it. A stream's keys and values are read from it
// when they are first needed, and cached from then on while there is room.
package jetstream

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"arbe.0sk.ar/runner/host/log/engine"
)

// Engine is a connection to the cluster. Open makes one; its owner calls Close.
type Engine struct {
	config Config
	log    *slog.Logger
	conn   *nats.Conn
	ended  chan struct{} // closed with the connection, for good
	shards []*shard
	cache  cache
	recent engine.LRU[frameKey, *frame]

	timeouts timeouts

	refused atomic.Bool // the cluster had no room for the last append
}

// Config names the cluster, and the shards to create on it.
type Config struct {
	URL         string // servers, separated by commas: nats://host:port or tls://host:port
	Credentials string // path of a credentials file; "" for none
	Prefix      string // of the JetStream streams' names and subjects; "" for "arbe"
	Shards      int    // number of shards to create, 0 for 16. Existing shards keep their number
	Replicas    int    // of the shards to create; 0 for 3
	AllowUnsafe bool   // only warn of shards that can lose acknowledged appends
	Logger      *slog.Logger
}

const (
	connectTimeout = 5 * time.Second // of one server, with its greeting
	firstWait      = 5 * time.Millisecond
	lastWait       = 500 * time.Millisecond // between two tries

	headerRoom = 1 << 10 // bytes of a message that are left to its headers
	leastRoom  = 8 << 10 // least bytes for the rest
)

// Open connects to the cluster, and creates the shards if there are none. UnsafeError: they can lose acknowledged
// appends. format.ErrLater: a later program has written them.
func Open(ctx context.Context, config Config) (*Engine, error) {
	config.Prefix = cmp.Or(config.Prefix, "arbe")
	config.Shards = cmp.Or(config.Shards, 16)
	config.Replicas = cmp.Or(config.Replicas, 3)
	if config.Logger == nil {
		config.Logger = slog.New(slog.DiscardHandler)
	}
	if !isToken(config.Prefix) || config.Shards < 1 || config.Shards > 1024 || config.Replicas < 1 {
		return nil, fmt.Errorf(
			"nats: prefix %q, %d shards, %d replicas: want a prefix of letters, digits, _ and -, and 1 to 1024 shards",
			config.Prefix, config.Shards, config.Replicas)
	}
	n := &Engine{config: config, log: config.Logger.With("component", "nats"), ended: make(chan struct{})}
	n.timeouts.least, n.recent.Most = tryTimeout, mostRecent
	if err := n.connect(ctx); err != nil {
		return nil, err
	}
	err := n.openShards(ctx)
	if err == nil && n.room() < leastRoom {
		err = fmt.Errorf("messages have at most %d bytes (max_payload): want at least %d, better 1 MiB",
			n.room()+headerRoom, leastRoom+headerRoom)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("nats: %w", err), n.Close())
	}
	return n, nil
}

// connect opens the connection, which reconnects until it is closed.
func (n *Engine) connect(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	servers, err := servers(n.config.URL)
	if err != nil {
		return err
	}
	options := []nats.Option{
		nats.Name("arbe thread server"),
		nats.MaxReconnects(-1),
		nats.ReconnectWait(250 * time.Millisecond),
		nats.Timeout(connectTimeout),
		nats.PingInterval(5 * time.Second), // after two without an answer it tries another server
		nats.IgnoreAuthErrorAbort(),        // a user may be refused for a while
		nats.ReconnectBufSize(-1),          // a publish without a connection fails at once, and never happens later
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			if err != nil {
				n.log.Warn("disconnected from NATS", "error", err)
			}
		}),
		nats.ReconnectHandler(func(c *nats.Conn) { n.log.Info("reconnected to NATS", "server", c.ConnectedAddr()) }),
		nats.ErrorHandler(
			func(_ *nats.Conn, _ *nats.Subscription, err error) { n.log.Warn("NATS error", "error", err) }),
		nats.ClosedHandler(func(*nats.Conn) { close(n.ended) }),
	}
	if n.config.Credentials != "" {
		options = append(options, nats.UserCredentials(n.config.Credentials))
	}
	conn, err := nats.Connect(strings.Join(servers, ","), options...)
	if err != nil {
		shown := make([]string, len(servers))
		for i, s := range servers {
			if u, err := url.Parse(s); err == nil {
				shown[i] = u.Host // a user name can be a token
			}
		}
		return fmt.Errorf("connect to NATS at %s: %w", strings.Join(shown, ","), err)
	}
	n.conn = conn
	return nil
}

// servers splits a list of servers. Its error does not repeat them: they can hold passwords.
func servers(list string) ([]string, error) {
	var servers []string
	for i, s := range strings.Split(list, ",") {
		s = strings.TrimSpace(s)
		u, err := url.Parse(s)
		if err != nil || u.Host == "" || u.Scheme != "nats" && u.Scheme != "tls" {
			return nil, fmt.Errorf("nats: server %d of the list: want nats://host:port or tls://host:port", i+1)
		}
		servers = append(servers, s)
	}
	return servers, nil
}

// room is the number of bytes that a message may have.
func (n *Engine) room() int {
	room := int(n.conn.MaxPayload())
	for _, s := range n.shards {
		if most := int(s.most.Load()); most > 0 {
			room = min(room, most)
		}
	}
	return room - headerRoom
}

// Close closes the connection.
func (n *Engine) Close() error {
	n.conn.Close()
	<-n.ended
	return nil
}
