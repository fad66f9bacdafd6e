package runner

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"arbe.0sk.ar/runner/internal/pause"
	"arbe.0sk.ar/runner/runner/runfolder"
	"arbe.0sk.ar/runner/thread"
	"arbe.0sk.ar/runner/thread/client"
)

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
