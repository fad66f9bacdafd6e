package botchaos

import (
	"regexp"
	"slices"

	"arbe.0sk.ar/runner/thread"
)

// The tools with an effect, by their names.
const (
	Thread  = "create_thread"
	Command = "run_command"
	Task    = "delegate_task"
	Chat    = "post_to_thread"
)

// Kinds are all of them.
var Kinds = []string{Thread, Command, Task, Chat}

// Name finds the name of what a call makes, in its arguments and in its effect.
var Name = regexp.MustCompile(`made-\d+-\d+-\d+`)

// Effect is a thread, a task, a post or a line that a call of a bot has made.
type Effect struct {
	Tool string
	Key  string // of the call; "" where the effect does not have it
	Name string
}

// Made counts effects, in the order of Kinds.
type Made [4]int

func (m Made) plus(other Made) Made {
	for i := range m {
		m[i] += other[i]
	}
	return m
}

// call is a call of a round on the thread, by a tool with an effect.
type call struct {
	Effect
	had bool // its effect: its result is on the thread, and no error
}

// calls returns the calls that make something with a name, in order.
func (l *record) calls() (all []call) {
	for _, x := range l.reactions {
		for i, rd := range x.rounds {
			for k, name := range rd.names {
				if name != "" {
					all = append(all, call{Effect{rd.tools[k], thread.CallKey(x.id, i, k), name}, rd.made[k]})
				}
			}
		}
	}
	return all
}

// checkMade checks that each call has had its effect once, and that no effect belongs to another call: of a reply that
// is not on the thread, or of another key. A call without a result, or with an error, may have had none. It counts the
// effects.
func (r Result) checkMade(l *record) (made Made) {
	if r.Made == nil {
		return made
	}
	calls := l.calls()
	count := map[string]int{}
	for _, e := range r.Made {
		if i := slices.Index(Kinds, e.Tool); i >= 0 {
			made[i]++
		}
		count[e.Name]++
		ofCall := func(c call) bool {
			return c.Name == e.Name && c.Tool == e.Tool && (e.Key == "" || e.Key == c.Key)
		}
		if !slices.ContainsFunc(calls, ofCall) {
			l.fault("an effect of %s (%s, key %s) is of no call", e.Tool, e.Name, e.Key)
		}
	}
	for _, c := range calls {
		switch n := count[c.Name]; {
		case n > 1:
			l.fault("call %s of %s has had its effect %d times", c.Key, c.Tool, n)
		case c.had && n == 0:
			l.fault("call %s of %s has a result, and has had no effect", c.Key, c.Tool)
		}
	}
	return made
}
