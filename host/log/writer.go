package log

import (
	"fmt"
	"strings"

	"arbe.0sk.ar/runner/internal/jsonscan"
	"arbe.0sk.ar/runner/session"
	"arbe.0sk.ar/runner/thread"
)

// Writer limits the entries that the holder of a token may post. The zero value limits none: it is a host's. No
// writer posts the lines of a harness that Harnesses lacks.
//
// A run's writer posts the lines of its sessions, the signals of its runner, and its prompt. A command's writer posts
// what its supervisor reports. Neither can post what hosts, members and bots do, nor take an id of theirs.
type Writer struct {
	Run     string // of a run, or of a command: its entries are its alone; "" for any
	Command bool   // Run is a command's id
	Author  string // its entries may have this author or none; "" for any

	Harnesses session.List
}

// refuses returns why the writer may not post a valid entry; "" where it may.
func (w Writer) refuses(e thread.Entry) (reason Reason, why string) {
	p, err := lookAt(e)
	if err != nil {
		return Invalid, err.Error()
	}
	if _, known := w.Harnesses.Of(p.Type); !known && p.Type != thread.TypeChat && !p.Signal() {
		return Invalid, fmt.Sprintf("payload.type %.80q: want chat, %s or signal.<area>.<what>",
			p.Type, strings.Join(w.Harnesses.Types("<kind>"), ", "))
	}
	if w.Run == "" && w.Author == "" {
		return 0, ""
	}
	if w.Run != "" {
		if why := w.foreign(e.ID, p); why != "" {
			return WrongRun, "the token is for run " + w.Run + ": " + why
		}
	}
	of := "the token is for the author " + w.Author
	switch {
	case w.Author != "" && e.AuthorID != "" && e.AuthorID != w.Author:
		return WrongAuthor, of + ", and the entry has another author"
	case p.host != "" && w.Run != "":
		return WrongRun, "the token is for run " + w.Run + ": payload." + p.host + " is the hosts' alone"
	case p.host != "":
		return WrongAuthor, of + ": payload." + p.host + " is the hosts' alone"
	}
	return 0, ""
}

// looked has the parts of a payload that decide who may post it.
type looked struct {
	thread.Fields
	exec   string // the command that it names
	host   string // the first member that only hosts post; "" for none
	parent bool   // it names a thread that gets the result
	line   bool   // it is of a session
}

// lookAt reads an entry's payload.
func lookAt(e thread.Entry) (p looked, err error) {
	p.Fields, err = thread.ScanMembers(e.Payload, func(key, value []byte) {
		switch string(key) {
		case "reaction", "via", "quiet":
			if p.host == "" {
				p.host = string(key)
			}
		case "parent":
			p.parent = true
		case "session":
			p.line = jsonscan.IsObject(value)
		case "execId":
			p.exec = jsonscan.String(value)
		}
	})
	return p, err
}

// foreign returns why a writer of one run may not post an entry; "" where it may. The first row that fits holds.
//
//	id                                   entry                                result
//	<run>.exec.<n>                       a signal of the supervisor of <run>  posted
//	of any command                       any other                            refused
//	any                                  a command's writer                   refused
//	of another run                       any                                  refused
//	of a host                            any                                  refused
//	of a member, a decision, a reaction  but those of the run itself          refused
//	any                                  a signal of another run or none      refused
//	any                                  a signal of hosts, or a parent       refused
//	but <run>.prompt                     a chat of no session                 refused
//	any                                  any                                  posted
func (w Writer) foreign(id string, p looked) string {
	if exec, _, ok := thread.ParseExecID(id); ok {
		if exec != w.Run || p.exec != w.Run || !ofSupervisor(p.Type) {
			return "it may not take an id of another command, or post what its supervisor does not"
		}
		return ""
	}
	owner, ofRun := thread.RunOf(id)
	switch {
	case w.Command:
		return "it is a command, and posts its own entries alone"
	case ofRun && owner != w.Run:
		return "it may not take an id of another run"
	case thread.IsHostID(id):
		return "it may not take an id that hosts give"
	case !ofRun && thread.IsReserved(id):
		return "it may not take an id of a member, a decision or a reaction"
	case p.Signal() && p.RunID != w.Run:
		return "it may post no signal of another run"
	case p.Signal() && (thread.IsHostType(p.Type) || thread.IsExec(p.Type)):
		return "it may post no signal of a host or a command"
	case p.Signal() && p.parent:
		return "its parent is the host's to name"
	case p.Type == thread.TypeChat && !p.line && (id != w.Run+".prompt" || p.RunID != w.Run):
		return "its prompt is the only chat of no session that it may post"
	}
	return ""
}

// ofSupervisor reports whether the supervisor of a command posts signals of a type.
func ofSupervisor(typ string) bool {
	switch typ {
	case thread.TypeExecRunning, thread.TypeExecOutput, thread.TypeExecFinished:
		return true
	}
	return false
}
