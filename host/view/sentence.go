package view

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"arbe.0sk.ar/runner/outcome"
	"arbe.0sk.ar/runner/thread"
)

// RuleKind is the event that a rule marks.
type RuleKind string

// The kinds of rules.
const (
	RuleStarted   RuleKind = "started"   // a run starts a new session
	RuleContinued RuleKind = "continued" // a run continues the session file that its box has
	RuleRebuilt   RuleKind = "rebuilt"   // a run continues a session that was rebuilt from the thread
	RuleSummary   RuleKind = "summary"   // the agent replaced the conversation so far by a summary
	RuleText      RuleKind = "text"      // the summary, of an agent that writes it into a line of its own
	RuleBox       RuleKind = "box"       // the thread has another box in place of a dead one
)

// Rule is a line across the page: what follows has another run, conversation or box.
type Rule struct {
	Kind RuleKind

	// Of a run's start.
	Version string // of the agent; "" where it is not known
	Cwd     string
	Sandbox string // the box, "local:abc"; "" where it is not known
	Was     string // harness of the run before, where that was another

	// Of a summary.
	Summary string  // its text, markdown; "" where it is in a RuleText
	Tokens  float64 // of the conversation before it; 0 where they are not known
}

// Sentence returns the text of a rule, a notice or a reply's stop as one line without a full stop, in the words that
// all painters share; "" for another item. Pass it through Visible.
func (i Item) Sentence() string {
	switch {
	case i.Rule != nil:
		return i.Rule.sentence(i.Harness, i.Run)
	case i.Notice != nil && i.Notice.Bot != "":
		return i.Notice.Bot + " " + i.Notice.Text
	case i.Notice != nil:
		return i.Notice.Text
	case i.Stop != nil:
		switch i.Stop.Reason {
		case "aborted":
			return "aborted"
		case "length":
			return "cut at the output limit"
		case "refusal":
			return "the provider's filter ended the reply"
		}
		return "error: " + i.Stop.Message
	}
	return ""
}

func (r Rule) sentence(harness, run string) string {
	switch r.Kind {
	case RuleSummary:
		if r.Tokens > 0 {
			return fmt.Sprintf("the conversation was summarised, at %.0f tokens", r.Tokens)
		}
		return "the conversation was summarised"
	case RuleText:
		return "the summary"
	case RuleBox:
		if r.Sandbox == "" {
			return "the thread continues in another box"
		}
		return "the thread continues in another box, " + r.Sandbox
	}
	agent := harness
	if r.Version != "" {
		agent += " " + r.Version
	}
	where := r.Cwd
	if r.Sandbox != "" {
		where += " on " + r.Sandbox
	}
	verb, how := "starts", ""
	switch r.Kind {
	case RuleContinued:
		verb, how = "continues", ", resumed in place"
	case RuleRebuilt:
		verb, how = "continues", ", resumed (rebuilt)"
	}
	if r.Was != "" {
		how += ", after " + r.Was
	}
	if run != "" {
		how = " (run " + run + ")" + how
	}
	return strings.TrimSpace(agent) + " " + verb + " in " + where + how
}

// NoticeKind is the event that a notice reports.
type NoticeKind string

// The kinds of notices.
const (
	NoticeCancel   NoticeKind = "cancel"   // a request that the run end
	NoticeEnd      NoticeKind = "end"      // a request that a live run end once it has done what is queued
	NoticeRefused  NoticeKind = "refused"  // a chat that can never reach the agent
	NoticeAsked    NoticeKind = "asked"    // a question of the agent to a person, and the runner's answer
	NoticeStub     NoticeKind = "stub"     // the server refused a line of the session
	NoticeSetup    NoticeKind = "setup"    // a step of making the box
	NoticePush     NoticeKind = "push"     // the run's work was pushed, or could not be
	NoticeSync     NoticeKind = "sync"     // the run's work was copied back, or could not be
	NoticeKept     NoticeKind = "kept"     // the box outlives its run
	NoticeReleased NoticeKind = "released" // the box is deleted next
	NoticeChild    NoticeKind = "child"    // a delegated run began or ended
	NoticeWaits    NoticeKind = "waits"    // the thread's task waits for its house
	NoticeReaction NoticeKind = "reaction" // a bot's reaction ended without a reply
	NoticeSkipped  NoticeKind = "skipped"  // a bot was not asked for a reply
)

// Notice is one sentence.
type Notice struct {
	Kind     NoticeKind
	Text     string        // the sentence, without a full stop; behind the name of the Bot
	Bot      string        // id of the bot that the sentence is about, which stands in front of it; "" else
	Bad      bool          // something went wrong
	Duration time.Duration // of a step; 0 else
	Thread   string        // id of a child's thread; "" else
	Ended    bool          // of a child: it has ended
	URL      string        // of a pull request; "" else. Not checked
	Chat     string        // id of the entry of a refused chat; "" else
	Reason   string        // why it was refused, or why the bot was not asked; "" else
}

// reasons are the reasons of orphaned runs, in words. The runner's own messages have the same ones.
var reasons = map[string]string{
	outcome.ReasonRunnerLost: "the runner stopped without a result",
	outcome.ReasonNoOutput:   "the agent ended without any output",
	"box_gone":               "its box is gone",
	"silent":                 "the runner has posted nothing for too long",
}

// failures are the classes of failed runs in words that follow "failed:".
var failures = map[string]string{
	outcome.ClassProvider:      "the provider's error",
	outcome.ClassUnreachable:   "no way to the provider",
	outcome.ClassExit:          "the agent exited",
	outcome.ClassKilled:        "the agent was killed",
	outcome.ClassOOM:           "out of memory",
	outcome.ClassTimeout:       "it took too long",
	outcome.ClassStalled:       "it did nothing for too long",
	outcome.ClassDiskFull:      "the disk is full",
	outcome.ClassSpawn:         "the agent did not start",
	outcome.ClassLaunch:        "the box did not start",
	outcome.ClassUnknownFormat: "unknown format of its session",
}

// Failure returns the state of a run that failed with a class, in few words: "failed: out of memory". An unknown class
// is left out.
func Failure(class string) string { return because(thread.StatusFailed, failures[class]) }

// Head returns the first line of a verdict: "failed: the agent could not be started". An orphaned run has failed.
func (v Verdict) Head() string {
	status, message := v.Status, v.Message
	if status == "orphaned" {
		status, message = thread.StatusFailed, reasons[v.Reason]
	}
	message = strings.TrimPrefix(message, "the run was ") // written by older runners
	return because(status, strings.TrimPrefix(message, status+": "))
}

// Next returns the next step after a failed run; "" if there is none that always helps.
func (v Verdict) Next() string { return outcome.Advice(v.Class, v.Message) }

// Figures returns what is behind a verdict: the class of a failure or the reason of an orphaned run, exit status or
// signal, duration, lines, tokens, cost. It returns nil where nothing is known.
func (v Verdict) Figures() []string {
	var figures []string
	for _, s := range []string{v.Reason, v.Class} {
		if s != "" {
			figures = append(figures, s)
		}
	}
	if !v.HasTotals {
		return figures
	}
	if v.Signal != "" {
		figures = append(figures, v.Signal)
	} else if v.ExitCode != nil {
		figures = append(figures, "exit "+strconv.Itoa(*v.ExitCode))
	}
	figures = append(figures, v.Duration.Round(100*time.Millisecond).String(), Count(v.Lines, "line"))
	if v.Tokens > 0 {
		figures = append(figures, fmt.Sprintf("%.0f tokens", v.Tokens))
	}
	if cost := Dollars(v.Cost); cost != "" {
		figures = append(figures, cost)
	}
	return figures
}

// Dollars returns an amount of money in US dollars; "" for 0, which a harness without prices reports, too.
func Dollars(cost float64) string {
	switch {
	case cost <= 0:
		return ""
	case cost < 0.0001:
		return "<$0.0001"
	case cost < 1:
		return fmt.Sprintf("$%.4f", cost)
	case cost < 1000:
		return fmt.Sprintf("$%.2f", cost)
	}
	return fmt.Sprintf("$%.0f", cost)
}

// Count returns "n things", or "1 thing".
func Count(n int64, thing string) string {
	if n != 1 {
		thing += "s"
	}
	return fmt.Sprintf("%d %s", n, thing)
}

// Size returns a number of bytes for people.
func Size(n int64) string {
	switch {
	case n >= 1<<30:
		return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
	case n >= 1<<20:
		return fmt.Sprintf("%.0f MiB", float64(n)/(1<<20))
	default:
		return fmt.Sprintf("%d KiB", (n+1023)/1024)
	}
}

// box returns the name of a sandbox, "local:abc"; "" for nil.
func box(s *thread.Sandbox) string {
	if s == nil {
		return ""
	}
	return s.Provider + ":" + s.Ref
}
