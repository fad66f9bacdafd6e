package harness_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"arbe.0sk.ar/runner/harness"
	"arbe.0sk.ar/runner/session"
)

var update = flag.Bool("update", false, "rewrite the expected meanings in testdata/live")

// recording is a conversation with a real agent.
type recording struct {
	dir, harness string
	live         *harness.Live
	stdout       [][]byte
	session      [][]byte
	messages     []harness.Message
}

// recordings are those of testdata/live.
func recordings(t testing.TB) (all []recording) {
	t.Helper()
	dirs, err := filepath.Glob(filepath.Join("..", "testdata", "live", "*"))
	if err != nil || len(dirs) < 9 {
		t.Fatalf("%d recordings, %v", len(dirs), err)
	}
	read := func(dir, name string) []byte {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	for _, dir := range dirs {
		r := recording{dir: dir}
		_, r.harness, _ = strings.Cut(filepath.Base(dir), "-")
		s, err := harness.Lookup(r.harness)
		if err != nil {
			t.Fatal(err)
		}
		r.live = s.Live
		r.stdout = bytes.SplitAfter(read(dir, "stdout"), []byte("\n"))
		r.session = bytes.SplitAfter(read(dir, "session.jsonl"), []byte("\n"))
		if err := json.Unmarshal(read(dir, "messages.json"), &r.messages); err != nil {
			t.Fatal(err)
		}
		all = append(all, r)
	}
	return all
}

// meaning describes the event of a line; messages have their texts in place of their ids.
func (r recording) meaning(h harness.Event) string {
	text := func(id string) string {
		for _, m := range r.messages {
			if m.ID == id {
				return fmt.Sprintf("%q", m.Text)
			}
		}
		return id
	}
	var words []string
	add := func(word, id string) {
		if id != "" {
			words = append(words, word+" "+text(id))
		}
	}
	add("session", h.SessionID)
	switch h.Mark {
	case session.Begin:
		words = append(words, "turn began")
	case session.End, session.Failure, session.Abort:
		words = append(words, "turn ended: "+strings.TrimSpace(h.StopReason+" "+h.Message))
	}
	if h.Idle {
		words = append(words, "idle")
	}
	add("accepted", h.Accepted)
	add("refused", h.Refused)
	add("because", h.Reason)
	if h.Again {
		words = append(words, "for now")
	}
	if h.OpenError != "" {
		words = append(words, "no session: "+h.OpenError)
	}
	add("answered", h.Answered)
	for _, id := range h.Dropped {
		add("dropped", id)
	}
	if h.Request != nil {
		words = append(words, h.Request.Decision+" "+h.Request.Kind)
	}
	return strings.Join(words, ", ")
}

// Each line of recorded stdout has its meaning, and each message is taken in by one line of the session.
func TestLiveMeanings(t *testing.T) {
	for _, r := range recordings(t) {
		t.Run(filepath.Base(r.dir), func(t *testing.T) {
			var got strings.Builder
			var state harness.Talk
			was := ""
			for i, line := range r.stdout {
				h := r.live.Read(&state, line)
				now := fmt.Sprintf("opened %v, busy %v, ending %v, ready %v",
					state.Opened, state.Busy, state.Ending, r.live.Ready(state))
				if state.Wait != harness.NoWait {
					now += " " + string(state.Wait)
				}
				if m := r.meaning(h); m != "" || now != was {
					fmt.Fprintf(&got, "stdout %d: %s (%s)\n", i, m, now)
				}
				was = now
			}
			s, err := harness.Lookup(r.harness)
			if err != nil {
				t.Fatal(err)
			}
			sent := slices.Clone(r.messages)
			for i, line := range r.session {
				found := r.live.Taken(line, s.Dialect.Decode(line), sent)
				for _, j := range found {
					fmt.Fprintf(&got, "session %d: %q\n", i, sent[j].Text)
				}
				for _, j := range slices.Backward(found) {
					sent = slices.Delete(sent, j, j+1)
				}
			}
			for _, m := range sent {
				fmt.Fprintf(&got, "not taken in: %q\n", m.Text)
			}
			golden := filepath.Join(r.dir, "meanings")
			if *update {
				if err := os.WriteFile(golden, []byte(got.String()), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got.String()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// A process that takes over at any line reads the same state from the start, and a copy of the state is independent.
func TestLiveFromAnyCut(t *testing.T) {
	for _, r := range recordings(t) {
		read := func(from harness.Talk, lines [][]byte) harness.Talk {
			for _, line := range lines {
				r.live.Read(&from, line)
			}
			return from
		}
		show := func(s harness.Talk) string { return fmt.Sprintf("%+v", s) }
		whole := show(read(harness.Talk{}, r.stdout))
		var grown harness.Talk
		for i := range r.stdout {
			cut := read(harness.Talk{}, r.stdout[:i])
			if show(cut) != show(grown) {
				t.Fatalf("%s: at line %d: %+v, want %+v", r.dir, i, cut, grown)
			}
			if got := show(read(cut, r.stdout[i:])); got != whole {
				t.Fatalf("%s: from line %d: %s, want %s", r.dir, i, got, whole)
			}
			if show(cut) != show(grown) {
				t.Fatalf("%s: line %d: a copy changed the state", r.dir, i)
			}
			r.live.Read(&grown, r.stdout[i])
		}
	}
}

// Read takes any bytes; a reply to a request is one line of JSON.
func FuzzRead(f *testing.F) {
	for _, r := range recordings(f) {
		for _, line := range r.stdout {
			f.Add(r.harness, line)
		}
	}
	for _, tt := range requests {
		f.Add(tt.harness, []byte(tt.line))
	}
	f.Fuzz(func(t *testing.T, name string, line []byte) {
		s, err := harness.Lookup(name)
		if err != nil {
			return
		}
		var state, again harness.Talk
		h := s.Live.Read(&state, line)
		if h.Request != nil && (!json.Valid(h.Request.Reply) || bytes.ContainsAny(h.Request.Reply, "\n\r")) {
			t.Errorf("reply %q", h.Request.Reply)
		}
		if s.Live.Read(&again, line); fmt.Sprint(state) != fmt.Sprint(again) {
			t.Errorf("%+v and %+v", state, again)
		}
		for _, line := range s.Live.Interrupt(state, "i") {
			if !json.Valid(line) {
				t.Errorf("interrupt %q", line)
			}
		}
	})
}

// requests are questions of the agents, and the answers.
var requests = []struct{ name, harness, line, decision, reply string }{
	{
		"dialog", "pi", `{"type":"extension_ui_request","id":"d1","method":"confirm","title":"Go on?","message":"m"}`,
		"cancelled", `{"cancelled":true,"id":"d1","type":"extension_ui_response"}`,
	},
	{"a notice, no question", "pi", `{"type":"extension_ui_request","id":"d2","method":"notify","message":"m"}`, "", ""},
	{
		"tool", "claude-code", `{"type":"control_request","request_id":"r1","request":{"subtype":"can_use_tool",` +
			`"tool_name":"Bash","input":{"command":"ls"}}}`,
		"allowed", `{"response":{"request_id":"r1","response":{"behavior":"allow","updatedInput":{"command":"ls"}},` +
			`"subtype":"success"},"type":"control_response"}`,
	},
	{
		"question", "claude-code", `{"type":"control_request","request_id":"r2","request":{"subtype":"can_use_tool",` +
			`"tool_name":"AskUserQuestion","input":{}}}`,
		"cancelled", `{"response":{"request_id":"r2","response":{"behavior":"deny",` +
			`"message":"Nobody is here to answer."},"subtype":"success"},"type":"control_response"}`,
	},
	{
		"a hook", "claude-code", `{"type":"control_request","request_id":"r3","request":{"subtype":"hook_callback"}}`,
		"unsupported", `{"response":{"error":"not supported: hook_callback","request_id":"r3","subtype":"error"},` +
			`"type":"control_response"}`,
	},
	{
		"command", "codex", `{"id":7,"method":"item/commandExecution/requestApproval","params":{"reason":"why"}}`,
		"allowed", `{"id":7,"result":{"decision":"accept"}}`,
	},
	{
		"elicitation", "codex", `{"id":"x","method":"mcpServer/elicitation/request","params":{"message":"Name?"}}`,
		"cancelled", `{"id":"x","result":{"action":"cancel"}}`,
	},
	{
		"unknown", "codex", `{"id":8,"method":"item/tool/call","params":{}}`,
		"unsupported", `{"error":{"code":-32601,"message":"not supported: item/tool/call"},"id":8}`,
	},
}

// Questions that would block the agent are answered by policy.
func TestLiveRequests(t *testing.T) {
	for _, tt := range requests {
		t.Run(tt.harness+" "+tt.name, func(t *testing.T) {
			var state harness.Talk
			r := spec(t, tt.harness).Live.Read(&state, []byte(tt.line)).Request
			if r == nil {
				r = &harness.Request{}
			}
			if r.Decision != tt.decision || string(r.Reply) != tt.reply {
				t.Errorf("%s: %s", r.Decision, r.Reply)
			}
		})
	}
}

// Lines that no recording has.
func TestLiveRead(t *testing.T) {
	for _, tt := range []struct {
		name, harness string
		lines         []string
		want          string // of the last line
		ready         bool   // after it
	}{
		{
			"pi's parts of a reply are not parsed", "pi",
			[]string{`{"type":"message_update"`},
			"", true,
		},
		{"pi's compaction holds messages", "pi", []string{`{"type":"compaction_start"}`}, "", false},
		{"and ends", "pi", []string{`{"type":"compaction_start"}`, `{"type":"compaction_end"}`}, "", true},
		{
			"pi's retry does not", "pi",
			[]string{`{"type":"agent_start"}`, `{"type":"agent_end","willRetry":true}`},
			"", true,
		},
		{
			"pi refuses", "pi",
			[]string{`{"id":"m","type":"response","command":"prompt","success":false,"error":"No key"}`},
			"refused m, because No key", true,
		},
		{"codex before its thread", "codex", []string{`{"id":"open.initialize","result":{}}`}, "", false},
		{
			"a late interrupt", "codex",
			[]string{`{"error":{"code":-32600,"message":"no active turn"},"id":"i"}`},
			"refused i, because no active turn, answered i", false,
		},
		{
			"codex's turn has ended", "codex",
			[]string{`{"error":{"code":-32600,"message":"no active turn to steer"},"id":"m"}`},
			"refused m, because no active turn to steer, for now, answered m", false,
		},
		{
			"a message joins codex's turn", "codex",
			[]string{`{"id":"m","result":{"turnId":"t"}}`},
			"accepted m", false,
		},
		{
			"codex has no such thread", "codex",
			[]string{`{"error":{"code":-32600,"message":"no rollout"},"id":"open.thread"}`},
			"no session: no rollout", false,
		},
		{
			"pi refuses in a compaction", "pi",
			[]string{`{"id":"m","type":"response","command":"prompt","success":false,` +
				`"error":"Cannot submit a prompt while compaction is in progress. Wait"}`},
			"refused m, because Cannot submit a prompt while compaction is in progress. Wait, for now", true,
		},
		{
			"codex in a turn that takes nothing", "codex",
			[]string{
				`{"id":"open.thread","result":{"thread":{"id":"th"}}}`,
				`{"method":"turn/started","params":{"threadId":"th","turn":{"id":"t"}}}`,
				`{"error":{"message":"cannot steer a review turn"},"id":"m"}`,
			},
			"refused m, because cannot steer a review turn, for now, answered m", true,
		},
		{
			"a subagent's turn", "codex",
			[]string{`{"method":"turn/started","params":{"threadId":"other","turn":{"id":"t"}}}`},
			"", false,
		},
		{
			"claude has had the id", "claude-code",
			[]string{`{"type":"command_lifecycle","command_uuid":"m","state":"completed"}`},
			"accepted m", true,
		},
		{"no JSON", "claude-code", []string{`Warning: {`}, "", true},
		{"a JSON that is no object", "pi", []string{`null`}, "", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			live := spec(t, tt.harness).Live
			var state harness.Talk
			var h harness.Event
			for _, line := range tt.lines {
				h = live.Read(&state, []byte(line))
			}
			if got := (recording{}).meaning(h); got != tt.want || live.Ready(state) != tt.ready {
				t.Errorf("%q, ready %v", got, live.Ready(state))
			}
		})
	}
}

// A version that was not tried, and is older than those that were, is refused with the next step.
func TestLiveRefuses(t *testing.T) {
	for _, tt := range []struct {
		harness, version string
		want             bool
	}{
		{"pi", "0.78.0", true},
		{"pi", "0.87.0", true},
		{"pi", "0.87.1", false},
		{"pi", "0.100.0", false},
		{"pi", "1.5.2", false},
		{"pi", "", false},
		{"pi", "next", false},
		{"pi", "workspace:*", false},
		{"pi", "0.0.0-dev", false},
		{"codex", "0.99.0", true},
		{"claude-code", "2.1.329", false},
	} {
		s := spec(t, tt.harness)
		err := s.Live.Refuses(s, tt.version)
		if (err != nil) != tt.want || err != nil && !strings.HasSuffix(err.Error(), "@"+s.Live.Least) {
			t.Errorf("%s %s: %v", tt.harness, tt.version, err)
		}
	}
	if got := spec(t, "codex").Live.Unfit(harness.Message{Text: strings.Repeat("é", 1<<20+1)}); got == "" {
		t.Error("codex takes a text over its limit")
	}
	if got := spec(t, "codex").Live.Unfit(harness.Message{Text: strings.Repeat("é", 1<<20)}); got != "" {
		t.Error(got)
	}
}

// The command lines of live agents, and what opens their sessions.
func TestLiveCommand(t *testing.T) {
	b := boxWith(map[string]string{"HOME": t.TempDir()})
	task := harness.Task{Session: harness.Session{Path: "p", ID: "id-1"}, Model: "m", Args: []string{"-x"}, Prompt: "no"}
	resume := task
	resume.Resume = true
	quiet := "-c check_for_update_on_startup=false -c analytics.enabled=false -c features.plugins=false " +
		"-c features.remote_plugin=false -c features.apps=false"
	claude := "-p --input-format stream-json --replay-user-messages --output-format stream-json --verbose " +
		"--dangerously-skip-permissions "
	for _, tt := range []struct {
		harness   string
		task      harness.Task
		args, env string
	}{
		{"pi", task, "--mode rpc --session p --model m -x", "PI_TELEMETRY=0"},
		{"pi", resume, "--mode rpc --session p --model m -x", "PI_TELEMETRY=0"},
		{"claude-code", task, claude + "--session-id id-1 --model m -x", "CLAUDE_CODE_EMIT_SESSION_STATE_EVENTS=1"},
		{"claude-code", resume, claude + "--resume id-1 --model m -x", "IS_SANDBOX=1"},
		{"codex", task, "app-server " + quiet + " -x", ""},
		{"codex", resume, "app-server " + quiet + " -x", ""},
	} {
		do := spec(t, tt.harness).Live.Command(b, tt.task)
		if got := strings.Join(do.Args, " "); got != tt.args || do.Stdin != "" ||
			tt.env != "" && !slices.Contains(do.Env, tt.env) {
			t.Errorf("%s: %s %q", tt.harness, got, do.Env)
		}
	}
	live := spec(t, "codex").Live
	var state harness.Talk
	open := func(task harness.Task) string { return string(bytes.Join(live.Open(state, task, "/w"), []byte("\n"))) }
	if got := open(task); strings.Count(got, "\n") != 2 || !strings.Contains(got, `"thread/start"`) ||
		!strings.Contains(got, `"model":"m"`) || !strings.Contains(got, `"cwd":"/w"`) {
		t.Error(got)
	}
	live.Read(&state, []byte(`{"id":"open.initialize","result":{}}`))
	if got := open(resume); strings.Contains(got, "initialize") || !strings.Contains(got, `"threadId":"id-1"`) {
		t.Error(got)
	}
	live.Read(&state, []byte(`{"id":"open.thread","result":{"thread":{"id":"t-1","path":"/p"}}}`))
	if got := open(task); got != "" || !live.Ready(state) || state.Session != (harness.Session{Path: "/p", ID: "t-1"}) {
		t.Errorf("%q %+v", got, state)
	}
}

// A message is one line of JSON, whatever its text and images.
func TestLivePut(t *testing.T) {
	m := harness.Message{
		ID: harness.MessageID("chat", 0), Text: "a\nb\u2028c\r </x> \"",
		Images: []harness.Image{{MimeType: "image/png", Data: "AAAA"}},
	}
	for _, name := range harness.Names() {
		line := spec(t, name).Live.Put(harness.Talk{}, m)
		if !json.Valid(line) || bytes.ContainsAny(line, "\n\r\u2028") || !bytes.Contains(line, []byte("image/png")) ||
			!bytes.Contains(line, []byte(m.ID)) {
			t.Errorf("%s: %s", name, line)
		}
	}
	if a, b := harness.MessageID("chat", 0), harness.MessageID("chat", 1); a == b || a != m.ID {
		t.Error(a, b)
	}
}
