package page_test

import (
	"path/filepath"
	"testing"

	"arbe.0sk.ar/runner/internal/test/model"
)

// An edit of a real agent is a diff: codex's freeform patch, which it offers with some models alone, and claude's edit
// of a notebook, a tool that it has to look for. Claude 2.1.329 finds no MultiEdit.
func TestFullPageEdits(t *testing.T) {
	h := newHost(t)
	t.Run("codex", func(t *testing.T) {
		x := newBox(t, h, "codex", model.Reply{Text: "I patch.", Tools: []model.Tool{{
			Name: "apply_patch",
			Input: "*** Begin Patch\n*** Add File: new.txt\n+one\n+two\n*** Update File: old.txt\n@@\n a\n-b\n+B\n" +
				"*** End Patch\n",
		}}}, model.Reply{Text: "All is done."})
		x.args = []string{"--model", "gpt-5.5"}
		x.write("old.txt", "a\nb\nc\n")
		edited(t, h, x, "apply_patch", "3 added, 1 removed", "+one", "-b", "+B")
	})
	t.Run("claude-code", func(t *testing.T) {
		x := newBox(t, h, "claude-code")
		file := filepath.Join(x.work, "n.ipynb")
		x.write("n.ipynb", `{"cells":[{"cell_type":"code","id":"c1","execution_count":null,"metadata":{},"outputs":[],`+
			`"source":["print(1)\n"]}],"metadata":{"language_info":{"name":"python"}},"nbformat":4,"nbformat_minor":5}`)
		calls := func(name string, args map[string]any) model.Reply {
			return model.Reply{Text: "I edit.", Tools: []model.Tool{{Name: name, Arguments: args}}}
		}
		x.model.Script.Replies = []model.Reply{
			calls("ToolSearch", map[string]any{"query": "select:NotebookEdit,MultiEdit", "max_results": 5}),
			calls("Read", map[string]any{"file_path": file}),
			calls("NotebookEdit", map[string]any{
				"notebook_path": file, "cell_id": "c1", "cell_type": "code", "edit_mode": "replace",
				"new_source": "print(2)\nprint(3)",
			}),
			{Text: "All is done."},
		}
		edited(t, h, x, "NotebookEdit", "2 added, 1 removed", "-print(1)", "+print(2)", "+print(3)")
	})
}

// edited runs an agent and expects a call of a tool with a diff.
func edited(t *testing.T, h *host, x *box, tool, counts string, lines ...string) {
	t.Helper()
	id := h.run("", "thread", "new")
	b := h.login(t, id)
	x.start(id, "r1", "do the work")
	b.Wait(shows("#items .verdict", "completed"))
	b.Run("document.querySelectorAll('#items .tool').forEach(d => d.open = true)")
	b.Wait(shows("#items .tool.done > summary", tool))
	b.Wait(shows("#items .counts", counts))
	for _, line := range lines {
		b.Wait(shows("#items .diff ins, #items .diff del", line))
	}
}
