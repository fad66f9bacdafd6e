package thread

import "encoding/json"

// The types of payloads that are not a harness's own.
const (
	TypeChat          = "chat"
	TypeSandbox       = "signal.dispatch.sandbox"
	TypeStarted       = "signal.dispatch.session_started"
	TypeHeartbeat     = "signal.dispatch.heartbeat"
	TypeWaiting       = "signal.dispatch.pi_waiting"
	TypeRefused       = "signal.dispatch.chat_refused"
	TypeAsked         = "signal.dispatch.agent_asked"
	TypeEnd           = "signal.dispatch.end_requested"
	TypeCancel        = "signal.dispatch.cancel_requested"
	TypeStatus        = "signal.thread.status_changed"
	TypeFailed        = "signal.thread.pi_failed"
	TypeOrphaned      = "signal.thread.pi_session_orphaned"
	TypeAgentSpawn    = "signal.thread.agent_spawn"
	TypeChildFinished = "signal.thread.child_finished"
)

// The kinds behind a harness's prefix: pi.assistant and so on.
const (
	KindAssistant  = "assistant"
	KindToolResult = "tool_result"
	KindSession    = "session"
)

// Kinds of <prefix>.session entries that are not the line's own type. They stand here because the mirror writes them
// and a rebuild reads them.
const (
	KindPrompt   = "prompt"   // chats that are on the thread already: the run's prompt, and what was delivered
	KindUser     = "user"     // what an agent wrote as its user, as where background work has ended; a subagent's task
	KindLong     = "long"     // a line of which only the beginning was read
	KindStub     = "stub"     // an entry that the server refused, without its content
	KindMigrated = "migrated" // a line whose content is on the thread under the id that it had in an older file format
)

// Base64 is the Encoding of a Line whose bytes are no text.
const Base64 = "base64"

// Statuses of a run and of its thread. Idle is a thread without runs.
const (
	StatusIdle      = "idle"
	StatusRunning   = "running"
	StatusCompleted = "completed"
	StatusFailed    = "failed"
	StatusCancelled = "cancelled"
)

// Signal has the members of every signal of a run.
type Signal struct {
	Type    string `json:"type"`
	RunID   string `json:"runId,omitempty"`
	Harness string `json:"harness,omitempty"`
}

// Chat is a turn that a person or another agent wrote. RunID is set where it is a run's prompt.
type Chat struct {
	Type      string `json:"type"`
	Text      string `json:"text"`
	RunID     string `json:"runId,omitempty"`
	Deliver   string `json:"deliver,omitempty"`   // a Deliver constant; "" for DeliverSteer
	Quiet     bool   `json:"quiet,omitempty"`     // bots don't react: the result of a task
	Truncated bool   `json:"truncated,omitempty"` // text is a beginning and a mark with the whole's length and SHA-256

	Mentions []string `json:"mentions,omitempty"` // ids of bots that the writer's program has read in the text
	Via      *Via     `json:"via,omitempty"`      // of a bot, from another thread
}

// Sandbox names a box: "local:abc" is {local, abc}.
type Sandbox struct {
	Provider string `json:"provider"`
	Ref      string `json:"ref"`
}

// Parent is the thread that a delegated run works for, and who asked there.
type Parent struct {
	ThreadID string `json:"threadId"`
	AuthorID string `json:"authorId,omitempty"`
}

// Box is the box of a run, from the host. Ephemeral reports that it was made for this run alone.
type Box struct {
	Sandbox
	Ephemeral bool `json:"ephemeral"`
}

// SandboxOf is the payload that names the box of a run.
type SandboxOf struct {
	Signal
	Sandbox Box     `json:"sandbox"`
	Parent  *Parent `json:"parent,omitempty"`
	After   *After  `json:"after,omitempty"`
}

// AgentSpawn is the payload that announces a delegated task on the parent's thread. The child's row is there before.
type AgentSpawn struct {
	Type          string `json:"type"`
	ChildThreadID string `json:"childThreadId"`
	AgentID       string `json:"agentId"`
}

// Spawn returns the entry that announces a delegated task on its parent's thread: one for each child.
func Spawn(child, agent, author string) Entry {
	return NewEntry(child+".spawn", author, AgentSpawn{Type: TypeAgentSpawn, ChildThreadID: child, AgentID: agent})
}

// TaskWaits is the payload on the thread of a task, or of a run for a chat, that waits for its house.
type TaskWaits struct {
	Type   string `json:"type"`
	Chat   string `json:"chat,omitempty"` // for which the run is; "" for a task
	Reason string `json:"reason"`
}

// What returns what waits, in words.
func (w TaskWaits) What() string {
	if w.Chat != "" {
		return "run"
	}
	return "task"
}

// Waits returns the entry that a task waits for its house: one for each task.
func Waits(task, reason string) Entry {
	return NewEntry(task+".waits", "", TaskWaits{Type: TypeTaskWaits, Reason: reason})
}

// ParseWaits returns the payload that a task or a run waits for its house.
func ParseWaits(payload []byte) (w TaskWaits, is bool) {
	f, err := Scan(payload)
	is = err == nil && f.Type == TypeTaskWaits && json.Unmarshal(payload, &w) == nil
	return w, is
}

// RunWaits returns the entry that a run for a chat waits for its house: one for each run.
func RunWaits(run, chat, reason string) Entry {
	return NewEntry(run+".waits", "", TaskWaits{Type: TypeTaskWaits, Chat: chat, Reason: reason})
}

// ChildFinished is the payload that has the result of a delegated run, on the parent's thread.
type ChildFinished struct {
	Signal
	ChildThreadID string `json:"childThreadId"`
	Status        string `json:"status"`
	Text          string `json:"text"`
	Corrected     bool   `json:"corrected,omitempty"` // replaces what was posted when the verdict was provisional
}

// Started is the payload with which a runner takes the run, before it starts the agent.
type Started struct {
	Signal
	RunnerVersion string   `json:"runnerVersion"`
	AgentVersion  string   `json:"agentVersion,omitempty"` // "" where the agent's files have none
	AgentProven   bool     `json:"agentProven"`            // the runner is proven with this version
	Cwd           string   `json:"cwd"`
	PID           int      `json:"pid"`                  // of the runner's keeper
	StartTicks    uint64   `json:"startTicks,omitempty"` // of that process: ticks since boot, field 22 of proc_pid_stat(5)
	BootID        string   `json:"bootId,omitempty"`     // of pid and startTicks: /proc/sys/kernel/random/boot_id
	Instance      string   `json:"instance"`             // random: of two runners one gets the run
	SessionFile   string   `json:"sessionFile,omitempty"`
	Sandbox       *Sandbox `json:"sandbox,omitempty"`
	Resume        string   `json:"resume"`         // none, continue or hydrate
	Live          bool     `json:"live,omitempty"` // the run takes chats while it lasts
}

// Waiting is the payload of a live run whose agent has ended a turn and waits for a chat. It comes after the turn's
// lines. The run's status stays StatusRunning.
type Waiting struct {
	Signal
	Turn       int      `json:"turn"`       // number of the run's turns so far
	Outcome    string   `json:"outcome"`    // of the turn: completed, failed, cancelled or orphaned
	StopReason string   `json:"stopReason"` // of the turn, in pi's words for all harnesses
	Chats      []string `json:"chats"`      // ids of the chats that the turn took in
	Pending    int      `json:"pending"`    // chats that are not yet delivered
}

// ChatRefused is the payload that reports a chat which can never reach an agent.
type ChatRefused struct {
	Signal
	Chat   string `json:"chat"` // its id
	Reason string `json:"reason"`
}

// Asked is the payload that reports a question of a live run's agent to its user, and how the runner has answered it.
type Asked struct {
	Signal
	Kind    string `json:"kind"`           // the agent's own name of the question
	Text    string `json:"text,omitempty"` // for people
	Outcome string `json:"outcome"`        // allowed, cancelled or unsupported
}

// EndRequested is the payload that asks a live run to do what is queued and to end.
type EndRequested struct{ Signal }

// Cancel is the payload that requests a run's end. Without a run id it is for all runs that have started.
type Cancel struct {
	Signal
	Reason string `json:"reason,omitempty"`
}

// Heartbeat is the payload of a living runner, with its progress and the agent's.
type Heartbeat struct {
	Signal
	Beat     int64          `json:"beat"`
	Posted   int64          `json:"posted"`  // lines of this run that are on the thread
	Pending  int64          `json:"pending"` // lines of this run that were read and are not yet on the thread
	UptimeMs int64          `json:"uptimeMs"`
	NextMs   int64          `json:"nextMs"` // when the next is due, where no entry comes before
	Agent    *AgentProgress `json:"agent"`  // null before it starts and after it has ended
}

// AgentProgress is the state of the agent's process.
type AgentProgress struct {
	PID      int   `json:"pid"`
	RSSBytes int64 `json:"rssBytes"`
	CPUMs    int64 `json:"cpuMs"`
	QuietMs  int64 `json:"quietMs"` // since its last new line or output
}

// StatusChanged is a run's new status. Running carries nothing else, but the parent where the host posts it; at the end
// it has the totals.
type StatusChanged struct {
	Signal
	Status string  `json:"status"`
	Parent *Parent `json:"parent,omitempty"`
	*Totals
}

// Totals are the figures of a run, on its last entry.
type Totals struct {
	ExitCode   *int            `json:"exitCode"`
	ExitSignal *string         `json:"signal"`
	StopReason string          `json:"stopReason"`
	DurationMs int64           `json:"durationMs"`
	Lines      int64           `json:"lines"`
	Digest     string          `json:"digest"` // SHA-256 over the ids of this run's lines, a newline after each
	Usage      json.RawMessage `json:"usage,omitempty"`
	Leftovers  int             `json:"leftovers"`        // processes that the agent left running
	Reason     string          `json:"reason,omitempty"` // of a cancelled run: who and why
	Unread     string          `json:"unread,omitempty"` // why the session file could not be read to its end
}

// Failed is the payload with the cause of a run's failure.
type Failed struct {
	Signal
	ErrorClass string  `json:"errorClass"`
	Message    string  `json:"message"`
	ExitCode   *int    `json:"exitCode"`
	ExitSignal *string `json:"signal"`
	StopReason string  `json:"stopReason,omitempty"`
	StderrTail string  `json:"stderrTail,omitempty"`
	Provider   string  `json:"provider,omitempty"`
	Model      string  `json:"model,omitempty"`
}

// Orphaned is the payload of a run whose end is not known.
type Orphaned struct {
	Signal
	Reason      string `json:"reason"` // no_output, runner_lost, silent or box_gone
	LastEntryAt string `json:"lastEntryAt,omitempty"`
	SilentMs    int64  `json:"silentMs,omitempty"`
}
