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
)

// NATS is the engine in a NATS JetStream cluster, of which several servers can use the same streams.
//
// Our streams are subjects of a few JetStream streams, the shards. An append is published with the seq that its subject must stand at, so that the cluster
// refuses all but one of those who append at the same time. What a stream has of keys and values is read from it when it is first asked for, and is kept
// in memory from then on, for as long as there is room.
type Engine struct {
	config Config
	log    *slog.Logger
	conn   *nats.Conn
	ended  chan struct{} // closed when the connection is closed for good
	shards []*shard
	cache  cache
	recent recent

	refused atomic.Bool // the last append found no room
}

// NATSConfig says where the cluster is and what to make there.
type Config struct {
	URL         string // of the servers: nats://host:port or tls://host:port, several with commas between
	Credentials string // name of a file; "" for none
	Prefix      string // of the streams' names and subjects; "arbe" where it is ""
	Shards      int    // how many to make; 16 where it is 0. Where there are some already, their number stays
	Replicas    int    // of the shards that are made; 3 where it is 0
	AllowUnsafe bool   // go on with streams that can lose what they acknowledged, with a warning
	Logger      *slog.Logger
}

const (
	patience  = 10 * time.Second // for an answer of the cluster. It takes that long to notice that a leader is gone, and to elect another
	oneTry    = 2 * time.Second  // then the question is put again: whoever it went to may be gone
	firstWait = 5 * time.Millisecond
	lastWait  = 500 * time.Millisecond

	headerRoom = 1 << 10 // of a message's size is left to headers
	leastRoom  = 8 << 10 // for the rest
)

// OpenNATS connects to the cluster and makes the shards where there are none. The engine is to be closed.
func Open(ctx context.Context, config Config) (*Engine, error) {
	config.Prefix = cmp.Or(config.Prefix, "arbe")
	config.Shards = cmp.Or(config.Shards, 16)
	config.Replicas = cmp.Or(config.Replicas, 3)
	if config.Logger == nil {
		config.Logger = slog.New(slog.DiscardHandler)
	}
	if !isToken(config.Prefix) || config.Shards < 1 || config.Shards > 1024 || config.Replicas < 1 {
		return nil, fmt.Errorf("nats: prefix %q, %d shards, %d replicas: a prefix has letters, digits, _ and - only, and there are 1 to 1024 shards", config.Prefix, config.Shards, config.Replicas)
	}
	n := &Engine{config: config, log: config.Logger.With("component", "nats"), ended: make(chan struct{})}
	if err := n.connect(ctx); err != nil {
		return nil, err
	}
	err := n.openShards(ctx)
	if err == nil && n.room() < leastRoom {
		err = fmt.Errorf("messages may have %d bytes only (max_payload): %d are needed, 1 MiB is good", n.room()+headerRoom, leastRoom+headerRoom)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("nats: %w", err), n.Close())
	}
	return n, nil
}

// connect makes the connection, which goes on by itself until it is closed.
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
		nats.PingInterval(5 * time.Second), // two without an answer, and another server is tried
		nats.IgnoreAuthErrorAbort(),        // who has the right to connect can change for a while
		nats.ReconnectBufSize(-1),          // what can't be sent now fails now: nothing is to be published behind our back
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			if err != nil {
				n.log.Warn("the connection to NATS is lost", "error", err)
			}
		}),
		nats.ReconnectHandler(func(c *nats.Conn) { n.log.Info("connected to NATS again", "server", c.ConnectedAddr()) }),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { n.log.Warn("NATS", "error", err) }),
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
				shown[i] = u.Host // a user can be a token
			}
		}
		return fmt.Errorf("connect to NATS at %s: %w", strings.Join(shown, ","), err)
	}
	n.conn = conn
	return nil
}

// servers takes a list of servers apart. Its error doesn't repeat them: there can be passwords in them.
func servers(list string) ([]string, error) {
	var servers []string
	for i, s := range strings.Split(list, ",") {
		s = strings.TrimSpace(s)
		u, err := url.Parse(s)
		if err != nil || u.Host == "" || u.Scheme != "nats" && u.Scheme != "tls" {
			return nil, fmt.Errorf("nats: server %d of the list is not like nats://host:port or tls://host:port", i+1)
		}
		servers = append(servers, s)
	}
	return servers, nil
}

// room is how many bytes a message can have.
func (n *Engine) room() int {
	room := int(n.conn.MaxPayload())
	for _, s := range n.shards {
		if most := int(s.most.Load()); most > 0 {
			room = min(room, most)
		}
	}
	return room - headerRoom
}

// Close ends the connection. Nobody may be using the engine any more.
func (n *Engine) Close() error {
	n.conn.Close()
	<-n.ended
	return nil
}
