package rows

import "time"

// House is a tenant. It owns everything but agents.
type House struct {
	ID                 string    `json:"id"`
	Name               string    `json:"name"`
	DefaultEnvironment string    `json:"defaultEnvironment,omitempty"` // of threads without one; "" for no default
	CreatedAt          time.Time `json:"createdAt"`

	// DispatchSince is when its bots began to answer: they answer no chat of before. nil: they don't.
	DispatchSince *time.Time `json:"dispatchSince,omitempty"`
}

// HouseCounts is how much a house has.
type HouseCounts struct {
	Members      int // that are in use
	Environments int // archived ones included
	Secrets      int
	Sandboxes    int // those that may have a machine
}

// HouseRuns is how many runs a house has, launches of tasks included, and how many wait because it runs as many as it
// may.
type HouseRuns struct {
	Running int `json:"running"`
	Waiting int `json:"waiting"`
}

// Kinds of agents.
const (
	KindHuman = "human"
	KindBot   = "bot"
)

// Agent is an actor, of no house.
type Agent struct {
	ID         string     `json:"id"` // of a human: that of its login
	Kind       string     `json:"kind"`
	Runtime    string     `json:"runtime,omitempty"` // of a bot: its harness
	Name       string     `json:"name"`
	House      string     `json:"house,omitempty"` // of a bot: the one whose owners set it up; "": the operator alone does
	Model      string     `json:"model,omitempty"` // of a bot, as BotConfig has it
	CreatedAt  time.Time  `json:"createdAt"`
	ArchivedAt *time.Time `json:"archivedAt,omitempty"` // nil: it is in use
}

// Roles of members. Owners write members and secrets; bots are members only.
const (
	RoleOwner  = "owner"
	RoleMember = "member"
)

// Member is an agent's membership of a house.
type Member struct {
	House      string
	Agent      string
	Role       string
	Mode       string // of a bot, as MemberConfig has it
	JoinedAt   time.Time
	ArchivedAt *time.Time // nil: a member; else it has left, and is still named by threads that it drives
}
