package page

import (
	"bytes"
	"slices"

	"arbe.0sk.ar/runner/host/view"
)

// answer is an answer that a bot is writing.
type answer struct {
	view.Answering
	Name string // of the bot
}

// answers returns a thread's open reactions as the page shows them.
func answers(open []view.Answering, of names) (all []answer) {
	for _, a := range open {
		all = append(all, answer{a, of.bot(a.Bot)})
	}
	return all
}

// liveAnswer is an answer that is new, or whose text has changed.
type liveAnswer struct {
	HTML string `json:"html"`
}

// writeAnswers calls send for each open reaction that is not the same in was.
func writeAnswers(was, open []view.Answering, of names, send func(liveAnswer)) error {
	for _, a := range answers(open, of) {
		if slices.ContainsFunc(was, a.same) {
			continue
		}
		var b bytes.Buffer
		if err := templates.ExecuteTemplate(&b, "answer", a); err != nil {
			return err
		}
		send(liveAnswer{b.String()})
	}
	return nil
}

// same reports whether the page shows two states of a reaction alike.
func (a answer) same(b view.Answering) bool {
	return a.ID == b.ID && a.Text == b.Text && slices.Equal(a.Tools, b.Tools)
}

// idsOf returns the ids of reactions.
func idsOf(open []view.Answering) (ids []string) {
	for _, a := range open {
		ids = append(ids, a.ID)
	}
	return ids
}
