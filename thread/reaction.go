package thread

import (
	"crypto/sha256"
	"encoding/base32"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The types of what bots decide and answer. Only hosts post them.
const (
	TypeDecided          = "signal.dispatch.decided"
	TypeDelta            = "signal.dispatch.delta"
	TypeReactionClaimed  = "signal.dispatch.reaction_claimed"
	TypeReactionAlive    = "signal.dispatch.reaction_alive"
	TypeReactionFinished = "signal.dispatch.reaction_finished"
	TypeRound            = "pi.assistant"
	TypeResult           = "pi.tool_result"

	prefixReaction = "signal.dispatch.reaction_"
)

// TypeReactionCancel asks for a reaction's end. Anybody who may write posts it.
const TypeReactionCancel = "signal.dispatch.reaction_cancel"

// The decisions on a bot.
const (
	DecisionReact = "react"
	DecisionSkip  = "skip"
)

// The reasons for a decision.
const (
	ReasonMention  = "mention"
	ReasonAlways   = "always"
	ReasonAmbient  = "ambient"
	ReasonDriver   = "driver"
	ReasonMode     = "mode"
	ReasonDepth    = "depth"
	ReasonCap      = "cap"
	ReasonCooldown = "cooldown"
	ReasonBudget   = "budget"
)

// The outcomes of a reaction.
const (
	ReactionAnswered  = "answered"
	ReactionDeclined  = "declined"
	ReactionRefused   = "refused"
	ReactionFailed    = "failed"
	ReactionCancelled = "cancelled"
)

// IsPassing reports whether a payload type is of entries that are of use while a bot answers, and not later: its text
// as it comes, and signs of life. The server deletes them after a while.
func IsPassing(typ string) bool { return typ == TypeDelta || typ == TypeReactionAlive }

// Root is the chat of a human that began a chain of replies.
type Root struct {
	AuthorID string `json:"authorId"`
	ThreadID string `json:"threadId"`
	EntryID  string `json:"entryId"`
}

// Via is where a chat comes from that a bot has posted to another thread.
type Via struct {
	ThreadID string `json:"threadId"`
	Reaction string `json:"reaction"`
	Depth    int    `json:"depth"`
	Root     *Root  `json:"root,omitempty"`
}

// Choice is the decision on one bot. DueAt is when it reacts at the earliest, as an RFC 3339 time.
type Choice struct {
	AgentID  string `json:"agentId"`
	Decision string `json:"decision"`
	Reason   string `json:"reason"`
	DueAt    string `json:"dueAt,omitempty"`
}

// Decided is the payload that has which bots react to a trigger, and which were named or ready and may not.
type Decided struct {
	Type    string   `json:"type"`
	Trigger string   `json:"trigger"`
	Depth   int      `json:"depth"`
	Root    *Root    `json:"root,omitempty"`
	Bots    []Choice `json:"bots"`
}

// ReactionClaimed is the payload by which a host becomes the k-th holder of a reaction. Begun is there for k = 0.
type ReactionClaimed struct {
	Type     string `json:"type"`
	Reaction string `json:"reaction"`
	Claim    int    `json:"claim"`
	AgentID  string `json:"agentId"`
	Instance string `json:"instance"` // random: of two hosts one gets the claim
	LeaseMs  int64  `json:"leaseMs"`
	*Begun
}

// Begun holds for a reaction from its first claim on, for all later holders.
type Begun struct {
	Chats    []string        `json:"chats"` // the triggers that it answers
	Depth    int             `json:"depth"`
	Root     *Root           `json:"root,omitempty"`
	Reason   string          `json:"reason"`
	Upto     string          `json:"upto"` // offset that its context ends at
	Model    string          `json:"model,omitempty"`
	Provider string          `json:"provider,omitempty"`
	Tools    []string        `json:"tools,omitempty"`
	Caps     json.RawMessage `json:"caps,omitempty"`
}

// ReactionAlive is the payload of a holder that has nothing else to post, or that releases its reaction.
type ReactionAlive struct {
	Type     string `json:"type"`
	Reaction string `json:"reaction"`
	Claim    int    `json:"claim"`
	Released bool   `json:"released,omitempty"`
}

// InReaction is the member "reaction" of a round and of a result.
type InReaction struct {
	ID    string `json:"id"`
	Round int    `json:"round"`
	Depth int    `json:"depth"`
}

// Round is one reply of a bot's model. The last one of a reaction has no calls, and Chats.
type Round struct {
	Type       string          `json:"type"`
	Reaction   InReaction      `json:"reaction"`
	Message    json.RawMessage `json:"message"` // in pi's form
	StopReason string          `json:"stopReason"`
	Provider   string          `json:"provider"`
	Model      string          `json:"model"`
	Usage      json.RawMessage `json:"usage,omitempty"`
	Cost       *float64        `json:"cost,omitempty"` // US dollars; nil where it is not known
	Chats      []string        `json:"chats,omitempty"`
}

// CallResult is the result of one call of a round.
type CallResult struct {
	Type       string          `json:"type"`
	Reaction   InReaction      `json:"reaction"`
	ToolCallID string          `json:"toolCallId"`
	ToolName   string          `json:"toolName"`
	IsError    bool            `json:"isError"`
	Invalid    bool            `json:"invalid,omitempty"` // the arguments were not those of the tool
	Message    json.RawMessage `json:"message"`           // in pi's form
}

// ReactionFinished is the payload that ends a reaction.
type ReactionFinished struct {
	Type       string          `json:"type"`
	Reaction   string          `json:"reaction"`
	Chats      []string        `json:"chats"`
	Outcome    string          `json:"outcome"`
	ErrorClass string          `json:"errorClass,omitempty"`
	Message    string          `json:"message,omitempty"`
	Rounds     int             `json:"rounds"`
	Calls      int             `json:"calls"`
	Usage      json.RawMessage `json:"usage,omitempty"`
	Cost       *float64        `json:"cost,omitempty"` // US dollars; nil where it is not known
	DurationMs int64           `json:"durationMs"`
}

// Delta is a piece of a round's text as it comes. From is how many characters came before it; with 0 the text begins
// anew.
type Delta struct {
	Type     string     `json:"type"`
	Reaction InReaction `json:"reaction"`
	From     int        `json:"from"`
	Text     string     `json:"text"`
	Tools    []string   `json:"tools,omitempty"` // names of tools that are being called
}

// ReactionCancel is the payload that asks for a reaction's end.
type ReactionCancel struct {
	Type     string `json:"type"`
	Reaction string `json:"reaction"`
	Reason   string `json:"reason,omitempty"`
}

// DecidedID returns the id of the decision on a trigger.
func DecidedID(trigger string) string { return "d_" + short(trigger) + ".decided" }

// ReactionID returns the id of a bot's n-th reaction on a thread, from 0. The thread is in it because it makes ids on
// other threads, too.
func ReactionID(threadID, bot string, n int) string {
	return "x_" + short(threadID+"\n"+bot+"\n"+strconv.Itoa(n))
}

// ReactionClaimID returns the id by which a host becomes the k-th holder of a reaction, from 0.
func ReactionClaimID(reaction string, k int) string { return reaction + ".claim." + strconv.Itoa(k) }

// ReactionEndID returns the id of a reaction's end.
func ReactionEndID(reaction string) string { return reaction + ".end" }

// ReactionAliveID returns the id of the n-th sign of life of a reaction's k-th holder.
func ReactionAliveID(reaction string, k, n int) string {
	return reaction + ".alive." + strconv.Itoa(k) + "." + strconv.Itoa(n)
}

// RoundID returns the id of a reaction's n-th round, from 0.
func RoundID(reaction string, n int) string { return reaction + "." + strconv.Itoa(n) }

// DeltaID returns the id of the i-th delta of a round by the reaction's k-th holder, from 0.
func DeltaID(reaction string, n, k, i int) string {
	return RoundID(reaction, n) + "." + strconv.Itoa(k) + ".d." + strconv.Itoa(i)
}

// CallResultID returns the id of the result of a round's i-th call, from 0.
func CallResultID(reaction string, n, i int) string {
	return RoundID(reaction, n) + "." + strconv.Itoa(i)
}

// CallKey returns the key of a call, by which its effect happens once. It is a thread's, a run's and a command's id.
func CallKey(reaction string, n, i int) string {
	return reaction + "-" + strconv.Itoa(n) + "-" + strconv.Itoa(i)
}

// IsCallKey reports whether an id may be a key of CallKey, as that of a command that a bot runs.
func IsCallKey(id string) bool {
	rest, is := strings.CutPrefix(id, "x_")
	reaction, _, numbered := strings.Cut(rest, "-")
	return is && numbered && len(reaction) == shortLength
}

// shortLength is the length of what short returns.
const shortLength = 24

// short returns 24 characters of a-z and 2-7.
func short(s string) string {
	sum := sha256.Sum256([]byte(s))
	return strings.ToLower(base32.StdEncoding.EncodeToString(sum[:])[:shortLength])
}

// OpenReaction is a bot's reaction without an end.
type OpenReaction struct {
	ID   string    `json:"id"`
	Bot  string    `json:"bot"`
	Upto string    `json:"upto,omitempty"` // an offset before its first claim
	Last time.Time `json:"last"`           // of its newest claim or sign of life that was added, by the server's clock
}

// Reactions folds a thread's entries into the reactions without an end. The zero value is an empty thread. Its JSON is
// its whole state.
type Reactions struct{ open []OpenReaction }

// Add adds the thread's next entry. Signs of life may be left out.
func (r *Reactions) Add(e Entry) {
	switch TypeOf(e.Payload) {
	case TypeReactionClaimed:
		p := payloadOf[ReactionClaimed](e)
		if p == nil {
			return
		}
		if i := r.index(p.Reaction); i >= 0 {
			r.open[i].Last = e.Received()
		} else if p.Claim == 0 && p.Begun != nil {
			r.open = append(r.open, OpenReaction{
				ID: p.Reaction, Bot: p.AgentID, Upto: p.Upto, Last: e.Received(),
			})
		}
	case TypeReactionAlive:
		if p := payloadOf[ReactionAlive](e); p != nil {
			if i := r.index(p.Reaction); i >= 0 {
				r.open[i].Last = e.Received()
			}
		}
	case TypeReactionFinished:
		if p := payloadOf[ReactionFinished](e); p != nil {
			if i := r.index(p.Reaction); i >= 0 {
				r.open = slices.Delete(r.open, i, i+1)
			}
		}
	}
}

func (r *Reactions) index(id string) int {
	return slices.IndexFunc(r.open, func(x OpenReaction) bool { return x.ID == id })
}

// Open returns the reactions without an end, in the order of their first claims.
func (r *Reactions) Open() []OpenReaction { return slices.Clone(r.open) }

// IsZero reports whether no reaction is open.
func (r Reactions) IsZero() bool { return len(r.open) == 0 }

// MarshalJSON returns the state.
func (r Reactions) MarshalJSON() ([]byte, error) { return Marshal(r.open), nil }

// UnmarshalJSON replaces the Reactions with those whose state MarshalJSON returned.
func (r *Reactions) UnmarshalJSON(b []byte) error { return json.Unmarshal(b, &r.open) }
