package view

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"arbe.0sk.ar/runner/thread"
)

// signal makes the items of a signal.
func (m *maker) signal() {
	sig, err := thread.Scan(m.entry.Payload)
	if err != nil {
		return // thread.Fold leaves it out, too
	}
	from := len(m.items)
	switch sig.Type {
	case thread.TypeStarted:
		m.started()
	case thread.TypeStatus, thread.TypeFailed, thread.TypeOrphaned:
		m.verdict(sig)
	case thread.TypeExecStarted, thread.TypeExecOutput, thread.TypeExecFinished:
		m.exec(sig.Type)
	case thread.TypeSandboxResumed:
		p := read[struct{ Sandbox *thread.Sandbox }](m) // other software's; a host's own names a row
		if p.Sandbox != nil && p.Sandbox.Ref == "" {
			p.Sandbox = nil
		}
		m.add(Item{Kind: KindRule, Rule: &Rule{Kind: RuleBox, Sandbox: box(p.Sandbox)}})
	default:
		m.notices(sig.Type)
	}
	for i := from; i < len(m.items); i++ {
		m.items[i].Run = sig.RunID
		if m.items[i].Kind == KindRule {
			m.items[i].Harness = sig.Harness
		}
	}
}

// read returns the payload of the maker's entry as a T. Members of another type are left out.
func read[T any](m *maker) (p T) {
	_ = json.Unmarshal(m.entry.Payload, &p)
	return p
}

func (m *maker) started() {
	p := read[thread.Started](m)
	r := Rule{Kind: RuleStarted, Version: p.AgentVersion, Cwd: p.Cwd, Sandbox: box(p.Sandbox)}
	switch p.Resume {
	case "continue":
		r.Kind = RuleContinued
	case "hydrate":
		r.Kind = RuleRebuilt
	}
	m.add(Item{Kind: KindRule, Rule: &r})
}

// verdict makes the item of one of the two entries that end a run. Of a failed and of an orphaned run the first one
// has the cause, and the second one the figures; of any other run there is no first one.
func (m *maker) verdict(sig thread.Fields) {
	v := Verdict{Provisional: sig.RunID != "" && strings.HasPrefix(m.entry.ID, sig.RunID+".orphan.")}
	switch sig.Type {
	case thread.TypeFailed:
		p := read[thread.Failed](m)
		v.Status, v.Class, v.Message = thread.StatusFailed, p.ErrorClass, p.Message
		if tail := strings.TrimSpace(p.StderrTail); !strings.Contains(p.Message, tail) {
			v.Stderr = tail
		}
	case thread.TypeOrphaned:
		v.Status, v.Reason = "orphaned", read[thread.Orphaned](m).Reason
	default:
		switch sig.Status {
		case thread.StatusCompleted, thread.StatusFailed, thread.StatusCancelled:
		default:
			return // it runs
		}
		v.Status, v.second, v.half = sig.Status, true, sig.Status == thread.StatusFailed
		if t := read[thread.StatusChanged](m).Totals; t != nil {
			v.HasTotals = true
			v.total(*t)
		}
	}
	m.add(Item{Kind: KindVerdict, Verdict: &v})
}

// total sets the figures of a verdict.
func (v *Verdict) total(t thread.Totals) {
	v.Message, v.ExitCode, v.Lines = t.Reason, t.ExitCode, t.Lines
	v.Duration = milliseconds(float64(t.DurationMs))
	if t.ExitSignal != nil {
		v.Signal = *t.ExitSignal
	}
	var u struct {
		Total float64 `json:"totalTokens"`
		Cost  struct {
			Total float64 `json:"total"`
		} `json:"cost"`
	}
	_ = json.Unmarshal(t.Usage, &u) // not known
	v.Tokens, v.Cost = u.Total, u.Cost.Total
}

// exec makes the items of a command that a person runs in the box: a call, pieces of its output, and its result.
func (m *maker) exec(typ string) {
	p := read[struct {
		Command string `json:"command"`
		Text    string `json:"text"`
		thread.ExecFinished
	}](m)
	id, _, _ := strings.Cut(m.entry.ID, ".")
	if thread.IsCallKey(id) {
		return // the bot's call is shown, with the end of the output
	}
	if typ == thread.TypeExecStarted {
		m.add(Item{Kind: KindCall, Author: m.entry.AuthorID, Call: &Call{
			ID: id, Name: "exec", Main: p.Command, Arguments: thread.Marshal(map[string]string{"command": p.Command}),
			State: Running,
		}})
		return
	}
	m.add(Item{Kind: KindResult, Result: &Result{
		CallID: id, Name: "exec", Entry: m.entry.ID, Text: p.Text + execEnd(p.ExecFinished), Time: m.entry.Time(),
		ExitCode: p.ExitCode, Failed: p.ExitSignal != nil || p.Error != "" || p.ExitCode != nil && *p.ExitCode != 0,
		Duration: milliseconds(float64(p.DurationMs)), Partial: typ == thread.TypeExecOutput,
	}})
}

// execEnd returns what a reader has to know of a command's end beside its exit code; "" for nothing.
func execEnd(p thread.ExecFinished) string {
	var parts []string
	switch {
	case p.Error != "":
		parts = append(parts, p.Error)
	case p.TimedOut:
		parts = append(parts, "ended after its time")
	case p.Cancelled:
		parts = append(parts, "cancelled")
	}
	if p.ExitSignal != nil {
		parts = append(parts, *p.ExitSignal)
	}
	if p.Dropped > 0 {
		parts = append(parts, Size(p.Dropped)+" of the output are left out")
	}
	return strings.Join(parts, "; ")
}

// notices makes the item of a signal that is one sentence.
func (m *maker) notices(typ string) {
	switch typ {
	case thread.TypeCancel:
		m.notice(Notice{Kind: NoticeCancel, Text: because("cancel requested", read[thread.Cancel](m).Reason)})
	case thread.TypeExecCancel:
		text := because("cancel of a command requested", read[thread.ExecCancel](m).Reason)
		m.notice(Notice{Kind: NoticeCancel, Text: text})
	case thread.TypeReactionCancel:
		text := because("stop of a reply requested", read[thread.ReactionCancel](m).Reason)
		m.notice(Notice{Kind: NoticeCancel, Text: text})
	case thread.TypeDecided:
		m.decided()
	case thread.TypeReactionFinished:
		m.finished()
	case thread.TypeEnd:
		m.notice(Notice{Kind: NoticeEnd, Text: "end requested: the run ends once it has done what is queued"})
	case thread.TypeRefused:
		p := read[struct{ Chat, Reason string }](m)
		m.notice(Notice{
			Kind: NoticeRefused, Bad: true, Chat: p.Chat, Reason: p.Reason,
			Text: because("chat "+p.Chat+" was refused", p.Reason),
		})
	case thread.TypeAsked:
		p := read[thread.Asked](m)
		m.notice(Notice{Kind: NoticeAsked, Text: because("the agent asked ("+p.Kind+"), "+p.Outcome, p.Text)})
	case thread.TypePush:
		m.pushed()
	case thread.TypeSync:
		m.synced()
	case thread.TypeSandboxKept:
		p := read[thread.SandboxKept](m)
		until := p.Until
		if at, err := time.Parse(time.RFC3339, until); err == nil {
			until = at.UTC().Format("2006-01-02 15:04 MST")
		}
		m.notice(Notice{Kind: NoticeKept, Text: because("the box is kept until "+until, p.Reason)})
	case thread.TypeSandboxReleased:
		text := because("the box is released", read[thread.SandboxReleased](m).Reason)
		m.notice(Notice{Kind: NoticeReleased, Text: text})
	case thread.TypeAgentSpawn:
		id := read[thread.AgentSpawn](m).ChildThreadID
		m.notice(Notice{Kind: NoticeChild, Thread: id, Text: "delegated to thread " + id})
	case thread.TypeTaskWaits:
		p := read[thread.TaskWaits](m)
		m.notice(Notice{Kind: NoticeWaits, Text: because("the "+p.What()+" waits", p.Reason)})
	case thread.TypeChildFinished:
		p := read[thread.ChildFinished](m)
		n := Notice{
			Kind: NoticeChild, Thread: p.ChildThreadID, Text: "thread " + p.ChildThreadID + " ended: " + p.Status,
			Bad: p.Status != thread.StatusCompleted, Ended: true,
		}
		if p.Corrected {
			n.Text += ", in place of the result before"
		}
		m.notice(n)
	default:
		if !thread.IsSetup(typ) || typ == thread.SetupType(thread.StepWait) {
			return
		}
		p := read[thread.SetupStep](m)
		n := Notice{Kind: NoticeSetup, Text: p.Name, Duration: milliseconds(float64(p.DurationMs))}
		if p.Error != "" {
			n.Bad, n.Text = true, because(p.Name, p.Error)
		}
		m.notice(n)
	}
}

// because returns what happened and why, where that is known.
func because(what, why string) string {
	if why == "" {
		return what
	}
	return what + ": " + why
}

func (m *maker) pushed() {
	p := read[thread.Pushed](m)
	n := Notice{Kind: NoticePush, URL: p.PRURL}
	switch {
	case p.Error != "":
		n.Bad, n.Text = true, because("push "+p.Branch, p.Error)
	case p.Nothing:
		n.Text = "nothing to push: the run made no commit and no change"
	default:
		n.Text = "pushed " + p.Branch + " at " + p.Commit[:min(len(p.Commit), 12)]
		if p.PRURL != "" {
			n.Text += ", pull request " + p.PRURL
		}
	}
	m.notice(n)
}

func (m *maker) synced() {
	p := read[thread.Synced](m)
	n := Notice{Kind: NoticeSync, Bad: len(p.Conflicts)+len(p.Stored) > 0}
	n.Text = fmt.Sprintf("copied back: %s, %d deleted, %d changed on both sides", Count(int64(p.Copied), "file"),
		p.Deleted, len(p.Conflicts))
	for _, s := range p.Stored[:min(len(p.Stored), 3)] {
		n.Text += fmt.Sprintf("; %s of the box is %s: %s", s.Of, s.Ref, s.Reason)
	}
	if more := len(p.Stored) - 3; more > 0 {
		n.Text += fmt.Sprintf("; and %d more", more)
	}
	if p.Error != "" {
		n.Bad, n.Text = true, because("copy the folder back", p.Error)
	}
	m.notice(n)
}
