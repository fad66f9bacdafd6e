package jetstream

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	natsjs "github.com/nats-io/nats.go/jetstream"
)

// UnsafeError says that the cluster's streams can lose what they have acknowledged.
type UnsafeError struct {
	Problems []string // each with the streams that have it, and what to change
}

func (e *UnsafeError) Error() string {
	return "the NATS streams can lose what they were given: " + strings.Join(e.Problems, "; ")
}

// checkSafe looks at what a client can see. How servers sync their disks is not part of it: it is said once, that somebody may look there.
func (n *Engine) checkSafe(infos map[string]*streamInfo) error {
	problems := n.problems(infos)
	if len(problems) > 0 && !n.config.AllowUnsafe {
		return &UnsafeError{problems}
	}
	for _, p := range problems {
		n.log.Warn("NATS can lose what it acknowledged", "problem", p)
	}
	n.log.Warn(`NATS does not tell clients how its servers sync: each needs "sync_interval: always" in its jetstream block, or what was acknowledged is lost when several lose power`)
	return nil
}

// problems are the ways in which the shards can lose what they were given, each with the streams that have it.
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

// unsafe lists how a stream with this config can lose messages. A stream that takes atomic batches, which was seen to before, writes before it acknowledges:
// the server doesn't let it have persist_mode async.
func unsafe(c natsjs.StreamConfig) []string {
	var problems []string
	say := func(is bool, problem string) {
		if is {
			problems = append(problems, problem)
		}
	}
	old := c.Discard != natsjs.DiscardNew
	say(c.Replicas < 3, fmt.Sprintf("has %d of 3 replicas (change num_replicas)", c.Replicas))
	say(c.Storage != natsjs.FileStorage, "is kept in memory (it must be made anew, with file storage)")
	say(c.Retention != natsjs.LimitsPolicy, "drops what consumers have seen (it must be made anew, with limits retention)")
	say(c.MaxAge > 0, "drops what is old (change max_age to 0)")
	say(c.MaxMsgs > 0 && old, "drops old messages beyond a number (change discard to new, or max_msgs to -1)")
	say(c.MaxBytes > 0 && old, "drops old messages beyond a size (change discard to new, or max_bytes to -1)")
	say(c.MaxMsgsPerSubject > 0 && (old || !c.DiscardNewPerSubject), "drops old messages of a subject (change max_msgs_per_subject to -1)")
	say(c.NoAck, "acknowledges nothing (change no_ack to false)")
	return problems
}
