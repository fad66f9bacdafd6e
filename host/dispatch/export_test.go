package dispatch

// For tests that write and read rounds.
var (
	CallsOf   = callsOf
	MessageOf = messageOf
	TextOf    = textOf
)
