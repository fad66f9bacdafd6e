package session

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
)

// claudeLeaf returns a last-prompt line that names the newest turn of a session, where claude would continue from an
// older one; nil where it would not.
//
// The turns are a tree, and claude 2.1.329 continues from a leaf. It notes one in a last-prompt line, in its field
// leafUuid, at each orderly end, at each start and every 64 KiB. It continues from the file's last turn only if that
// descends from the leaf in the last such line. A claude that was killed in a wait for a retry has noted the api_error
// line; the next one drops that line and continues from its parent. If it is killed, too, the third one finds a noted
// leaf from which the last turn does not descend: it continues from there, and without all turns of the second one.
// A busy claude may write the note ahead of the lines that it is about: then the leaf descends from the last turn.
func claudeLeaf(path string) ([]byte, error) {
	from, noted, err := claudeNoted(path)
	if err != nil || noted.LeafUUID == "" {
		return nil, err
	}
	parents, last := map[string]string{}, ""
	err = claudeLines(path, from, func(line Line) {
		var l claudeTreeLine
		if !l.decode(line.Data) || l.UUID == "" || l.IsSidechain {
			return
		}
		parents[l.UUID] = l.ParentUUID
		switch l.Type {
		case "user", "assistant", "attachment":
			last = l.UUID
		}
	})
	if err != nil || last == "" {
		return nil, err
	}
	descends := func(id, from string) bool {
		for steps := 0; id != from; steps++ {
			parent, behind := parents[id]
			if !behind || steps > len(parents) {
				return false
			}
			id = parent
		}
		return true
	}
	if descends(last, noted.LeafUUID) || descends(noted.LeafUUID, last) {
		return nil, nil
	}
	return json.Marshal(struct {
		Type      string `json:"type"` // claude looks for a line that begins with it
		LeafUUID  string `json:"leafUuid"`
		SessionID string `json:"sessionId,omitempty"`
	}{"last-prompt", last, noted.SessionID})
}

// claudeTreeLine has the fields of a line that make the tree.
type claudeTreeLine struct {
	Type, Subtype    string
	UUID, ParentUUID string
	IsSidechain      bool
	LeafUUID         string
	Explicit         bool
	SessionID        string
}

// decode decodes a line, and reports whether it is an object. A field of another type stays empty.
func (l *claudeTreeLine) decode(line []byte) bool {
	var mismatch *json.UnmarshalTypeError
	err := json.Unmarshal(line, l)
	return len(line) > 0 && line[0] == '{' && (err == nil || errors.As(err, &mismatch))
}

// claudeNoted returns the last line of a session that notes a leaf, and the position behind it. LeafUUID is "" where
// none counts: a compaction and a conversation that was taken back to its beginning are later.
func claudeNoted(path string) (from Position, noted claudeTreeLine, err error) {
	err = claudeLines(path, from, func(line Line) {
		if !bytes.Contains(line.Data, []byte(`"last-prompt"`)) && !bytes.Contains(line.Data, []byte(`"compact_boundary"`)) {
			return
		}
		var l claudeTreeLine
		if !l.decode(line.Data) {
			return
		}
		switch {
		case l.Type == "last-prompt" && (l.LeafUUID != "" || l.Explicit):
			from, noted = line.End, l
		case l.Type == "system" && l.Subtype == "compact_boundary" && !l.IsSidechain:
			from, noted = line.End, claudeTreeLine{}
		}
	})
	return from, noted, err
}

// claudeLines calls f with the lines of a session from a position on.
func claudeLines(path string, from Position, f func(Line)) error {
	r := NewReader(path, from)
	defer r.Close() // read only: nothing to lose
	for {
		line, err := r.Rest()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		f(line)
	}
}
