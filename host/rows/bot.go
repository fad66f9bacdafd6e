package rows

import (
	"cmp"
	"time"
)

// The modes of a bot on a thread: when it reacts to what does not name it.
const (
	ModeMention = "mention" // never
	ModeAmbient = "ambient" // where a cheap model finds that it should, some seconds later
	ModeAlways  = "always"
	ModeOff     = "off" // never, and not where it is named either
)

// UsualMode is that of a bot without another one.
const UsualMode = ModeMention

// BotConfig has a bot's model and instructions: agents.config.
type BotConfig struct {
	Model        string `json:"model,omitempty"` // PROVIDER/NAME; "" for a bot that does not answer
	Instructions string `json:"instructions,omitempty"`
}

// Reacting has when a bot reacts. What is absent stands elsewhere: the thread's goes before the member's, and the
// member's before the default.
type Reacting struct {
	TriggerMode    string `json:"triggerMode,omitempty"`
	AmbientDelayMs *int64 `json:"ambientDelayMs,omitempty"`
	CooldownMs     *int64 `json:"cooldownMs,omitempty"`
}

// MemberConfig has a house's settings for one of its bots: members.config.
type MemberConfig struct {
	Reacting
	Tools  map[string]bool `json:"tools,omitempty"` // by name: whether the bot may call it
	Caps   Caps            `json:"caps,omitzero"`
	Budget *float64        `json:"budget,omitempty"` // US dollars a day (UTC)
}

// Caps are the limits of one answer. What is nil stands elsewhere: the member's goes before the house's, and that one
// before the usual one.
type Caps struct {
	Rounds       *int64   `json:"rounds,omitempty"` // replies of the model that may call tools
	Calls        *int64   `json:"calls,omitempty"`  // of tools
	WallMs       *int64   `json:"wallMs,omitempty"`
	OutputTokens *int64   `json:"outputTokens,omitempty"` // of one reply
	Tokens       *int64   `json:"tokens,omitempty"`       // of all requests together
	Cost         *float64 `json:"cost,omitempty"`         // US dollars
}

// Or returns the caps of c, and those of d where c has none.
func (c Caps) Or(d Caps) Caps {
	return Caps{
		Rounds: cmp.Or(c.Rounds, d.Rounds), Calls: cmp.Or(c.Calls, d.Calls), WallMs: cmp.Or(c.WallMs, d.WallMs),
		OutputTokens: cmp.Or(c.OutputTokens, d.OutputTokens), Tokens: cmp.Or(c.Tokens, d.Tokens),
		Cost: cmp.Or(c.Cost, d.Cost),
	}
}

// HouseConfig is houses.config.
type HouseConfig struct {
	Dispatch HouseDispatch `json:"dispatch,omitzero"`
	Runs     *int64        `json:"runs,omitempty"`     // at once, of tasks and for chats; nil for no limit
	BoxHours *int64        `json:"boxHours,omitempty"` // since a box was made, for such runs in it; nil for no limit
}

// HouseDispatch is how the bots of a house answer.
type HouseDispatch struct {
	GateModel string                 `json:"gateModel,omitempty"` // PROVIDER/NAME; "" for the bot's own
	Models    map[string]ModelAccess `json:"models,omitempty"`    // by provider
	Caps      Caps                   `json:"caps,omitzero"`
	Budget    *float64               `json:"budget,omitempty"` // US dollars a day (UTC) for all answers of its bots

	CreateAgents bool `json:"createAgents,omitempty"` // bots that have the tool for it make others
}

// ModelAccess has a house's access to a provider's models.
type ModelAccess struct {
	Secret string           `json:"secret,omitempty"` // of the house: the key; "" for the provider's usual name
	Prices map[string]Price `json:"prices,omitempty"` // by the provider's name of a model
}

// Price has the prices of a million tokens of a model, in US dollars. Input and Output are always set. Without a price
// of its own a token that is read from the provider's cache, or written to it, counts as one of the input.
type Price struct {
	Input      *float64 `json:"input,omitempty"`
	Output     *float64 `json:"output,omitempty"`
	CacheRead  *float64 `json:"cacheRead,omitempty"`
	CacheWrite *float64 `json:"cacheWrite,omitempty"`
}

// ThreadConfig is threads.config.
type ThreadConfig struct {
	Dispatch ThreadDispatch `json:"dispatch,omitzero"`
}

// ThreadDispatch is how bots react on one thread.
type ThreadDispatch struct {
	Off      bool                `json:"off,omitempty"`      // nobody does
	PerAgent map[string]Reacting `json:"perAgent,omitempty"` // by the agent's id
}

// NewBot has a caller's choices for a new bot.
type NewBot struct {
	Name    string
	Runtime string // its harness
	House   string // that owns it, and has it as a member; "" for none
	Config  BotConfig

	ID    string          // of a bot that a bot makes
	Tools map[string]bool // and the settings of its tools in the house, as MemberConfig has them
}

// AgentChange is a change of an agent. What is nil stays. The last three are of bots alone.
type AgentChange struct {
	Name         *string
	House        *string // that owns it; "" for none
	Model        *string // "" for none
	Instructions *string
}

// MemberChange is a change of a house's settings for one of its bots. What is nil stays.
type MemberChange struct {
	Mode         *string
	AmbientDelay *time.Duration // whole milliseconds
	Cooldown     *time.Duration // whole milliseconds
	Tools        map[string]bool
	Caps         Caps
	Budget       *float64 // US dollars a day
}

// NoLimit stands for no limit where nil is for no change.
const NoLimit = -1

// HouseChange is a change of the settings of a house. What is nil stays.
type HouseChange struct {
	GateModel *string           // "" for the bot's own
	Keys      map[string]string // secrets by provider; "" for the usual one
	Agents    *bool             // whether bots make bots
	Dispatch  *bool             // true: chats from now on are answered, unless they are already; false: none
	Runs      *int64            // NoLimit for none
	BoxHours  *int64            // 0 for no limit
	Prices    map[string]Price  // by PROVIDER/NAME; without an Input for that of the program's table
	Caps      Caps
	Budget    *float64 // US dollars a day
}

// Room is a thread with its house, as its bots need them to answer.
type Room struct {
	Thread      Thread // without its Config
	Dispatch    ThreadDispatch
	House       House
	HouseConfig HouseConfig
	Since       time.Time // chats before it are not answered; zero: no bot of the house answers
	Bots        []RoomBot // of the house, without archived ones, in the order of their joining
	Humans      []Agent   // of the house, without archived ones
}

// Environment returns the id of the environment of the thread's box; "" for none.
func (r Room) Environment() string { return cmp.Or(r.Thread.Environment, r.House.DefaultEnvironment) }

// RoomBot is a bot in a room.
type RoomBot struct {
	Agent
	JoinedAt time.Time
	Config   BotConfig
	Member   MemberConfig
}

// ThreadAt is a thread's log up to an offset.
type ThreadAt struct{ ID, Offset string }
