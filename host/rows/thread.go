package rows

import (
	"encoding/json"
	"time"
)

// Statuses of threads: of chats the first two, of driven ones the others, as the log has them.
const (
	ThreadOpen      = "open"
	ThreadClosed    = "closed"
	ThreadIdle      = "idle"
	ThreadRunning   = "running"
	ThreadCompleted = "completed"
	ThreadFailed    = "failed"
	ThreadCancelled = "cancelled"
)

// Thread is the row of a thread.
type Thread struct {
	ID          string
	House       string
	Name        string
	Tags        []string
	Pinned      bool
	Parent      string // thread; "" for none
	ParentAgent string // the bot that the thread is a conversation with; "" for none
	Environment string // its own; "" for the house's default
	Sandbox     string
	Agent       string          // the bot that drives it; "" for a chat
	Config      json.RawMessage // nil in a list
	Status      string
	ClaimedRun  string // the run that has it, until the log knows that
	Waits       bool   // its task is not launched yet
	CreatedAt   time.Time
	UpdatedAt   time.Time
}

// NewThread has a caller's choices for a new thread. It is the body of the request that makes one.
type NewThread struct {
	ID          string          `json:"id"` // "" for a new one
	House       string          `json:"house"`
	Name        string          `json:"name"`
	Tags        []string        `json:"tags"`
	Pinned      bool            `json:"pinned"`
	Parent      string          `json:"parent"` // thread of the house
	Environment string          `json:"environment"`
	Agent       string          `json:"agent"`       // a bot of the house, which drives it; "" for a chat
	ParentAgent string          `json:"parentAgent"` // a bot of the house; not with Parent
	Config      json.RawMessage `json:"config"`      // a JSON object; nil for an empty one

	// Sandbox of the house, to share; "" for one of its own, once it needs one. No request names it.
	Sandbox string `json:"-"`
}

// ThreadChange is a change of a thread, and the body of the request for it. What is nil stays.
type ThreadChange struct {
	Name        *string   `json:"name"`
	Tags        *[]string `json:"tags"`
	Pinned      *bool     `json:"pinned"`
	Closed      *bool     `json:"closed"`      // of chats only
	Environment *string   `json:"environment"` // of the house; "" for none of its own

	Config json.RawMessage `json:"config"` // a JSON object, in place of the whole one

	// Beside Tags: those to add, and those to remove. The order of those that stay is kept.
	AddTags    []string `json:"-"`
	RemoveTags []string `json:"-"`
}

// Query names threads of a list.
type Query struct {
	IDs      []string // these only; nil for all
	House    string   // "" for all of the agent's
	Statuses []string // any of these, as thread.Summary has them; none for all. A chat is idle
	Tags     []string // all of these
	Pinned   bool     // these only
	Parent   string   // children of this thread only
	Name     string   // a part of the name, in any case; "" for any
	Limit    int      // of the page, at most 200; 0 for 50
	After    Mark     // the last thread of the page before
}

// Mark is a place in the list of threads: right even once its thread is deleted.
type Mark struct {
	CreatedAt time.Time
	ID        string // "" for the start of the list
}

// Mark returns the place of a thread.
func (t Thread) Mark() Mark { return Mark{t.CreatedAt, t.ID} }
