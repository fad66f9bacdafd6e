package reconcile_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"arbe.0sk.ar/runner/host/reconcile"
	"arbe.0sk.ar/runner/host/sandbox"
	"arbe.0sk.ar/runner/thread"
)

var (
	reaction = thread.ReactionID("t1", "piet", 0)

	claimedEntry = reaction + `.claim.0 {"type":"signal.dispatch.reaction_claimed","reaction":"` + reaction +
		`","claim":0,"agentId":"piet","instance":"i","leaseMs":20000,"chats":["c1"],"depth":0,"reason":"mention","upto":"0"}`
	aliveEntry = reaction + `.alive.0.0 {"type":"signal.dispatch.reaction_alive","reaction":"` + reaction + `","claim":0}`
	deltaEntry = reaction + `.0.0.d.0 {"type":"signal.dispatch.delta","reaction":{"id":"` + reaction +
		`","round":0,"depth":0},"from":0,"text":"I will"}`
	roundEntry = reaction + `.0 {"type":"pi.assistant","reaction":{"id":"` + reaction +
		`","round":0,"depth":0},"message":{"role":"assistant","content":[{"type":"toolCall","id":"c0","name":"echo","arguments":{}}]},` +
		`"stopReason":"toolUse","provider":"p","model":"m"}`
	endEntry = reaction + `.end {"type":"signal.dispatch.reaction_finished","reaction":"` + reaction +
		`","chats":["c1"],"outcome":"answered","rounds":1,"calls":0,"durationMs":1}`
)

const chatOfAnn = `c1 {"type":"chat","text":"@piet how long do the tests take?"}`

// A reaction on which no host works any more gets an end, and once; its thread stays as it is.
func TestSettleReaction(t *testing.T) {
	for _, tt := range []struct {
		name    string
		entries []string
		ahead   time.Duration
		after   time.Duration // OrphanAfter
		ends    bool
		has     string // of the end
		open    bool   // a later pass has work
	}{
		{"no reaction", []string{chatOfAnn}, 50 * time.Hour, 0, false, "", false},
		{"claimed", []string{chatOfAnn, claimedEntry}, 29 * time.Minute, 0, false, "", true},
		{"claimed, and silent", []string{chatOfAnn, claimedEntry}, 31 * time.Minute, 0, true, `"rounds":0,"calls":0`, false},
		{"in mid-round", []string{chatOfAnn, claimedEntry, aliveEntry, deltaEntry}, 31 * time.Minute, 0, true, `"rounds":0,"calls":0`, false},
		{"in a call", []string{chatOfAnn, claimedEntry, roundEntry}, 31 * time.Minute, 0, true, `"rounds":1,"calls":1`, false},
		{"ended", []string{chatOfAnn, claimedEntry, endEntry}, 50 * time.Hour, 0, false, "", false},
		{"a short limit", []string{chatOfAnn, claimedEntry}, 30 * time.Second, time.Second, false, "", true},
		{"a short limit, and silent", []string{chatOfAnn, claimedEntry}, 3 * time.Minute, time.Second, true, "", false},
	} {
		for _, indexed := range []bool{true, false} {
			t.Run(fmt.Sprint(tt.name, ", indexed ", indexed), func(t *testing.T) {
				t.Parallel()
				w := newWorld(t)
				w.post("t1", tt.entries...)
				w.ahead.Store(int64(tt.ahead))
				r := w.reconciler()
				r.OrphanAfter = tt.after
				if !indexed {
					r.Known = nil
				}
				for i := range 2 { // the second time it does nothing more
					s, err := r.Thread(t.Context(), "t1")
					if err != nil || s.Status != "idle" || s.Open != tt.open {
						t.Fatalf("got %+v, %v", s, err)
					}
					if did := len(s.Actions) == 1 && s.Actions[0].Did == reconcile.Ended; did != (tt.ends && i == 0) {
						t.Errorf("pass %d: did %+v", i, s.Actions)
					}
				}
				entries := w.entries("t1")
				if !tt.ends {
					if len(entries) != len(tt.entries) {
						t.Errorf("the thread grew: %v", entries[len(tt.entries):])
					}
					return
				}
				if len(entries) != len(tt.entries)+1 {
					t.Fatalf("entries %v", entries)
				}
				last := entries[len(entries)-1]
				for _, has := range []string{
					thread.ReactionEndID(reaction) + " ", `"outcome":"failed","errorClass":"silent"`, `"chats":["c1"]`, tt.has,
				} {
					if !strings.Contains(last, has) {
						t.Errorf("the end is %s, without %s", last, has)
					}
				}
				if e := w.stored("t1", thread.ReactionEndID(reaction)); e.AuthorID != "piet" {
					t.Errorf("the end is of %q", e.AuthorID)
				}
			})
		}
	}
}

// Each of several bots is judged alone, and the thread's run is not.
func TestSettleReactionsBesideARun(t *testing.T) {
	w := newWorld(t)
	w.health["b1"], w.runs["b1"] = sandbox.Live, true
	other := thread.ReactionID("t1", "alma", 0)
	w.post("t1", running, inBox("b1", true, ""), startedEntry, chatOfAnn, claimedEntry,
		strings.ReplaceAll(strings.ReplaceAll(claimedEntry, reaction, other), "piet", "alma"), endEntry)
	w.ahead.Store(int64(31 * time.Minute))
	s, err := w.reconciler().Thread(t.Context(), "t1")
	if err != nil || s.Status != thread.StatusRunning || len(s.Actions) != 1 || s.Actions[0].Run != other {
		t.Errorf("got %+v, %v", s, err)
	}
}
