package thread

import (
	"encoding/json"
	"strconv"
)

// The types of payloads that are not a harness's own.
const (
	TypeChat          = "chat"
	TypeSandbox       = "signal.dispatch.sandbox"
	TypeStarted       = "signal.dispatch.session_started"
	TypeHeartbeat     = "signal.dispatch.heartbeat"
	TypeCancel        = "signal.dispatch.cancel_requested"
	TypeStatus        = "signal.thread.status_changed"
	TypeFailed        = "signal.thread.pi_failed"
	TypeOrphaned      = "signal.thread.pi_session_orphaned"
	TypeChildFinished = "signal.thread.child_finished"
)

// The kinds behind a harness's prefix: pi.assistant and so on.
const (
	KindAssistant  = "assistant"
	KindToolResult = "tool_result"
	KindSession    = "session"
)

// Statuses of a run and of its thread. Idle is a thread without runs.
const (
	StatusIdle      = "idle"
	StatusRunning   = "running"
	StatusCompleted = "completed"
	StatusFailed    = "failed"
	StatusCancelled = "cancelled"
)

// Signal is what every signal of a run carries.
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
	Truncated bool   `json:"truncated,omitempty"` // text is a beginning and a mark with the whole's length and SHA-256
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

// Box is the box of a run, as the host says it. Ephemeral says that it is for this work alone.
type Box struct {
	Sandbox
	Ephemeral bool `json:"ephemeral"`
}

// SandboxOf says which box a run has.
type SandboxOf struct {
	Signal
	Sandbox Box     `json:"sandbox"`
	Parent  *Parent `json:"parent,omitempty"`
	After   *After  `json:"after,omitempty"`
}

// ChildFinished tells a parent's thread what became of a delegated run.
type ChildFinished struct {
	Signal
	ChildThreadID string `json:"childThreadId"`
	Status        string `json:"status"`
	Text          string `json:"text"`
	Corrected     bool   `json:"corrected,omitempty"` // replaces what was posted when the verdict was provisional
}

// Started says that a runner has taken the run and is about to start the agent.
type Started struct {
	Signal
	RunnerVersion string   `json:"runnerVersion"`
	AgentVersion  string   `json:"agentVersion,omitempty"` // as far as the agent's files say
	AgentProven   bool     `json:"agentProven"`            // the runner is proven with this version
	Cwd           string   `json:"cwd"`
	PID           int      `json:"pid"`                  // of the runner's keeper
	StartTicks    uint64   `json:"startTicks,omitempty"` // when that process began: clock ticks since boot, field 22 of proc_pid_stat(5)
	BootID        string   `json:"bootId,omitempty"`     // the boot that pid and startTicks belong to: /proc/sys/kernel/random/boot_id
	Instance      string   `json:"instance"`             // random: no two runners' entries are equal, so only one of them gets the run
	SessionFile   string   `json:"sessionFile,omitempty"`
	Sandbox       *Sandbox `json:"sandbox,omitempty"`
	Resume        string   `json:"resume"` // none, continue or hydrate
}

// Cancel asks for a run to be ended. Without a run id it is meant for all runs that have started.
type Cancel struct {
	Signal
	Reason string `json:"reason,omitempty"`
}

// Heartbeat says that the runner lives, and what the agent does.
type Heartbeat struct {
	Signal
	Beat     int64          `json:"beat"`
	Posted   int64          `json:"posted"`  // lines of this run that are on the thread
	Pending  int64          `json:"pending"` // lines that are not yet
	UptimeMs int64          `json:"uptimeMs"`
	NextMs   int64          `json:"nextMs"`          // when the next is due, where no entry comes before
	Agent    *AgentProgress `json:"agent,omitempty"` // none before it starts and after it has ended
}

// AgentProgress is what the agent's process does.
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

// Totals are a run in figures, on its last entry.
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

// Failed says why a run failed.
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

// Orphaned says that nobody can tell what became of a run.
type Orphaned struct {
	Signal
	Reason      string `json:"reason"` // no_output, runner_lost, silent or box_gone
	LastEntryAt string `json:"lastEntryAt,omitempty"`
	SilentMs    int64  `json:"silentMs,omitempty"`
}

// SessionRef says where in its session a mirrored line stood.
type SessionRef struct {
	ID     string  `json:"id"`     // the session's
	Entry  *string `json:"entry"`  // the line's own id
	Parent *string `json:"parent"` // the id of the line before it in the tree
	Index  int     `json:"index"`  // lines before it in the file, the header included
}

// Line is the payload of a mirrored line. Which members there are depends on the type.
type Line struct {
	Type       string          `json:"type"`
	Kind       string          `json:"kind,omitempty"` // <prefix>.session: the line's own type, or prompt, text, long, stub
	Chat       string          `json:"chat,omitempty"` // kind prompt: the id of the chat that the line repeats
	Was        string          `json:"was,omitempty"`  // kind migrated: the id of the entry that has the line as it was before it got an id of its own
	Text       *string         `json:"text,omitempty"` // chat
	ToolCallID string          `json:"toolCallId,omitempty"`
	ToolName   string          `json:"toolName,omitempty"`
	IsError    *bool           `json:"isError,omitempty"`
	StopReason string          `json:"stopReason,omitempty"`
	Provider   string          `json:"provider,omitempty"`
	Model      string          `json:"model,omitempty"`
	Usage      json.RawMessage `json:"usage,omitempty"`
	Message    json.RawMessage `json:"message,omitempty"`
	Session    *SessionRef     `json:"session,omitempty"`    // none where another mirror wrote the entry
	SubagentOf string          `json:"subagentOf,omitempty"` // a subagent's line: the session that the subagent works for
	Encoding   string          `json:"encoding,omitempty"`   // base64 where line is bytes that are no text
	Line       json.RawMessage `json:"line,omitempty"`
	Truncated  bool            `json:"truncated,omitempty"`
	Bytes      int64           `json:"bytes,omitempty"`  // kinds long and stub: the line's length
	SHA256     string          `json:"sha256,omitempty"` // kinds long and stub: of the line
	Reason     string          `json:"reason,omitempty"` // kind stub: what the server said
}

// AppendJSON appends the payload as JSON. It says what json.Marshal says, but takes message, line and usage as they stand, without reading them
// once more: they are the bulk of a thread.
func (l Line) AppendJSON(b []byte) []byte {
	text := func(name, value string) {
		if value != "" {
			b = quote(append(b, name...), value)
		}
	}
	raw := func(name string, value json.RawMessage) {
		if len(value) > 0 {
			b = append(append(b, name...), value...)
		}
	}
	b = quote(append(b, `{"type":`...), l.Type)
	text(`,"kind":`, l.Kind)
	text(`,"chat":`, l.Chat)
	text(`,"was":`, l.Was)
	if l.Text != nil {
		b = quote(append(b, `,"text":`...), *l.Text)
	}
	text(`,"toolCallId":`, l.ToolCallID)
	text(`,"toolName":`, l.ToolName)
	if l.IsError != nil {
		b = strconv.AppendBool(append(b, `,"isError":`...), *l.IsError)
	}
	text(`,"stopReason":`, l.StopReason)
	text(`,"provider":`, l.Provider)
	text(`,"model":`, l.Model)
	raw(`,"usage":`, l.Usage)
	raw(`,"message":`, l.Message)
	if s := l.Session; s != nil {
		b = quote(append(b, `,"session":{"id":`...), s.ID)
		b = quoteOrNull(append(b, `,"entry":`...), s.Entry)
		b = quoteOrNull(append(b, `,"parent":`...), s.Parent)
		b = strconv.AppendInt(append(b, `,"index":`...), int64(s.Index), 10)
		b = append(b, '}')
	}
	text(`,"subagentOf":`, l.SubagentOf)
	text(`,"encoding":`, l.Encoding)
	raw(`,"line":`, l.Line)
	if l.Truncated {
		b = append(b, `,"truncated":true`...)
	}
	if l.Bytes != 0 {
		b = strconv.AppendInt(append(b, `,"bytes":`...), l.Bytes, 10)
	}
	text(`,"sha256":`, l.SHA256)
	text(`,"reason":`, l.Reason)
	return append(b, '}')
}

// quote appends s as a JSON string.
func quote(b []byte, s string) []byte {
	for i := 0; i < len(s); i++ {
		if c := s[i]; c < ' ' || c == '"' || c == '\\' || c >= 0x7f {
			return append(b, Marshal(s)...)
		}
	}
	return append(append(append(b, '"'), s...), '"')
}

func quoteOrNull(b []byte, s *string) []byte {
	if s == nil {
		return append(b, "null"...)
	}
	return quote(b, *s)
}
