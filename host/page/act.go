package page

import (
	"cmp"
	"crypto/rand"
	"net/http"
	"slices"
	"strings"
	"time"

	"arbe.0sk.ar/runner/host/access"
	"arbe.0sk.ar/runner/thread"
)

// author is the author of entries that are posted from the page, but for a member's.
const author = "page"

// mostText bounds a chat and a reason, in bytes.
const mostText = 64 << 10

// cancel asks the running run of a thread to end, as `arbe cancel` does.
func (p *page) cancel(w http.ResponseWriter, r *http.Request) error {
	id := r.PathValue("thread")
	if _, err := p.actor(w, r, id); err != nil {
		return err
	}
	var asked struct{ Reason string }
	if err := parseBody(w, r, &asked); err != nil {
		return err
	}
	if len(asked.Reason) > mostText {
		return refuse(http.StatusRequestEntityTooLarge, "too_large", "reason: want at most %d bytes", mostText)
	}
	v, err := p.summary(r.Context(), id)
	if err != nil {
		return err
	}
	if v.Status != thread.StatusRunning {
		return refuse(http.StatusConflict, "not_running", "No run is running: the thread is %s.", v.Status)
	}
	return p.post(w, r, id, author, thread.Marshal(thread.Cancel{
		Signal: thread.Signal{Type: thread.TypeCancel, RunID: v.Run, Harness: v.Harness}, Reason: asked.Reason,
	}), "")
}

// chat posts a chat to a thread.
func (p *page) chat(w http.ResponseWriter, r *http.Request) error {
	var sent struct{ Text, Deliver string }
	if err := parseBody(w, r, &sent); err != nil {
		return err
	}
	id := r.PathValue("thread")
	s, err := p.speaker(w, r, id)
	if err == nil {
		err = p.say(w, r, s, id, sent.Text, sent.Deliver)
	}
	if err != nil {
		return unsent(err, sent.Text)
	}
	return nil
}

// say posts a chat of a session to a thread.
func (p *page) say(w http.ResponseWriter, r *http.Request, s access.Session, id, text, deliver string) error {
	if strings.TrimSpace(text) == "" || len(text) > mostText {
		return refuse(http.StatusBadRequest, "text", "text: want 1 to %d bytes", mostText)
	}
	switch deliver {
	case "", thread.DeliverSteer:
		deliver = "" // the default
	case thread.DeliverFollowUp, thread.DeliverInterrupt:
	default:
		return refuse(http.StatusBadRequest, "deliver", "deliver: want %s, %s or %s", thread.DeliverSteer,
			thread.DeliverFollowUp, thread.DeliverInterrupt)
	}
	if _, err := p.summary(r.Context(), id); err != nil {
		return err
	}
	if s.Agent != "" && p.Doors != nil {
		closed, err := p.Doors.IsClosed(r.Context(), id)
		if err != nil {
			return err
		}
		if closed {
			return refuse(http.StatusConflict, "closed", "The thread is closed: it takes no more posts.")
		}
	}
	one := addressed{Chat: thread.Chat{Type: thread.TypeChat, Text: text, Deliver: deliver}}
	note := p.mention(r.Context(), id, &one)
	return p.post(w, r, id, cmp.Or(s.Agent, author), thread.Marshal(one), note)
}

// stop asks for the end of a bot's open reaction, as `arbe cancel --reaction` does.
func (p *page) stop(w http.ResponseWriter, r *http.Request) error {
	id := r.PathValue("thread")
	s, err := p.speaker(w, r, id)
	if err != nil {
		return err
	}
	var asked struct{ Reaction string }
	if err := parseBody(w, r, &asked); err != nil {
		return err
	}
	if _, err := p.summary(r.Context(), id); err != nil {
		return err
	}
	f, err := p.Threads.Fold(r.Context(), id)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(f.Reactions.Open(), func(x thread.OpenReaction) bool { return x.ID == asked.Reaction }) {
		return refuse(http.StatusConflict, "not_answering", "The bot does not answer any more.")
	}
	return p.post(w, r, id, cmp.Or(s.Agent, author), thread.Marshal(thread.ReactionCancel{
		Type: thread.TypeReactionCancel, Reaction: asked.Reaction,
	}), "")
}

// post appends an entry of an author to a thread that exists. note is for who has posted it; "" for none.
func (p *page) post(w http.ResponseWriter, r *http.Request, id, author string, payload []byte, note string) error {
	e := thread.Entry{
		ID: "page." + strings.ToLower(rand.Text()), TS: thread.Stamp(time.Now()), AuthorID: author, Payload: payload,
	}
	if _, err := p.Log.Append(r.Context(), id, []thread.Entry{e}); err != nil {
		return err
	}
	if isForm(r) {
		http.Redirect(w, r, pathOf(id)+"#i-"+e.ID, http.StatusSeeOther)
		return nil
	}
	answerJSON(w, http.StatusCreated, struct {
		ID   string `json:"id"`
		Note string `json:"note,omitempty"`
	}{e.ID, note})
	return nil
}
