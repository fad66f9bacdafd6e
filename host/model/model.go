// Package model is the vocabulary of one request to a model, whose reply is streamed: what a bot sends, what comes
// back, and the kinds of errors. Packages anthropic and openai below it speak to providers; they share
// package provider.
package model

import (
	"context"
	"encoding/json"
	"fmt"
	"time"
)

// Model is a provider's API with a house's key. Its methods may be called at the same time.
type Model interface {
	// Stream sends one request, once, and returns the reply when it is complete. Meanwhile it calls f with the parts
	// that arrive, in order and from the caller's goroutine. With an error it returns what the provider has counted so
	// far, as Usage of the Reply. The error is an *Error, or ctx's; there is no limit on time but for silence and ctx.
	Stream(ctx context.Context, r Request, f func(Event)) (Reply, error)
}

// Request is a question to a model.
type Request struct {
	Model     string // the provider's name of it
	System    string // the same in each request of a bot and a thread: providers cache it
	Messages  []Message
	Tools     []Tool
	Must      string // name of a tool that the model has to call; "" for none
	NoCalls   bool   // the model may call none: this is its last reply
	MaxTokens int    // of the reply
}

// Role is who wrote a message.
type Role string

// The roles. Results of calls are the user's.
const (
	User      Role = "user"
	Assistant Role = "assistant"
)

// Message is a message of a conversation. Messages of one role may follow each other.
type Message struct {
	Role  Role
	Parts []Part
}

// Part is a part of a message: exactly one of its fields is set.
type Part struct {
	Text     string
	Thinking *Thinking // of the assistant
	Call     *Call     // of the assistant
	Result   *Result   // of the user
	Image    *Image    // of the user
}

// Thinking has the thoughts of a model, with the provider's signature of it. It goes back unchanged or not at all. Of
// redacted thinking the signature is all there is.
type Thinking struct {
	Text      string
	Signature string
	Redacted  bool
}

// Call is a call of a tool. Arguments are a JSON object; what a model has written instead is in Broken. In a reply each
// call has an id that no other call of the reply has.
type Call struct {
	ID        string
	Name      string
	Arguments json.RawMessage
	Broken    string
}

// Result is the result of a call.
type Result struct {
	CallID  string
	Text    string
	IsError bool
}

// Image is a picture.
type Image struct {
	MIME string
	Data []byte
}

// Tool is a tool that a model may call. Schema is the JSON Schema of its arguments, an object.
type Tool struct {
	Name        string
	Description string
	Schema      json.RawMessage
}

// Event is a part of a reply as it arrives: text, or the name of a tool once it is known.
type Event struct {
	Text string
	Tool string
}

// Stop is the reason for which a reply ended.
type Stop string

// The reasons, in pi's words.
const (
	StopEnd     Stop = "stop"
	StopLength  Stop = "length" // at MaxTokens
	StopCalls   Stop = "toolUse"
	StopRefused Stop = "refusal" // by the provider's filter
)

// Reply is a complete reply.
type Reply struct {
	Parts []Part // of the assistant
	Stop  Stop
	Model string // as the provider has it
	Usage Usage
}

// Usage are tokens, in pi's names. Input has none of the cached ones.
type Usage struct {
	Input      int64 `json:"input"`
	Output     int64 `json:"output"`
	CacheRead  int64 `json:"cacheRead"`
	CacheWrite int64 `json:"cacheWrite"`
}

// Kind is the kind of an error: what a caller can do about it.
type Kind int

// The kinds.
const (
	Again   Kind = iota // the provider is overloaded, or the connection broke: the same request later
	Denied              // the key or the model was refused, or there is no money left
	TooLong             // the request has more tokens than the model takes
	Invalid             // the provider refuses the request for another reason
	Garbage             // the answer is no valid reply
)

// Error is the error of a request.
type Error struct {
	Kind       Kind
	Status     int           // of HTTP; 0 where there was no answer, or a stream that went wrong
	RetryAfter time.Duration // at most 5 minutes; 0 where the provider named none
	Unsent     bool          // the request did not reach the provider
	Message    string        // the provider's own, or the cause: one line of at most 1,000 bytes, without the key
}

// Error implements error.
func (e *Error) Error() string {
	if e.Status == 0 {
		return e.Message
	}
	return fmt.Sprintf("the provider answered %d: %s", e.Status, e.Message)
}
