package runner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"
	"unicode/utf8"

	"arbe.0sk.ar/runner/internal/pause"
	"arbe.0sk.ar/runner/runner/runfolder"
	"arbe.0sk.ar/runner/thread"
	"arbe.0sk.ar/runner/thread/client"
)

// Limits of a turn that has earlier chats: its length in characters, where the agent has no limit of its own, and the
// number of its chats. What does not fit is left to the next run.
const (
	mostTurn    = 16 << 20
	mostEarlier = 100
)

// promptHead stands between the chats and the prompt.
const promptHead = "[prompt]\n"

// earlierFile is the file in the run's folder with what stands before the prompt. It is there before the agent starts,
// so that each worker of the run has the same.
const earlierFile = "chats.json"

// earlier are the chats that no run before this one has had. They stand before the prompt, in one turn.
type earlier struct {
	Chats []string `json:"chats"` // their ids, in the thread's order
	Text  string   `json:"text"`
}

// turn returns the text of the agent's first turn.
func (e earlier) turn(prompt string) string {
	if len(e.Chats) == 0 {
		return prompt
	}
	return e.Text + promptHead + prompt
}

// turnText returns a chat as it stands before a prompt: a line with its author, its text, a line for each image that
// the agent does not get, and an empty line.
func turnText(chat thread.PendingChat) string {
	var b strings.Builder
	if chat.Author == "" {
		b.WriteString("[chat]\n")
	} else {
		fmt.Fprintf(&b, "[chat from %s]\n", chat.Author)
	}
	if chat.Text != "" {
		b.WriteString(chat.Text)
		b.WriteByte('\n')
	}
	for _, image := range chat.Images {
		var block struct{ MimeType string }
		_ = json.Unmarshal(image, &block) // Pending has read it
		fmt.Fprintf(&b, "[image left out: %s]\n", block.MimeType)
	}
	b.WriteByte('\n')
	return b.String()
}

// chooseEarlier returns the oldest of the pending chats, as many as one turn takes beside a prompt of so many
// characters, and the chats that no turn takes. most is the agent's limit of a turn, in characters; 0 for none. read
// returns a chat whose content is omitted; the choice ends before one that it can't read.
func chooseEarlier(
	chats []thread.PendingChat, prompt, most int, read func(id string) (thread.PendingChat, error),
) (e earlier, tooLong []string, err error) {
	if most == 0 {
		most = mostTurn
	}
	var all strings.Builder
	defer func() { e.Text = all.String() }()
	room := most - len(promptHead) - prompt
	for _, chat := range chats {
		if len(e.Chats) == mostEarlier || len(tooLong) == mostEarlier {
			break
		}
		if chat.Omitted {
			if chat, err = read(chat.ID); err != nil {
				return e, tooLong, err
			}
		}
		text := turnText(chat)
		n := utf8.RuneCountInString(text)
		switch {
		case n > most-len(promptHead):
			tooLong = append(tooLong, chat.ID)
			continue
		case n > room:
			return e, tooLong, nil // the chats behind it wait, too: their order stays
		}
		e.Chats = append(e.Chats, chat.ID)
		all.WriteString(text)
		room -= n
	}
	return e, tooLong, nil
}

// takeEarlier takes the chats that stand before the run's prompt, and records them. It takes none where the thread was
// not read, where a lost run of the thread may yet post that it has had them, and where a person types at the agent's
// terminal. They stay pending then. Chats that no turn takes are refused.
func (r *run) takeEarlier(ctx context.Context) (refused []thread.ChatRefused) {
	r.earlier = earlier{}
	if _, err := r.Folder.ReadFile(earlierFile); err == nil { // of a worker that has died
		if err := r.Folder.WriteFile(earlierFile, []byte("{}")); err != nil {
			r.Log.Warn("remove the chats of an earlier worker", "error", err)
			return nil
		}
	}
	if r.pending == nil || r.TTY != nil || len(r.pending.Chats()) == 0 {
		return nil
	}
	if r.lostRuns {
		r.Log.Warn("a lost run is not finished; chats wait for the next run", "chats", len(r.pending.Chats()))
		return nil
	}
	prompt := r.promptLength
	if r.Prompt != "" {
		prompt = utf8.RuneCountInString(r.Prompt)
	}
	read := func(id string) (thread.PendingChat, error) { return r.readChat(ctx, id) }
	chosen, tooLong, err := chooseEarlier(r.pending.Chats(), prompt, r.Spec.MostPrompt, read)
	if err != nil {
		r.Log.Warn("read pending chats; the rest waits for the next run", "error", err)
	}
	for _, id := range tooLong {
		r.Log.Warn("refusing a chat that is longer than a turn", "chat", id)
		refused = append(refused, thread.ChatRefused{
			Signal: r.signal(thread.TypeRefused), Chat: id, Reason: "longer than the agent takes in one turn",
		})
	}
	if len(chosen.Chats) == 0 {
		return refused
	}
	b, err := json.Marshal(chosen)
	if err == nil {
		err = r.Folder.WriteFile(earlierFile, b)
	}
	if err != nil { // the next worker would not know which chats the agent has
		r.Log.Warn("record chats; they wait for the next run", "error", err)
		return refused
	}
	r.earlier = chosen
	r.Log.Info("earlier chats stand before the prompt", "chats", len(chosen.Chats),
		"left", len(r.pending.Chats())-len(chosen.Chats)-len(tooLong))
	return refused
}

// readChat reads a chat of the thread.
func (r *run) readChat(ctx context.Context, id string) (chat thread.PendingChat, err error) {
	e, found, err := r.Client.EntryWithin(ctx, id, r.Timeout)
	if err == nil && !found {
		err = fs.ErrNotExist
	}
	if err != nil {
		return chat, fmt.Errorf("read chat %s: %w", id, err)
	}
	return thread.ParseInput(e), nil
}

// readEarlier reads what an earlier worker of the run has recorded.
func (r *run) readEarlier() error {
	b, err := r.Folder.ReadFile(earlierFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = json.Unmarshal(b, &r.earlier)
	}
	if err != nil {
		return fmt.Errorf("read the chats before the prompt: %w", err)
	}
	return nil
}

// retryPrompt is the wait before a thread that was not found is read for the prompt again.
const retryPrompt = time.Second

// readPrompt reads the run's prompt from the thread. It retries for Timeout if the server does not answer or does not
// have the thread. notStarted is why the agent can't start; nil also for a run that was stopped meanwhile.
func (r *run) readPrompt(ctx context.Context) (notStarted *NotStartedError) {
	for began := runfolder.Clock(); ; {
		e, found, err := r.Client.EntryWithin(ctx, promptID(r.RunID), r.Timeout)
		if found {
			var chat thread.Chat
			if bad := json.Unmarshal(e.Payload, &chat); bad != nil {
				err = fmt.Errorf("entry %s: %w", e.ID, bad)
			}
			r.Prompt = chat.Text
		}
		switch {
		case ctx.Err() != nil:
			return nil
		case client.Refused(err) || client.Redirected(err) || client.Gone(err):
			return &NotStartedError{StatusConfig, fmt.Errorf("read the prompt from the thread: %w", err)}
		// perhaps a proxy's answer, while the server starts
		case client.NotFound(err) && runfolder.Clock()-began < r.Timeout:
			pause.For(ctx, min(r.intervals.retryPrompt, r.Timeout/4))
			continue
		case err != nil && !client.NotFound(err):
			return &NotStartedError{StatusNotStarted, fmt.Errorf("read the prompt from the thread: %w", err)}
		case strings.TrimSpace(r.Prompt) == "":
			err := fmt.Errorf("no prompt: none was given, and the thread has no chat %s", promptID(r.RunID))
			return &NotStartedError{statusUsage, err}
		}
		return nil
	}
}
