package store

import (
	"context"
	"fmt"
)

// Check sees that each shard has a leader and a majority behind it.
func (n *NATS) Check(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for _, s := range n.shards {
		info, err := n.info(ctx, s.stream)
		if err != nil {
			return err
		}
		if info.Cluster == nil {
			continue // of a server by itself
		}
		if info.Cluster.Leader == "" {
			return fmt.Errorf("stream %s has no leader", s.stream)
		}
		away := 0
		for _, r := range info.Cluster.Replicas {
			if r.Offline {
				away++
			}
		}
		if all := len(info.Cluster.Replicas) + 1; 2*away >= all {
			return fmt.Errorf("stream %s: %d of %d servers are away", s.stream, away, all)
		}
	}
	return nil
}
