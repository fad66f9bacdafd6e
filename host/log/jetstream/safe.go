package jetstream

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	natsjs "github.com/nats-io/nats.go/jetstream"
)

// UnsafeError is the error of shards that can lose acknowledged appends.
type UnsafeError struct {
	Problems []string // each with the streams that have it, and the change to make
}

func (e *UnsafeError) Error() string {
	return "the NATS streams can lose acknowledged appends: " + strings.Join(e.Problems, "; ")
}

// checkSafe checks the config that a client can see. How the servers sync their disks is not part of it: checkSafe logs
// what to look at there.
func (n *Engine) checkSafe(infos map[string]*streamInfo) error {
	problems := n.problems(infos)
	if len(problems) > 0 && !n.config.AllowUnsafe {
		return &UnsafeError{problems}
	}
	for _, p := range problems {
		n.log.Warn("NATS can lose acknowledged appends", "problem", p)
	}
	n.log.Warn(`NATS clients can't see how servers sync: set "sync_interval: always" in each server's jetstream block, ` +
		`or a power loss of several servers can lose acknowledged appends`)
	return nil
}

// problems lists the ways in which the shards can lose appends, each with the streams that have it.
func (n *Engine) problems(infos map[string]*streamInfo) []string {
	found := map[string][]string{}
	for _, s := range n.shards {
		for _, p := range unsafe(infos[s.stream].Config) {
			found[p] = append(found[p], s.stream)
		}
	}
	var problems []string
	for _, p := range slices.Sorted(maps.Keys(found)) {
		at := found[p][0]
		if more := len(found[p]) - 1; more > 0 {
			at += fmt.Sprintf(" and %d more", more)
		}
		problems = append(problems, at+" "+p)
	}
	return problems
}

// unsafe lists how a stream with this config can lose messages. persist_mode is not among them: the server refuses
// async for a stream with atomic batches, which openShards requires.
func unsafe(c natsjs.StreamConfig) []string {
	var problems []string
	add := func(is bool, problem string) {
		if is {
			problems = append(problems, problem)
		}
	}
	old := c.Discard != natsjs.DiscardNew
	add(c.Replicas < 3, fmt.Sprintf("has %d of 3 replicas (change num_replicas)", c.Replicas))
	add(c.Storage != natsjs.FileStorage, "is stored in memory (create it again with file storage)")
	add(c.Retention != natsjs.LimitsPolicy,
		"deletes messages that consumers have read (create it again with limits retention)")
	add(c.MaxAge > 0, "deletes old messages (change max_age to 0)")
	add(c.MaxMsgs > 0 && old, "deletes old messages beyond a number (change discard to new, or max_msgs to -1)")
	add(c.MaxBytes > 0 && old, "deletes old messages beyond a size (change discard to new, or max_bytes to -1)")
	add(c.MaxMsgsPerSubject > 0 && (old || !c.DiscardNewPerSubject),
		"deletes old messages of a subject (change max_msgs_per_subject to -1)")
	add(c.NoAck, "acknowledges nothing (change no_ack to false)")
	return problems
}
