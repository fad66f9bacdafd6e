package view

import (
	"encoding/json"
	"strconv"
	"strings"
)

// patchBegin begins a patch in codex's own form.
const patchBegin = "*** Begin Patch"

// replacement is one replacement of text in a file. All names of the three agents' tools are here; a call has those
// of one.
type replacement struct {
	Old   *string `json:"old_string"` // claude
	New   *string `json:"new_string"`
	PiOld *string `json:"oldText"` // pi
	PiNew *string `json:"newText"`
}

// askedDiff returns what a call asks to be changed; nil where it is no edit.
func askedDiff(tool string, raw json.RawMessage) *Diff {
	switch strings.ToLower(tool) {
	case "edit", "multiedit", "write", "notebookedit", "apply_patch", "exec_command", "shell", "local_shell":
	default:
		return nil
	}
	var args struct {
		replacement
		Path     string          `json:"path"`
		FilePath string          `json:"file_path"`
		Notebook string          `json:"notebook_path"`
		Content  *string         `json:"content"`    // write
		Source   *string         `json:"new_source"` // of a notebook's cell
		Edits    json.RawMessage `json:"edits"`
		Input    string          `json:"input"` // apply_patch
		Patch    string          `json:"patch"`
		Cmd      string          `json:"cmd"`
		Command  json.RawMessage `json:"command"`
	}
	_ = json.Unmarshal(raw, &args) // what is missing is no edit
	path := args.Path + args.FilePath + args.Notebook
	switch strings.ToLower(tool) {
	case "apply_patch":
		return patchDiff(args.Input + args.Patch)
	case "exec_command", "shell", "local_shell":
		command := args.Cmd
		var argv []string
		if json.Unmarshal(args.Command, &argv) == nil && len(argv) > 1 {
			command = commandLine(argv)
			if argv[0] == "apply_patch" {
				return patchDiff(argv[1])
			}
		}
		if strings.HasPrefix(strings.TrimSpace(command), "apply_patch") {
			return patchDiff(command)
		}
		return nil
	case "write":
		if args.Content == nil {
			return nil
		}
		return (&Diff{Files: []FileDiff{{Path: path, Op: Written, Hunks: compare("", *args.Content, true)}}}).counted()
	case "notebookedit":
		if args.Source == nil {
			return nil
		}
		return (&Diff{Files: []FileDiff{{Path: path, Op: Edited, Hunks: compare("", *args.Source, false)}}}).counted()
	}
	return editDiff(path, args.replacement, args.Edits)
}

// editDiff returns the diff of replacements in one file: one, and those in a list, which some models give as a
// string.
func editDiff(path string, one replacement, list json.RawMessage) *Diff {
	var more []replacement
	var text string
	if json.Unmarshal(list, &text) == nil {
		list = json.RawMessage(text)
	}
	_ = json.Unmarshal(list, &more) // none
	f := FileDiff{Path: path, Op: Edited}
	for _, r := range append([]replacement{one}, more...) {
		if r.PiOld != nil && r.PiNew != nil {
			r.Old, r.New = r.PiOld, r.PiNew
		}
		if r.Old != nil && r.New != nil {
			f.Hunks = append(f.Hunks, compare(*r.Old, *r.New, false)...)
		}
	}
	if len(f.Hunks) == 0 {
		return nil
	}
	return (&Diff{Files: []FileDiff{f}}).counted()
}

// patchDiff returns the diff of a patch in codex's own form; nil where there is none.
func patchDiff(text string) *Diff {
	_, text, ok := strings.Cut(text, patchBegin)
	if !ok {
		return nil
	}
	d := &Diff{}
	var f *FileDiff
	file := func(path string, op FileOp) {
		d.Files = append(d.Files, FileDiff{Path: path, Op: op})
		f = &d.Files[len(d.Files)-1]
	}
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		name, path, _ := strings.Cut(line, ": ")
		switch {
		case name == "*** Add File":
			file(path, Written)
		case name == "*** Update File":
			file(path, Edited)
		case name == "*** Delete File":
			file(path, Deleted)
		case f == nil:
		case name == "*** Move to":
			f.From, f.Path, f.Op = f.Path, path, Moved
		case line == "*** End Patch":
			return d.counted()
		case line == "*** End of File":
		case strings.HasPrefix(line, "@@"):
			f.Hunks = append(f.Hunks, Hunk{})
		default:
			f.line(line)
		}
	}
	return d.counted()
}

// line appends a line of a patch to the file's last hunk. An empty one is an empty line of context.
func (f *FileDiff) line(line string) {
	if len(f.Hunks) == 0 {
		f.Hunks = append(f.Hunks, Hunk{})
	}
	if line == "" {
		line = " "
	}
	if op := line[0]; op == '+' || op == '-' || op == ' ' {
		h := &f.Hunks[len(f.Hunks)-1]
		h.Lines = append(h.Lines, DiffLine{op, line[1:]})
	}
}

// piDiff returns the diff in the details of a result of pi's edit; nil where there is none.
func piDiff(details json.RawMessage) *Diff {
	var p struct {
		Patch string `json:"patch"` // unified
		Diff  string `json:"diff"`  // pi's own form
	}
	_ = json.Unmarshal(details, &p) // no edit
	if d := unifiedDiff(p.Patch); d != nil {
		return d
	}
	return numberedDiff(p.Diff)
}

// unifiedDiff returns the diff of a unified patch; nil where there is none.
func unifiedDiff(text string) *Diff {
	d := &Diff{}
	var f *FileDiff
	left := [2]int{} // lines of the hunk that are to come, before and after
	from := ""
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		switch {
		case left[0] > 0 || left[1] > 0:
			f.line(line)
			if line == "" || line[0] != '+' && line[0] != '\\' {
				left[0]--
			}
			if line == "" || line[0] != '-' && line[0] != '\\' {
				left[1]--
			}
		case strings.HasPrefix(line, "--- "):
			from = fileName(line[4:])
		case strings.HasPrefix(line, "+++ "):
			d.Files = append(d.Files, FileDiff{Path: fileName(line[4:]), Op: Edited})
			if f = &d.Files[len(d.Files)-1]; f.Path == "/dev/null" {
				f.Path, f.Op = from, Deleted
			}
		case strings.HasPrefix(line, "@@ -") && f != nil:
			ranges, _, _ := strings.Cut(line[4:], " @@")
			before, after, _ := strings.Cut(ranges, " +")
			var h Hunk
			h.Old, left[0] = lineRange(before)
			h.New, left[1] = lineRange(after)
			f.Hunks = append(f.Hunks, h)
		}
	}
	return d.counted()
}

// fileName returns the path in a line of a unified patch, without the time behind it and git's first folder.
func fileName(s string) string {
	s, _, _ = strings.Cut(s, "\t")
	if strings.HasPrefix(s, "a/") || strings.HasPrefix(s, "b/") {
		return s[2:]
	}
	return s
}

// lineRange returns "12,3" as numbers. A missing count is 1.
func lineRange(s string) (from, count int) {
	a, b, ok := strings.Cut(s, ",")
	from, count = number(a), 1
	if ok {
		count = number(b)
	}
	return from, count
}

// numberedDiff returns the diff in pi's own form: each line has its mark, its number, and the text. Where lines are
// left out there is "..." in place of a number.
func numberedDiff(text string) *Diff {
	if text == "" {
		return nil
	}
	f := FileDiff{Op: Edited, Hunks: []Hunk{{}}}
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if line == "" || line[0] != '+' && line[0] != '-' && line[0] != ' ' {
			continue
		}
		digits := strings.TrimLeft(line[1:], " ")
		num, rest, _ := strings.Cut(digits, " ")
		n, err := strconv.Atoi(num)
		if err != nil {
			if digits == "..." && len(f.Hunks[len(f.Hunks)-1].Lines) > 0 {
				f.Hunks = append(f.Hunks, Hunk{})
			}
			continue
		}
		h := &f.Hunks[len(f.Hunks)-1]
		if line[0] != '+' && h.Old == 0 {
			h.Old = n
		}
		if line[0] == '+' && h.New == 0 {
			h.New = n
		}
		h.Lines = append(h.Lines, DiffLine{line[0], rest})
	}
	if last := len(f.Hunks) - 1; len(f.Hunks[last].Lines) == 0 {
		f.Hunks = f.Hunks[:last]
	}
	return (&Diff{Files: []FileDiff{f}}).counted()
}

// claudeDiff returns the diff that claude keeps beside a result of its edits; nil where there is none.
func claudeDiff(line json.RawMessage) *Diff {
	var l struct {
		Result struct {
			FilePath string `json:"filePath"`
			Patch    []struct {
				Old   int      `json:"oldStart"`
				New   int      `json:"newStart"`
				Lines []string `json:"lines"`
			} `json:"structuredPatch"`
			Notebook string  `json:"notebook_path"`
			Old      *string `json:"old_source"` // of a notebook's cell
			New      *string `json:"new_source"`
		} `json:"toolUseResult"`
	}
	if json.Unmarshal(line, &l) != nil {
		return nil
	}
	if r := l.Result; r.Notebook != "" && r.Old != nil && r.New != nil {
		return editDiff(r.Notebook, replacement{Old: r.Old, New: r.New}, nil)
	}
	if len(l.Result.Patch) == 0 {
		return nil
	}
	f := FileDiff{Path: l.Result.FilePath, Op: Edited}
	for _, p := range l.Result.Patch {
		f.Hunks = append(f.Hunks, Hunk{Old: p.Old, New: p.New})
		for _, text := range p.Lines {
			f.line(text)
		}
	}
	return (&Diff{Files: []FileDiff{f}}).counted()
}
