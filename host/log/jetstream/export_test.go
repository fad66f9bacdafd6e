package jetstream

import (
	"context"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

// KeepAtMost sets how many keys and values the engine caches.
func (n *Engine) KeepAtMost(most int) { n.cache.most = most }

// Kept is the number of keys and values in the cache.
func (n *Engine) Kept() int {
	n.cache.mu.Lock()
	defer n.cache.mu.Unlock()
	return n.cache.kept
}

// HasMajority is hasMajority for a leader whose contacts with its replicas are so long ago.
func HasMajority(replicas int, ago ...time.Duration) bool {
	info := &streamInfo{StreamInfo: natsjs.StreamInfo{
		Config: natsjs.StreamConfig{Replicas: replicas}, Cluster: &natsjs.ClusterInfo{},
	}}
	for _, since := range ago {
		info.Cluster.Replicas = append(info.Cluster.Replicas, &natsjs.PeerInfo{Active: since})
	}
	return hasMajority(info)
}

// TryMany reads the messages of a stream with one request, and returns their seqs.
func TryMany(ctx context.Context, conn *nats.Conn, stream string) (seqs []uint64, err error) {
	n := &Engine{conn: conn, timeouts: timeouts{least: tryTimeout}}
	_, err = n.tryMany(ctx, tryTimeout, &shard{stream: stream}, getRequest{Batch: 10}, func(m message) (bool, error) {
		seqs = append(seqs, m.Seq)
		return true, nil
	})
	return seqs, err
}
