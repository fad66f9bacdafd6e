package hostile

import (
	"fmt"

	"arbe.0sk.ar/runner/thread"
)

// reactions adds what hosts post of bots: a reaction that is answered, one that fails, one that is open, a decision,
// and a bot's chat from another thread. at puts the text in place of each §.
func reactions(run string, at func(format string) string, add func(id, payload string)) {
	add("x_e"+run+".0", at(`{"type":"pi.assistant","reaction":{"id":§,"round":0},"message":{"role":"assistant",`+
		`"content":[{"type":"text","text":§}]}}`))
	for i, x := range []string{"x_a" + run, "x_b" + run, "x_c" + run} {
		in := func(id, typ, more string) { // an object, of rounds, results and deltas
			add(x+id, fmt.Sprintf(`{"type":%q,"reaction":{"id":%q,"round":0,"depth":0}%s}`, typ, x, at(more)))
		}
		of := func(id, typ, more string) {
			add(x+id, fmt.Sprintf(`{"type":%q,"reaction":%q%s}`, typ, x, at(more)))
		}
		of(".claim.0", thread.TypeReactionClaimed, `,"claim":0,"agentId":§,"instance":§,"chats":[§],"reason":§,"model":§`)
		in(".0.0.d.0", thread.TypeDelta, `,"from":0,"text":§,"tools":[§]`)
		of("-cancel", thread.TypeReactionCancel, `,"reason":§`)
		if i == 2 {
			break
		}
		in(".0", thread.TypeRound, `,"stopReason":"toolUse","model":§,"message":{"role":"assistant","content":[`+
			`{"type":"text","text":§},{"type":"thinking","thinking":§},`+
			`{"type":"toolCall","id":§,"name":§,"arguments":{"command":§,§:§}},`+
			`{"type":"toolCall","id":"open","name":§,"arguments":{"command":§}}]}`)
		in(".0.0", thread.TypeResult, `,"toolCallId":§,"toolName":§,"isError":true,"message":{"role":"toolResult",`+
			`"content":[{"type":"text","text":§}]}`)
		if i == 0 {
			in(".1", thread.TypeRound, `,"chats":[§],"stopReason":"length","model":§,"message":{"role":"assistant",`+
				`"content":[{"type":"text","text":§}]}`)
			of(".end", thread.TypeReactionFinished, `,"outcome":"answered","calls":2,"durationMs":1`)
			continue
		}
		of(".end", thread.TypeReactionFinished, `,"outcome":"failed","errorClass":§,"message":§`)
	}
	add("d_"+run+".decided", at(`{"type":"signal.dispatch.decided","trigger":§,"bots":[`+
		`{"agentId":§,"decision":"skip","reason":"depth"},{"agentId":§,"decision":"skip","reason":§}]}`))
	add("x_d"+run+"-0-0", at(`{"type":"chat","text":§,"via":{"threadId":§,"reaction":§,"depth":1}}`))
}
