package view_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"arbe.0sk.ar/runner/host/view"
	"arbe.0sk.ar/runner/thread"
)

// written returns a diff as text.
func written(d *view.Diff) string {
	if d == nil {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, "+%d -%d\n", d.Added, d.Removed)
	for _, f := range d.Files {
		fmt.Fprintf(&b, "%s %s%s\n", f.Op, f.From, f.Path)
		for _, h := range f.Hunks {
			fmt.Fprintf(&b, "@%d,%d\n", h.Old, h.New)
			for _, l := range h.Lines {
				fmt.Fprintf(&b, "%c%s\n", l.Op, l.Text)
			}
		}
	}
	return b.String()
}

// called returns the item of a call with its result. Both are JSON: the call's arguments, and members of the result.
func called(t *testing.T, prefix, tool, args, result string) view.Item {
	t.Helper()
	var b view.Builder
	var l view.List
	for _, payload := range []string{
		`{"type":"` + prefix + `.assistant","message":{"content":[{"type":"toolCall","id":"c","name":"` + tool +
			`","arguments":` + args + `}]}}`,
		`{"type":"` + prefix + `.tool_result","toolCallId":"c",` + result + `}`,
	} {
		e := thread.Entry{ID: fmt.Sprint("e", len(l.Items)), Payload: []byte(payload)}
		for _, c := range b.Add(e) {
			l.Change(c)
		}
	}
	if len(l.Items) != 1 || l.Items[0].Call == nil || l.Items[0].Call.Result == nil {
		t.Fatalf("got %+v", l.Items)
	}
	return l.Items[0]
}

func TestDiffs(t *testing.T) {
	const plain = `"message":{"content":[{"type":"text","text":"Success. Updated the following files:\nM a"}]}`
	for _, tt := range []struct {
		name, prefix, tool, args, result string
		want                             string
	}{
		{
			"pi: a patch in the details", "pi", "edit", `{"path":"a","edits":[{"oldText":"x","newText":"y"}]}`,
			`"message":{"content":[],"details":{"patch":"--- a/f\n+++ b/f\n@@ -3,2 +3,3 @@\n c\n--- x\n+++ y\n+z\n"}}`,
			"+2 -1\nedited f\n@3,3\n c\n--- x\n+++ y\n+z\n",
		},
		{
			"pi: its own form", "pi", "edit", `{"path":"a"}`,
			`"message":{"content":[],"details":{"diff":"    ...\n  8 c\n- 9 old\n+ 9 new\n 10 c\n    ...\n+20 more"}}`,
			"+2 -1\nedited \n@8,9\n c\n-old\n+new\n c\n@0,20\n+more\n",
		},
		{
			"pi: write", "pi", "write", `{"path":"a","content":"x\ny\n"}`, plain,
			"+2 -0\nwritten a\n@1,1\n+x\n+y\n",
		},
		{
			"pi: edits as a string", "pi", "edit", `{"path":"a","edits":"[{\"oldText\":\"x\",\"newText\":\"y\"}]"}`, plain,
			"+1 -1\nedited a\n@0,0\n-x\n+y\n",
		},
		{
			"claude: Edit", "claude", "Edit", `{"file_path":"/a","old_string":"x\ny\nz","new_string":"x\n1\nz"}`, plain,
			"+1 -1\nedited /a\n@0,0\n x\n-y\n+1\n z\n",
		},
		{
			"claude: MultiEdit", "claude", "MultiEdit",
			`{"file_path":"/a","edits":[{"old_string":"x","new_string":"y"},{"old_string":"1","new_string":""}]}`, plain,
			"+1 -2\nedited /a\n@0,0\n-x\n+y\n@0,0\n-1\n",
		},
		{
			"claude: its own patch", "claude", "Edit", `{"file_path":"/a","old_string":"x","new_string":"y"}`,
			plain + `,"line":{"toolUseResult":{"filePath":"/a","structuredPatch":[` +
				`{"oldStart":7,"newStart":8,"lines":[" c","-x","+y","\\ No newline at end of file"]}]}}`,
			"+1 -1\nedited /a\n@7,8\n c\n-x\n+y\n",
		},
		{
			"claude: Write", "claude", "Write", `{"file_path":"/a","content":""}`, plain, "+0 -0\nwritten /a\n",
		},
		{
			"claude: NotebookEdit", "claude", "NotebookEdit", `{"notebook_path":"/n","new_source":"x"}`, plain,
			"+1 -0\nedited /n\n@0,0\n+x\n",
		},
		{
			"claude: a notebook's cell", "claude", "NotebookEdit", `{"notebook_path":"/n","new_source":"y"}`,
			plain + `,"line":{"toolUseResult":{"notebook_path":"/n","old_source":"x\n","new_source":"y"}}`,
			"+1 -1\nedited /n\n@0,0\n-x\n+y\n",
		},
		{
			"an edit that failed", "claude", "Edit", `{"file_path":"/a","old_string":"x","new_string":"y"}`,
			`"isError":true,` + plain, "",
		},
		{
			"codex: apply_patch", "codex", "apply_patch",
			`{"input":"*** Begin Patch\n*** Add File: n\n+x\n*** Update File: a\n*** Move to: b\n@@ f\n c\n-o\n\n+n\n` +
				`*** Delete File: d\n*** End Patch"}`, plain,
			"+2 -1\nwritten n\n@0,0\n+x\nmoved ab\n@0,0\n c\n-o\n \n+n\ndeleted d\n",
		},
		{
			"codex: a patch by a command", "codex", "shell",
			`{"command":["bash","-lc","apply_patch <<E\n*** Begin Patch\n*** Update File: a\n@@\n-x\n+y\n*** End Patch\nE"]}`,
			plain, "+1 -1\nedited a\n@0,0\n-x\n+y\n",
		},
		{
			"codex: a patch that was not applied", "codex", "apply_patch",
			`{"input":"*** Begin Patch\n*** Update File: a\n@@\n-x\n+y\n*** End Patch"}`,
			`"message":{"content":"apply_patch verification failed"}`, "",
		},
		{"no edit", "pi", "bash", `{"command":"echo"}`, plain, ""},
		{"odd arguments", "pi", "edit", `{"path":1,"edits":7,"content":[]}`, plain, ""},
		{"no arguments", "pi", "write", `null`, plain, ""},
	} {
		if d := cmp.Diff(tt.want, written(called(t, tt.prefix, tt.tool, tt.args, tt.result).Diff())); d != "" {
			t.Errorf("%s: -want +got:\n%s", tt.name, d)
		}
	}
}

// Far changes are hunks of their own, with three lines of context.
func TestHunks(t *testing.T) {
	lines := make([]string, 30)
	for i := range lines {
		lines[i] = fmt.Sprint(i)
	}
	before := strings.Join(lines, `\n`)
	lines[5], lines[25] = "five", "twenty-five"
	args := fmt.Sprintf(`{"file_path":"a","old_string":"%s","new_string":"%s"}`, before, strings.Join(lines, `\n`))
	d := called(t, "claude", "Edit", args, `"message":{}`).Diff()
	const want = "+2 -2\nedited a\n@0,0\n 2\n 3\n 4\n-5\n+five\n 6\n 7\n 8\n" +
		"@0,0\n 22\n 23\n 24\n-25\n+twenty-five\n 26\n 27\n 28\n"
	if d := cmp.Diff(want, written(d)); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

// A comparison of large texts has bounded work: all lines are removed and added.
func TestLargeDiff(t *testing.T) {
	before, after := strings.Repeat(`a\nb\n`, 3000), strings.Repeat(`c\nb\n`, 3000)
	d := called(t, "claude", "Edit", `{"file_path":"a","old_string":"`+before+`","new_string":"`+after+`"}`,
		`"message":{}`).Diff()
	if d.Added != 5999 || d.Removed != 5999 { // the last b is in both
		t.Errorf("+%d -%d", d.Added, d.Removed)
	}
}

func TestCodexHeader(t *testing.T) {
	for _, tt := range []struct {
		text, want string
		exit       int
	}{
		{"Chunk ID: ad2b2f\nWall time: 1.5000 seconds\nProcess exited with code 3\nOriginal token count: 2\nOutput:\nhi\n", "hi\n", 3},
		{"Exit code: 0\nWall time: 0 seconds\nOutput:\nhi", "hi", 0},
		{"Wall time: 0.0 seconds\nOutput:\nExit code: 7\nWall time: 0 seconds\nOutput:\nhi", "hi", 7},
		{"Chunk ID: x\nOutput:", "", 0},
		{"Output:\nhi", "Output:\nhi", 0},
		{"hi\nOutput:\nhi", "hi\nOutput:\nhi", 0},
	} {
		args := fmt.Sprintf(`"message":{"content":[{"type":"text","text":%q}]}`, tt.text)
		r := called(t, "codex", "exec_command", `{"cmd":"x"}`, args).Call.Result
		exit := 0
		if r.ExitCode != nil {
			exit = *r.ExitCode
		}
		if r.Text != tt.want || exit != tt.exit {
			t.Errorf("%q: got %q, exit %d", tt.text, r.Text, exit)
		}
		if pi := called(t, "pi", "bash", `{}`, args).Call.Result.Text; pi != tt.text {
			t.Errorf("of pi: %q", pi)
		}
	}
}
