package live_test

import (
	"testing"

	"arbe.0sk.ar/runner/runner/live"
	"arbe.0sk.ar/runner/thread"
)

// Each row changes one thing of a state in which something is to be done.
func TestNext(t *testing.T) {
	steer := live.Chat{ID: "s", Deliver: thread.DeliverSteer}
	later := live.Chat{ID: "f", Deliver: thread.DeliverFollowUp}
	now := live.Chat{ID: "i", Deliver: thread.DeliverInterrupt}
	apart := live.Chat{ID: "a", Deliver: thread.DeliverSteer, Apart: true}
	for _, tt := range []struct {
		name string
		s    live.State
		want live.Action
	}{
		{"nothing to do", live.State{Ready: true}, live.Action{Do: live.Wait}},

		// What comes before everything else.
		{"input ended", live.State{Closed: true, Torn: true, Ready: true, Chats: []live.Chat{steer}}, live.Action{Do: live.Wait}},
		{"torn line", live.State{Torn: true, Filled: true}, live.Action{Do: live.Stop}},
		{"torn line at the end", live.State{Torn: true, End: live.Abort}, live.Action{Do: live.Stop}},
		{
			"the agent has not read",
			live.State{Filled: true, Ready: true, Replies: 1, Open: true, Chats: []live.Chat{steer}},
			live.Action{Do: live.Wait},
		},
		{"a request", live.State{Ready: true, Replies: 1, Open: true, Chats: []live.Chat{steer}}, live.Action{Do: live.Reply}},
		{"no session yet", live.State{Open: true, Doubt: true, Chats: []live.Chat{steer}}, live.Action{Do: live.Open}},

		// A doubt.
		{"doubt", live.State{Ready: true, Doubt: true, Rounds: 2, Chats: []live.Chat{steer}}, live.Action{Do: live.Ask}},
		{"doubt, not ready", live.State{Doubt: true, Rounds: 2}, live.Action{Do: live.Wait}},
		{"doubt, asked", live.State{Ready: true, Doubt: true, Rounds: 2, Asked: 1}, live.Action{Do: live.Wait}},
		{"doubt, second round", live.State{Ready: true, Doubt: true, Rounds: 2, Asked: 1, Answered: 1}, live.Action{Do: live.Ask}},
		{
			"doubt, answered",
			live.State{Ready: true, Doubt: true, Written: true, Rounds: 2, Asked: 2, Answered: 2},
			live.Action{Do: live.Resolve},
		},
		{
			"doubt, answered, not ready",
			live.State{Doubt: true, Written: true, Rounds: 1, Asked: 1, Answered: 1},
			live.Action{Do: live.Wait},
		},
		{"doubt goes before the end", live.State{Ready: true, Doubt: true, Rounds: 1, End: live.Finish}, live.Action{Do: live.Ask}},

		// One message at a time.
		{"written, not accepted", live.State{Ready: true, Written: true, Chats: []live.Chat{steer}}, live.Action{Do: live.Wait}},
		{"accepted", live.State{Ready: true, Queued: 1, Chats: []live.Chat{steer}}, live.Action{Do: live.Put, Chat: "s"}},
		{"a turn's last lines", live.State{Ready: true, Settling: true, Chats: []live.Chat{steer}}, live.Action{Do: live.Wait}},
		{"interrupting", live.State{Ready: true, Interrupting: true, Chats: []live.Chat{now}}, live.Action{Do: live.Wait}},

		// When a chat is given.
		{"idle: steer", live.State{Ready: true, Chats: []live.Chat{steer, later}}, live.Action{Do: live.Put, Chat: "s"}},
		{"idle: in order", live.State{Ready: true, Chats: []live.Chat{later, steer}}, live.Action{Do: live.Put, Chat: "f"}},
		{"busy: steer", live.State{Ready: true, Busy: true, Chats: []live.Chat{steer}}, live.Action{Do: live.Put, Chat: "s"}},
		{"busy, not ready", live.State{Busy: true, Chats: []live.Chat{steer}}, live.Action{Do: live.Wait}},
		{"busy: for after the turn", live.State{Ready: true, Busy: true, Chats: []live.Chat{later}}, live.Action{Do: live.Wait}},
		{"queued: for after the turn", live.State{Ready: true, Queued: 1, Chats: []live.Chat{later}}, live.Action{Do: live.Wait}},
		{"busy: a steer overtakes", live.State{Ready: true, Busy: true, Chats: []live.Chat{later, steer}}, live.Action{Do: live.Put, Chat: "s"}},

		// One that the agent takes in apart.
		{"idle: apart", live.State{Ready: true, Chats: []live.Chat{apart, steer}}, live.Action{Do: live.Put, Chat: "a"}},
		{"busy: apart", live.State{Ready: true, Busy: true, Chats: []live.Chat{apart, steer}}, live.Action{Do: live.Wait}},
		{"queued: apart", live.State{Ready: true, Queued: 1, Chats: []live.Chat{apart}}, live.Action{Do: live.Wait}},
		{"apart, accepted", live.State{Ready: true, Queued: 1, Apart: true, Chats: []live.Chat{steer}}, live.Action{Do: live.Wait}},
		{"busy: before apart", live.State{Ready: true, Busy: true, Chats: []live.Chat{steer, apart}}, live.Action{Do: live.Put, Chat: "s"}},
		{"busy: apart, after the turn", live.State{Ready: true, Busy: true, Chats: []live.Chat{
			{ID: "a", Deliver: later.Deliver, Apart: true}, steer,
		}}, live.Action{Do: live.Put, Chat: "s"}},
		{
			"apart, accepted: an interrupt",
			live.State{Ready: true, Queued: 1, Apart: true, Chats: []live.Chat{steer, now}},
			live.Action{Do: live.Interrupt, Chat: "i"},
		},
		// An interrupt.
		{
			"busy: an interrupt overtakes",
			live.State{Ready: true, Busy: true, Chats: []live.Chat{steer, now}},
			live.Action{Do: live.Interrupt, Chat: "i"},
		},
		{"queued: an interrupt", live.State{Ready: true, Queued: 1, Chats: []live.Chat{now}}, live.Action{Do: live.Interrupt, Chat: "i"}},
		{
			"busy, not ready: an interrupt",
			live.State{Busy: true, Chats: []live.Chat{now}},
			live.Action{Do: live.Interrupt, Chat: "i"},
		},
		{"idle: nothing to interrupt", live.State{Ready: true, Chats: []live.Chat{steer, now}}, live.Action{Do: live.Put, Chat: "i"}},
		{
			"interrupted",
			live.State{Ready: true, Busy: true, Interrupted: "i", Chats: []live.Chat{steer, now}},
			live.Action{Do: live.Put, Chat: "i"},
		},
		{
			"interrupted, the turn is ending",
			live.State{Busy: true, Interrupted: "i", Chats: []live.Chat{steer, now}},
			live.Action{Do: live.Wait},
		},
		{
			"interrupted for another chat",
			live.State{Ready: true, Busy: true, Interrupted: "j", Chats: []live.Chat{now}},
			live.Action{Do: live.Interrupt, Chat: "i"},
		},

		// The end that does what is queued.
		{"end: a chat", live.State{Ready: true, End: live.Finish, Tail: true, Chats: []live.Chat{steer}}, live.Action{Do: live.Put, Chat: "s"}},
		{
			"end: a chat for after the turn",
			live.State{Ready: true, Busy: true, End: live.Finish, Tail: true, Chats: []live.Chat{later}},
			live.Action{Do: live.Wait},
		},
		{"end: busy", live.State{Ready: true, Busy: true, End: live.Finish, Tail: true}, live.Action{Do: live.Wait}},
		{"end: queued", live.State{Ready: true, Queued: 1, End: live.Finish, Tail: true}, live.Action{Do: live.Wait}},
		{"end: settling", live.State{Ready: true, Settling: true, End: live.Finish, Tail: true}, live.Action{Do: live.Wait}},
		{"end: idle", live.State{Ready: true, End: live.Finish}, live.Action{Do: live.Read}},
		{"end: idle, thread read", live.State{Ready: true, End: live.Finish, Tail: true}, live.Action{Do: live.Close}},

		// The end now.
		{"abort: idle", live.State{Ready: true, End: live.Abort, Chats: []live.Chat{steer}}, live.Action{Do: live.Close}},
		{"abort: busy", live.State{Ready: true, Busy: true, End: live.Abort}, live.Action{Do: live.Interrupt}},
		{"abort: busy, a doubt", live.State{Busy: true, Doubt: true, Rounds: 1, End: live.Abort}, live.Action{Do: live.Interrupt}},
		{"abort: busy, pipe filled", live.State{Busy: true, Filled: true, End: live.Abort}, live.Action{Do: live.Wait}},
		{"abort: interrupted", live.State{Busy: true, Tried: true, End: live.Abort}, live.Action{Do: live.Wait}},
	} {
		if got := live.Next(tt.s); got != tt.want {
			t.Errorf("%s: %+v, want %+v", tt.name, got, tt.want)
		}
	}
}
