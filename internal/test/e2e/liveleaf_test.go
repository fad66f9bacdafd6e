package e2e_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"arbe.0sk.ar/runner/harness"
	"arbe.0sk.ar/runner/internal/test/model"
	"arbe.0sk.ar/runner/thread"
)

// A claude-code that notes a leaf of its session, and is killed when later turns stand beside it, continues from the
// last turn, in the box, rebuilt, and rebuilt by hand without a runner.
func TestFullClaudeLeaf(t *testing.T) {
	for _, how := range []string{"continue", "hydrate"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			l := newLive(t, "claude-code", say("Hello."))
			l.begin()
			l.waits(1)
			l.model.More(model.Reply{Status: 500, Message: "not now"}, slowly(10000))
			l.say("chat-before-the-error")
			l.until("the error", func() bool { return strings.Contains(textOf(l.entries()), `"subtype":"api_error"`) })
			l.killAgent("r1")
			l.note(l.lastError())

			l.model.Drop()
			l.model.More(fine)
			l.without("ARBE_RUN_ID")
			l.env = append(l.env, "ARBE_RUN_ID=r2")
			l.prompt = "the task of r2"
			l.args = append(l.args, "--resume")
			l.begin()
			l.waitsIn("r2", "r2.prompt")
			l.waitsIn("r2", l.say("chat-beside-the-error"))
			l.killAgent("r2")

			told := []string{
				"the task that stands first", "chat-before-the-error", "the task of r2", "chat-beside-the-error",
			}
			l.model.Drop()
			l.args = append(slices.DeleteFunc(slices.Clone(l.args), func(a string) bool { return a == "--resume" }),
				"--idle", "1s", "--resume")
			s := l.scene
			if how == "hydrate" {
				l.continueByHand(told...)
				args := l.args
				s = l.nextOf("claude-code", l.agent.Version, "r3")
				s.args = args
			}
			s.onFrom("r3", how, told...)
			s.model.More(say("This is said in r4."))
			s.onFrom("r4", "continue", append(told, "go on with r3", "This is said in r3.")...)
		})
	}
}

// continueByHand rebuilds the session in another box, as a person does, and continues it there. The model must get each
// of these texts once.
func (l *live) continueByHand(told ...string) {
	l.t.Helper()
	s := l.nextOf("claude-code", l.agent.Version, "by-hand", say("This is said by hand."))
	id := l.known("r1").SessionID
	file := filepath.Join(s.dir, ".claude", "projects", "here", id+".jsonl")
	if out := s.hydrate("--harness", "claude-code", "--out", file); !strings.Contains(out, "1 line added") {
		l.t.Errorf("the report lacks the added line:\n%s", out)
	}
	spec, err := harness.Lookup("claude-code")
	if err != nil {
		l.t.Fatal(err)
	}
	program, err := harness.Find(spec, filepath.Join(s.agent.Bin(), "claude"), os.Getenv)
	if err != nil {
		l.t.Fatal(err)
	}
	cmd := exec.Command(program, "-p", "--resume", id, "go on by hand")
	cmd.Env, cmd.Dir = s.agent.Env(s.dir), filepath.Join(s.dir, "work")
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "This is said by hand.") {
		l.t.Errorf("%v: %s", err, out)
	}
	asked := s.asked()
	for _, want := range append(told, "go on by hand") {
		if strings.Count(asked, want) != 1 {
			l.t.Errorf("by hand the model was told %q %d times", want, strings.Count(asked, want))
		}
	}
}

// killAgent kills the agent of a run, and waits for the run's end.
func (l *live) killAgent(run string) {
	l.t.Helper()
	if err := syscall.Kill(l.known(run).AgentPID, syscall.SIGKILL); err != nil {
		l.t.Fatal(err)
	}
	if got := l.status(l.r); got == 0 {
		l.t.Error("the run of a killed agent exits with 0")
	}
}

// waitsIn waits for the end of a run's turn that has the chat.
func (l *live) waitsIn(run, chat string) {
	l.t.Helper()
	l.until("the end of the turn with "+l.texts[chat], func() bool {
		return slices.ContainsFunc(l.entries(), func(e thread.Entry) bool {
			w := payload[thread.Waiting](l.t, e)
			return w.Type == thread.TypeWaiting && w.RunID == run && slices.Contains(w.Chats, chat)
		})
	})
}

// lastError returns the id of the session's last line about an error of the API.
func (l *live) lastError() (id string) {
	l.t.Helper()
	file, err := os.ReadFile(l.known("r1").Session)
	if err != nil {
		l.t.Fatal(err)
	}
	for line := range bytes.Lines(file) {
		var row struct{ UUID, Subtype string }
		if json.Unmarshal(line, &row) == nil && row.Subtype == "api_error" {
			id = row.UUID
		}
	}
	return id
}

// note adds a line to the session that notes a leaf. claude itself writes it at times.
func (l *live) note(leaf string) {
	l.t.Helper()
	k := l.known("r1")
	line := fmt.Sprintf(`{"type":"last-prompt","lastPrompt":"go","leafUuid":"%s","sessionId":"%s"}`, leaf, k.SessionID)
	f, err := os.OpenFile(k.Session, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		l.t.Fatal(err)
	}
	_, err = f.WriteString(line + "\n")
	if err = errors.Join(err, f.Close()); err != nil {
		l.t.Fatal(err)
	}
}
