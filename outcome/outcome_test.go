package outcome_test

import (
	"encoding/json"
	"syscall"
	"testing"

	"arbe.0sk.ar/runner/outcome"
)

// turn is a last turn in state s, with the stop reason that goes with it.
func turn(s outcome.State, stop string) outcome.Turn {
	return outcome.Turn{Lines: 3, Understood: 3, State: s, StopReason: stop}
}

func died(sig syscall.Signal) outcome.Exit { return outcome.Signalled(int(sig)) }

func TestDecide(t *testing.T) {
	var (
		code    = outcome.ExitCode
		unknown = outcome.Exit{}
		none    = outcome.Turn{}
		silent  = turn(outcome.None, "")
		stop    = turn(outcome.Ended, "stop")
		length  = turn(outcome.Ended, "length")
		tool    = turn(outcome.Unfinished, "toolUse")
		errored = turn(outcome.Errored, "error")
		aborted = turn(outcome.Aborted, "aborted")
		alien   = outcome.Turn{Lines: 4}
	)
	tests := []struct {
		row   string // of the contract's table
		facts outcome.Facts
		want  outcome.Outcome
		class string
		stop  string
	}{
		{"0 nothing understood, exit 0", outcome.Facts{Turn: alien, Exit: code(0)}, "failed", "unknown_format", "none"},
		{"0 nothing understood, TERM", outcome.Facts{Turn: alien, Exit: died(syscall.SIGTERM)}, "failed", "unknown_format", "none"},
		{"0 nothing understood, unknown end", outcome.Facts{Turn: alien}, "failed", "unknown_format", "none"},
		{"1 failure on record, exit 1", outcome.Facts{Turn: errored, Exit: code(1)}, "failed", "provider_error", "error"},
		{"1 failure on record, exit 0", outcome.Facts{Turn: errored, Exit: code(0)}, "failed", "provider_error", "error"},
		{"1 failure on record, TERM", outcome.Facts{Turn: errored, Exit: died(syscall.SIGTERM)}, "failed", "provider_error", "error"},
		{"1 failure on record, unknown end", outcome.Facts{Turn: errored}, "failed", "provider_error", "error"},
		{"1 a finer class", outcome.Facts{Turn: outcome.Turn{Lines: 1, Understood: 1, State: outcome.Errored, StopReason: "length", Class: "provider_unreachable"}, Exit: code(1)}, "failed", "provider_unreachable", "length"},
		{"2 aborted on record, 143", outcome.Facts{Turn: aborted, Exit: code(143)}, "cancelled", "", "aborted"},
		{"2 aborted on record, exit 0", outcome.Facts{Turn: aborted, Exit: code(0)}, "cancelled", "", "aborted"},
		{"2 aborted on record, KILL", outcome.Facts{Turn: aborted, Exit: died(syscall.SIGKILL)}, "cancelled", "", "aborted"},
		{"3 ended well, exit 0", outcome.Facts{Turn: stop, Exit: code(0)}, "completed", "", "stop"},
		{"3 ended well, unknown end", outcome.Facts{Turn: stop}, "completed", "", "stop"},
		{"3 ended well, TERM", outcome.Facts{Turn: stop, Exit: died(syscall.SIGTERM)}, "completed", "", "stop"},
		{"3 ended well, INT", outcome.Facts{Turn: stop, Exit: died(syscall.SIGINT)}, "completed", "", "stop"},
		{"3 ended well, HUP", outcome.Facts{Turn: stop, Exit: died(syscall.SIGHUP)}, "completed", "", "stop"},
		{"3 ended well, 143", outcome.Facts{Turn: stop, Exit: code(143)}, "completed", "", "stop"},
		{"3 ended well, 130", outcome.Facts{Turn: stop, Exit: code(130)}, "completed", "", "stop"},
		{"3 ended well, 129", outcome.Facts{Turn: stop, Exit: code(129)}, "completed", "", "stop"},
		{"3 ended well, lingered, KILL", outcome.Facts{Turn: stop, Exit: died(syscall.SIGKILL), Action: outcome.ActionLinger}, "completed", "", "stop"},
		{"3 length, exit 0", outcome.Facts{Turn: length, Exit: code(0)}, "completed", "", "length"},
		{"3 length, exit 1", outcome.Facts{Turn: length, Exit: code(1)}, "completed", "", "length"},
		{"4 ended well, exit 1", outcome.Facts{Turn: stop, Exit: code(1)}, "failed", "pi_exit", "stop"},
		{"4 length, exit 2", outcome.Facts{Turn: length, Exit: code(2)}, "failed", "pi_exit", "length"},
		{"4 ended well, KILL", outcome.Facts{Turn: stop, Exit: died(syscall.SIGKILL)}, "failed", "killed", "stop"},
		{"4 ended well, 137", outcome.Facts{Turn: stop, Exit: code(137)}, "failed", "killed", "stop"},
		{"4 ended well, SEGV", outcome.Facts{Turn: stop, Exit: died(syscall.SIGSEGV)}, "failed", "pi_exit", "stop"},
		{"5 unfinished, TERM", outcome.Facts{Turn: tool, Exit: died(syscall.SIGTERM)}, "cancelled", "", "toolUse"},
		{"5 none, INT", outcome.Facts{Turn: silent, Exit: died(syscall.SIGINT)}, "cancelled", "", "none"},
		{"5 no file, 143", outcome.Facts{Turn: none, Exit: code(143)}, "cancelled", "", "none"},
		{"5 none, 129", outcome.Facts{Turn: silent, Exit: code(129)}, "cancelled", "", "none"},
		{"6 unfinished, exit 3", outcome.Facts{Turn: tool, Exit: code(3)}, "failed", "pi_exit", "toolUse"},
		{"6 unfinished, KILL", outcome.Facts{Turn: tool, Exit: died(syscall.SIGKILL)}, "failed", "killed", "toolUse"},
		{"6 none, exit 1", outcome.Facts{Turn: none, Exit: code(1)}, "failed", "pi_exit", "none"},
		{"6 none, ABRT", outcome.Facts{Turn: silent, Exit: died(syscall.SIGABRT)}, "failed", "pi_exit", "none"},
		{"7 unfinished, exit 0", outcome.Facts{Turn: tool, Exit: code(0)}, "failed", "pi_exit", "toolUse"},
		{"8 no output, exit 0", outcome.Facts{Turn: silent, Exit: code(0)}, "orphaned", "", "none"},
		{"8 no file, exit 0", outcome.Facts{Turn: none, Exit: code(0)}, "orphaned", "", "none"},
		{"9 unfinished, unknown end", outcome.Facts{Turn: tool}, "orphaned", "", "toolUse"},
		{"9 no file, unknown end", outcome.Facts{Turn: none, Exit: unknown}, "orphaned", "", "none"},

		{"guard outranks a failure on record", outcome.Facts{Turn: errored, Exit: code(143), Action: outcome.ActionTimeout}, "failed", "timeout", "error"},
		{"guard outranks an abort on record", outcome.Facts{Turn: aborted, Exit: code(143), Action: outcome.ActionTimeout}, "failed", "timeout", "aborted"},
		{"guard outranks unknown format", outcome.Facts{Turn: alien, Exit: code(143), Action: outcome.ActionTimeout}, "failed", "timeout", "none"},
		{"guard, but ended well", outcome.Facts{Turn: stop, Exit: code(143), Action: outcome.ActionTimeout}, "completed", "", "stop"},
		{"guard, ended well, KILL", outcome.Facts{Turn: stop, Exit: died(syscall.SIGKILL), Action: outcome.ActionTimeout}, "failed", "timeout", "stop"},
		{"stall", outcome.Facts{Turn: tool, Exit: code(143), Action: outcome.ActionStall}, "failed", "stalled", "toolUse"},
		{"provider out of reach", outcome.Facts{Turn: silent, Exit: died(syscall.SIGINT), Action: outcome.ActionUnreachable}, "failed", "provider_unreachable", "none"},
		{"cancel, KILL", outcome.Facts{Turn: tool, Exit: died(syscall.SIGKILL), Action: outcome.ActionCancel}, "cancelled", "", "toolUse"},
		{"cancel outranks a failure on record", outcome.Facts{Turn: errored, Exit: code(143), Action: outcome.ActionCancel}, "cancelled", "", "error"},
		{"cancel, but ended well", outcome.Facts{Turn: stop, Exit: code(143), Action: outcome.ActionCancel}, "completed", "", "stop"},
		{"killed for memory", outcome.Facts{Turn: tool, Exit: died(syscall.SIGKILL), OOM: true}, "failed", "oom", "toolUse"},
		{"killed for memory, 137", outcome.Facts{Turn: stop, Exit: code(137), OOM: true}, "failed", "oom", "stop"},
		{"somebody else was killed for memory", outcome.Facts{Turn: tool, Exit: code(1), OOM: true}, "failed", "pi_exit", "toolUse"},
		{"no room on the disk", outcome.Facts{Turn: tool, Exit: code(1), DiskFull: true}, "failed", "disk_full", "toolUse"},
		{"no room on the disk, and done", outcome.Facts{Turn: stop, Exit: code(0), DiskFull: true}, "completed", "", "stop"},
		{"no room to start on", outcome.Facts{Action: outcome.ActionNotStarted, DiskFull: true}, "failed", "disk_full", "none"},
		{"live: ended while it waited", outcome.Facts{Turn: stop, Exit: died(syscall.SIGKILL), Action: outcome.ActionEnd}, "completed", "", "stop"},
		{"live: ended after a failed turn", outcome.Facts{Turn: errored, Exit: code(0), Action: outcome.ActionEnd}, "failed", "provider_error", "error"},
		{"live: ended after an aborted turn", outcome.Facts{Turn: aborted, Exit: code(0), Action: outcome.ActionEnd}, "cancelled", "", "aborted"},
		{"live: ended without a reply", outcome.Facts{Turn: silent, Exit: code(0), Action: outcome.ActionEnd}, "orphaned", "", "none"},
		{"live: ended unasked", outcome.Facts{Turn: none, Exit: code(0), Action: outcome.ActionEnd, Unasked: true}, "completed", "", "none"},
		{"live: ended unasked, KILL", outcome.Facts{Turn: none, Exit: died(syscall.SIGKILL), Action: outcome.ActionEnd, Unasked: true}, "completed", "", "none"},
		{"live: gone unasked, exit 0", outcome.Facts{Turn: none, Exit: code(0), Unasked: true}, "completed", "", "none"},
		{"live: gone unasked, exit 1", outcome.Facts{Turn: none, Exit: code(1), Unasked: true}, "failed", "pi_exit", "none"},
		{"live: gone unasked, unknown end", outcome.Facts{Turn: none, Unasked: true}, "orphaned", "", "none"},
		{"live: cancelled unasked", outcome.Facts{Turn: none, Exit: code(0), Action: outcome.ActionCancel, Unasked: true}, "cancelled", "", "none"},
		{"live: all chats refused", outcome.Facts{Turn: none, Exit: code(0), Action: outcome.ActionEnd, Unasked: true, Refused: "no"}, "failed", "pi_exit", "none"},
		{"live: all chats refused, KILL", outcome.Facts{Turn: none, Exit: died(syscall.SIGKILL), Action: outcome.ActionEnd, Unasked: true, Refused: "no"}, "failed", "pi_exit", "none"},
		{"live: all chats refused, gone, exit 0", outcome.Facts{Turn: silent, Exit: code(0), Unasked: true, Refused: "no"}, "failed", "pi_exit", "none"},
		{"live: all chats refused, cancelled", outcome.Facts{Turn: none, Exit: code(0), Action: outcome.ActionCancel, Unasked: true, Refused: "no"}, "cancelled", "", "none"},
		{"live: all chats refused, unknown end", outcome.Facts{Turn: none, Unasked: true, Refused: "no"}, "orphaned", "", "none"},
		{"live: one chat refused, one done", outcome.Facts{Turn: stop, Exit: code(0), Action: outcome.ActionEnd, Refused: "no"}, "completed", "", "stop"},
		{"live: our interrupt, the agent records a failure", outcome.Facts{Turn: errored, Exit: code(0), Interrupted: true}, "cancelled", "", "aborted"},
		{"live: our interrupt, nothing on record", outcome.Facts{Turn: tool, Exit: code(0), Interrupted: true}, "cancelled", "", "aborted"},
		{"live: our interrupt came too late", outcome.Facts{Turn: stop, Exit: code(0), Interrupted: true}, "completed", "", "stop"},
		{"live: input that can't be continued", outcome.Facts{Turn: tool, Exit: code(143), Action: outcome.ActionInput}, "failed", "unknown", "toolUse"},
		{"not startable", outcome.Facts{Action: outcome.ActionNotStarted}, "failed", "spawn", "none"},
	}
	for _, tt := range tests {
		t.Run(tt.row, func(t *testing.T) {
			v := outcome.Decide(tt.facts)
			if v.Outcome != tt.want || v.ErrorClass != tt.class || v.StopReason != tt.stop {
				t.Errorf("got %s %q stop %q, want %s %q stop %q", v.Outcome, v.ErrorClass, v.StopReason, tt.want,
					tt.class, tt.stop)
			}
			if v.Outcome != outcome.Completed && v.Message == "" {
				t.Error("no message for a run that did not complete")
			}
			if v.Outcome == outcome.Orphaned && v.Reason != outcome.ReasonNoOutput &&
				v.Reason != outcome.ReasonRunnerLost {
				t.Errorf("orphaned for the reason %q", v.Reason)
			}
		})
	}
}

func TestExitStatus(t *testing.T) {
	for _, tt := range []struct {
		outcome outcome.Outcome
		exit    outcome.Exit
		want    int
	}{
		{outcome.Completed, outcome.ExitCode(0), 0},
		{outcome.Completed, outcome.ExitCode(143), 0},
		{outcome.Completed, died(syscall.SIGKILL), 0},
		{outcome.Failed, outcome.ExitCode(0), 1},
		{outcome.Failed, outcome.ExitCode(3), 3},
		{outcome.Failed, died(syscall.SIGKILL), 137},
		{outcome.Cancelled, outcome.ExitCode(143), 143},
		{outcome.Cancelled, died(syscall.SIGINT), 130},
		{outcome.Orphaned, outcome.ExitCode(0), 1},
		{outcome.Orphaned, outcome.Exit{}, 1},
	} {
		v := outcome.Verdict{Outcome: tt.outcome, Exit: tt.exit}
		if got := v.ExitStatus(); got != tt.want {
			t.Errorf("%s after %s: status %d, want %d", tt.outcome, tt.exit, got, tt.want)
		}
	}
}

func TestVerdictJSON(t *testing.T) {
	v := outcome.Decide(outcome.Facts{Turn: turn(outcome.Unfinished, "toolUse"), Exit: died(syscall.SIGKILL)})
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"outcome":"failed","stopReason":"toolUse","errorClass":"killed","reason":"bad_exit","message":"the agent ended with SIGKILL",` +
		`"exitCode":null,"signal":"SIGKILL","provider":null,"model":null}`
	if string(b) != want {
		t.Errorf("got  %s\nwant %s", b, want)
	}
	var back outcome.Verdict
	if err := json.Unmarshal(b, &back); err != nil || back != v {
		t.Errorf("read back as %+v, %v", back, err)
	}
}

func TestParseSignal(t *testing.T) {
	for name, want := range map[string]int{"SIGTERM": 15, "TERM": 15, "sigkill": 9, "9": 9, "HUP": 1, "SIGSYS": 31} {
		if got, err := outcome.ParseSignal(name); err != nil || got != want {
			t.Errorf("ParseSignal(%q) = %d, %v, want %d", name, got, err, want)
		}
	}
	for _, name := range []string{"", "SIG", "SIGNOPE", "0", "-1", "65"} {
		if got, err := outcome.ParseSignal(name); err == nil {
			t.Errorf("ParseSignal(%q) = %d, want an error", name, got)
		}
	}
}

// FuzzDecide: every combination of facts has a verdict, and none is completed without a success on record.
func FuzzDecide(f *testing.F) {
	actions := []outcome.Action{
		"", "cancelled", "timeout", "stalled", "provider_unreachable", "lingered", "spawn", "ended", "input",
	}
	for state := range 5 {
		for action := range actions {
			f.Add(state, action, 5, 5, true, 0, 15, "stop")
		}
	}
	f.Fuzz(func(t *testing.T, state, action, lines, understood int, known bool, code, sig int, stop string) {
		facts := outcome.Facts{
			Turn:   outcome.Turn{Lines: lines, Understood: understood, State: outcome.State(uint(state) % 5), StopReason: stop},
			Exit:   outcome.Exit{Known: known, Code: code & 255, Signal: sig & 63},
			Action: actions[uint(action)%uint(len(actions))],
		}
		v := outcome.Decide(facts)
		switch v.Outcome {
		case outcome.Completed:
			if facts.Turn.State != outcome.Ended {
				t.Errorf("completed without a success on record: %+v", facts)
			}
			if v.ExitStatus() != 0 {
				t.Errorf("completed with status %d", v.ExitStatus())
			}
		case outcome.Failed, outcome.Cancelled, outcome.Orphaned:
			if v.ExitStatus() == 0 {
				t.Errorf("%s with status 0: %+v", v.Outcome, facts)
			}
			if v.Outcome == outcome.Failed && v.ErrorClass == "" {
				t.Errorf("failed without a class: %+v", facts)
			}
		default:
			t.Errorf("outcome %q for %+v", v.Outcome, facts)
		}
		if v.StopReason == "" || v.Reason == "" {
			t.Errorf("no stop reason or no reason: %+v", v)
		}
	})
}
