package dispatch

// CallsOf returns the calls of a round's message.
var CallsOf = callsOf
