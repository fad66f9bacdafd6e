package thread

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
)

// Tasks folds a thread's entries into the prompts of runs that no session has on record. Such a prompt waits, like a
// chat, once its run is over, because the run died before its agent had it: a run is over when it has failed or was
// cancelled, and when another one begins. A run that has completed has done what it was to do, whatever its session has
// on record. A later prompt with the same text replaces an earlier one.
//
// The zero value is an empty thread. Its JSON is its whole state. It holds at most 100 prompts: the oldest goes.
type Tasks struct{ all []task }

type task struct {
	ID   string `json:"id"`
	Sum  string `json:"sum"` // of its text
	Over bool   `json:"over,omitempty"`
}

// mostTasks is how many prompts a Tasks holds.
const mostTasks = 100

// promptSuffix ends the id of a run's prompt.
const promptSuffix = ".prompt"

// Add adds a prompt, and returns the ids of those that are gone.
func (t *Tasks) Add(id, text string) (gone []string) {
	gone = t.repeat(text)
	t.all = append(t.all, task{ID: id, Sum: textSum(text)})
	if len(t.all) > mostTasks {
		gone = append(gone, t.all[0].ID)
		t.all = t.all[1:]
	}
	return gone
}

// repeat drops the prompts with this text, and returns their ids.
func (t *Tasks) repeat(text string) (gone []string) {
	sum := textSum(text)
	return t.delete(func(p task) bool { return p.Sum == sum })
}

// Signal adds a signal of a run, and returns the ids of the prompts that are gone.
func (t *Tasks) Signal(s Fields) (gone []string) {
	if len(t.all) == 0 {
		return nil
	}
	own := s.RunID + promptSuffix
	switch {
	case s.Type == TypeStatus && s.Status == StatusCompleted:
		return t.delete(func(p task) bool { return p.ID == own })
	case s.Type == TypeStatus && s.Status == StatusRunning:
		for i := range t.all {
			t.all[i].Over = t.all[i].Over || t.all[i].ID != own
		}
	case s.Type == TypeStatus, s.Type == TypeFailed, s.Type == TypeOrphaned:
		for i := range t.all {
			t.all[i].Over = t.all[i].Over || t.all[i].ID == own
		}
	}
	return nil
}

// Drop drops a prompt that an agent has had, or that none takes.
func (t *Tasks) Drop(id string) { t.delete(func(p task) bool { return p.ID == id }) }

func (t *Tasks) delete(is func(task) bool) (gone []string) {
	t.all = slices.DeleteFunc(t.all, func(p task) bool {
		if !is(p) {
			return false
		}
		gone = append(gone, p.ID)
		return true
	})
	return gone
}

// Waiting returns how many prompts wait.
func (t *Tasks) Waiting() (n int) {
	for _, p := range t.all {
		if p.Over {
			n++
		}
	}
	return n
}

// open reports whether the id is that of a prompt that does not wait yet.
func (t *Tasks) open(id string) bool {
	return slices.ContainsFunc(t.all, func(p task) bool { return p.ID == id && !p.Over })
}

// MarshalJSON returns the state.
func (t Tasks) MarshalJSON() ([]byte, error) { return Marshal(t.all), nil }

// IsZero reports whether there are no prompts.
func (t Tasks) IsZero() bool { return len(t.all) == 0 }

// UnmarshalJSON replaces the Tasks with those whose state MarshalJSON returned.
func (t *Tasks) UnmarshalJSON(b []byte) error { return json.Unmarshal(b, &t.all) }

func textSum(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:8])
}
