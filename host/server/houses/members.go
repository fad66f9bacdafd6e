package houses

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/google/uuid"

	"arbe.0sk.ar/runner/host/member"
	"arbe.0sk.ar/runner/host/rows"
	"arbe.0sk.ar/runner/host/server/request"
	"arbe.0sk.ar/runner/host/token"
	"arbe.0sk.ar/runner/thread"
)

// Row returns the row of a thread of a member's houses, or request.ErrNoThread.
func (a *API) Row(ctx context.Context, m member.Member, id string) (*rows.Thread, error) {
	if !thread.ValidThread(id) {
		return nil, request.ErrNoThread
	}
	t, err := a.Rows.As(m.Agent).Thread(ctx, id)
	switch {
	case errors.Is(err, rows.ErrAbsent):
		return nil, request.ErrNoThread
	case err != nil:
		return nil, a.rowError(err)
	}
	return &t, nil
}

// Bounds of a member's post.
const (
	memberBody = 1 << 20   // bytes of the body
	memberText = 256 << 10 // bytes of the text
	memberKey  = 100       // characters of an idempotency key
)

// memberPost posts a chat to a thread, or ends a bot's answer, as a member of its house.
func (a *API) memberPost(w http.ResponseWriter, r *http.Request) error {
	g, err := a.PermitMember(r, token.ScopeWrite)
	if err != nil {
		return err
	}
	id, err := memberEntryID(g.Author, r.Header.Values("Idempotency-Key"))
	if err != nil {
		return err
	}
	body, free, err := a.ReadJSON(w, r, g, memberBody)
	if err != nil {
		return err
	}
	defer free()
	payload, err := parsePost(body, g.Author)
	if err == nil {
		err = a.RefuseClosed(r.Context(), r.PathValue("id"))
	}
	if err != nil {
		return err
	}
	res, err := a.Log.Append(r.Context(), request.ThreadOf(g), []thread.Entry{thread.NewEntry(id, g.Author, payload)})
	if err != nil {
		return err
	}
	w.Header().Set(request.HeaderNext, request.Offset(res.Next))
	request.WriteJSON(w, request.MadeStatus(res.Appended > 0), struct {
		ID         string `json:"id"`
		NextOffset string `json:"nextOffset"`
	}{id, request.Offset(res.Next)})
	return nil
}

// memberEntryID returns the id of a member's entry. Of one key it is always the same, so that a post can be repeated.
// It begins so that it is no id of a run or of another member.
func memberEntryID(agent string, keys []string) (string, error) {
	if len(keys) == 0 {
		return "member." + agent + "." + strings.ToLower(rand.Text()), nil
	}
	id := "member." + agent + "." + keys[0]
	if len(keys) > 1 || keys[0] == "" || len(keys[0]) > memberKey || !thread.ValidID(id) {
		return "", request.Refuse(http.StatusBadRequest, "idempotency_key",
			"Idempotency-Key: want 1 to %d characters of A-Z a-z 0-9 . _ : ~ -, once", memberKey)
	}
	return id, nil
}

// memberChat is the payload of a member's chat. Mentions are the ids of bots that the writer's program has resolved.
type memberChat struct {
	Type     string   `json:"type"`
	Text     string   `json:"text"`
	Deliver  string   `json:"deliver,omitempty"`
	Mentions []string `json:"mentions,omitempty"`
}

// Bounds of what a member names.
const (
	mostMentions = 50
	mostReason   = 1 << 10 // bytes
)

// parsePost returns the payload of a member's post. A member posts chats, and ends the answers of bots, under its own
// name: other signals, lines of sessions and prompts of runs are refused.
func parsePost(body []byte, author string) (payload any, err error) {
	var e struct {
		AuthorID *string         `json:"authorId"`
		Payload  json.RawMessage `json:"payload"`
	}
	if err := request.DecodeStrictly(body, &e); err != nil {
		return nil, request.Refuse(http.StatusBadRequest, "json", `want {"payload":{"type":"chat","text":"…"}}: %v`, err)
	}
	if e.AuthorID != nil && *e.AuthorID != author {
		return nil, request.Refuse(http.StatusForbidden, "wrong_author",
			"a member posts as itself: leave authorId out")
	}
	var kind struct {
		Type string `json:"type"`
	}
	switch err := json.Unmarshal(e.Payload, &kind); {
	case err != nil || kind.Type == "" || kind.Type == thread.TypeChat:
		return parseChat(e.Payload)
	case kind.Type == thread.TypeReactionCancel:
		return parseStop(e.Payload)
	}
	return nil, request.Refuse(http.StatusForbidden, "chats_only",
		"a member posts chats, and ends the answers of bots: no %.40q", kind.Type)
}

func parseChat(payload []byte) (chat memberChat, err error) {
	err = request.DecodeStrictly(payload, &chat)
	switch {
	case err != nil:
		return chat, request.Refuse(http.StatusBadRequest, "payload",
			"want type, text, deliver and mentions alone: %v", err)
	case chat.Type != thread.TypeChat || strings.TrimSpace(chat.Text) == "" || len(chat.Text) > memberText:
		return chat, request.Refuse(http.StatusBadRequest, "payload",
			"want the type chat, and a text of 1 to %d bytes", memberText)
	case chat.Deliver != "" && !slices.Contains(delivers, chat.Deliver):
		return chat, request.Refuse(http.StatusBadRequest, "deliver", "deliver: want steer, followUp or interrupt")
	case len(chat.Mentions) > mostMentions || slices.ContainsFunc(chat.Mentions, notUUID):
		return chat, request.Refuse(http.StatusBadRequest, "payload",
			"mentions: want at most %d ids of bots, UUIDs", mostMentions)
	}
	return chat, nil
}

func notUUID(id string) bool {
	_, err := uuid.Parse(id)
	return err != nil
}

// parseStop returns the payload that asks for the end of a bot's answer.
func parseStop(payload []byte) (stop thread.ReactionCancel, err error) {
	err = request.DecodeStrictly(payload, &stop)
	switch {
	case err != nil:
		return stop, request.Refuse(http.StatusBadRequest, "payload", "want type, reaction and reason alone: %v", err)
	case stop.Type != thread.TypeReactionCancel || !thread.ValidID(stop.Reaction) || len(stop.Reason) > mostReason:
		return stop, request.Refuse(http.StatusBadRequest, "payload",
			"want the id of a reaction, and a reason of at most %d bytes", mostReason)
	}
	return stop, nil
}

// delivers are the values of a chat's deliver.
var delivers = []string{thread.DeliverSteer, thread.DeliverFollowUp, thread.DeliverInterrupt}
