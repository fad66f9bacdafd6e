package answer

import (
	"context"
	"encoding/json"
	"errors"

	"arbe.0sk.ar/runner/host/model"
	"arbe.0sk.ar/runner/thread/redact"
)

// redacted is a model whose replies, and the text as it comes, have no secrets: they leave for a thread.
type redacted struct {
	model.Model
	hide *redact.Redactor
}

// Stream implements model.Model. What may be the beginning of a secret is held back until more has come.
func (r redacted) Stream(ctx context.Context, q model.Request, f func(model.Event)) (model.Reply, error) {
	text := r.hide.Parts()
	reply, err := r.Model.Stream(ctx, q, func(e model.Event) {
		if e.Text = text.Next([]byte(e.Text)); e.Text != "" || e.Tool != "" {
			e.Tool = r.hide.Text(e.Tool)
			f(e)
		}
	})
	if failed, is := errors.AsType[*model.Error](err); is {
		failed = new(*failed)
		failed.Message = r.hide.Text(failed.Message)
		return model.Reply{Usage: reply.Usage}, failed
	} else if err != nil {
		return model.Reply{Usage: reply.Usage}, r.hide.Error(err)
	}
	if rest := text.Rest(); rest != "" {
		f(model.Event{Text: rest})
	}
	var parts []model.Part
	for _, p := range reply.Parts {
		if clean, ok := r.part(p); ok {
			parts = append(parts, clean)
		}
	}
	reply.Parts, reply.Model = parts, r.hide.Text(reply.Model)
	return reply, nil
}

// part returns a part of a reply without secrets; false for thinking that has one, since its signature would not hold.
func (r redacted) part(p model.Part) (clean model.Part, ok bool) {
	switch {
	case p.Thinking != nil:
		return p, r.hide.Text(p.Thinking.Text) == p.Thinking.Text
	case p.Call != nil:
		c := *p.Call
		c.ID, c.Name, c.Broken = r.hide.Text(c.ID), r.hide.Text(c.Name), r.hide.Text(c.Broken)
		if args := r.hide.Bytes(c.Arguments); args != nil {
			if c.Arguments = args; !json.Valid(args) {
				c.Arguments, c.Broken = nil, string(args)
			}
		}
		return model.Part{Call: &c}, true
	}
	p.Text = r.hide.Text(p.Text)
	return p, true
}
