package thread

import "encoding/json"

// Summary is a thread in the list of threads. What is not known is left out. Run and the members after it, up to
// Parent, are of the thread's latest run; Title, Usage, Cost and Lines are of the whole thread. All times are of the
// server's clock.
type Summary struct {
	ID          string   `json:"id"`
	Status      string   `json:"status"`              // idle before any run
	Waiting     bool     `json:"waiting"`             // a live run's agent has ended its turn and waits for a chat
	WaitingAt   string   `json:"waitingAt,omitempty"` // since when it waits
	Pending     int      `json:"pending,omitempty"`   // chats that no run has had yet; exact up to 100
	Title       string   `json:"title,omitempty"`
	StartedAt   string   `json:"startedAt"`             // of the latest run; the thread's first entry before any
	LastEntryAt string   `json:"lastEntryAt,omitempty"` // but the text of bots as it comes, and their signs of life
	Usage       *Usage   `json:"usage,omitempty"`
	Cost        *float64 `json:"cost,omitempty"` // in US dollars, where the harness reports it
	Lines       int64    `json:"lines"`          // mirrored lines

	Reactions int      `json:"reactions,omitempty"` // of bots, that have not ended
	Answering []string `json:"answering,omitempty"` // ids of the bots whose they are; at most 20

	Run        string   `json:"run,omitempty"`
	Harness    string   `json:"harness,omitempty"`
	Live       bool     `json:"live,omitempty"`  // it has not ended, and takes chats
	Model      string   `json:"model,omitempty"` // of the run's last reply
	EndedAt    string   `json:"endedAt,omitempty"`
	LastBeatAt string   `json:"lastBeatAt,omitempty"`
	NextMs     int64    `json:"nextMs,omitempty"` // as the last heartbeat has it
	ErrorClass string   `json:"errorClass,omitempty"`
	Sandbox    *Sandbox `json:"sandbox,omitempty"`
	Parent     *Parent  `json:"parent,omitempty"`

	Offset string `json:"offset"` // behind the last entry that the summary includes, of those that LastEntryAt may be of

	*Row // nil but in what a server with a database answers to members of houses
}

// Undelivered returns how many chats wait for an agent. On a thread that has had no run none does: maybe bots alone
// answer there.
func (s Summary) Undelivered() int {
	if s.Status == StatusIdle {
		return 0
	}
	return s.Pending
}

// Row has the database columns of a thread, beside its log.
type Row struct {
	House        string   `json:"house"`
	Name         string   `json:"name,omitempty"`
	Tags         []string `json:"tags"`
	Pinned       bool     `json:"pinned"`
	Closed       bool     `json:"closed,omitempty"`       // a chat that takes no more posts of members
	ParentThread string   `json:"parentThread,omitempty"` // its id
	SandboxID    string   `json:"sandboxId,omitempty"`
	Environment  string   `json:"environment,omitempty"` // its id; "" for the house's default
	Agent        string   `json:"agent,omitempty"`       // the bot that drives it; "" for a chat
	ParentAgent  string   `json:"parentAgent,omitempty"` // the bot that it is a conversation with

	Config    json.RawMessage `json:"config,omitempty"` // a JSON object; left out in a list
	CreatedAt string          `json:"createdAt"`
}

// Usage is the tokens of a thread's replies, added up.
type Usage struct {
	Input       float64 `json:"input"`
	Output      float64 `json:"output"`
	CacheRead   float64 `json:"cacheRead"`
	CacheWrite  float64 `json:"cacheWrite"`
	TotalTokens float64 `json:"totalTokens"`
}

// SummaryPage is a part of the list of threads, newest start first.
type SummaryPage struct {
	Threads []Summary `json:"threads"`
	Cursor  string    `json:"cursor,omitempty"` // of the next page; "" on the last one
}
