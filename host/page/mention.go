package page

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"arbe.0sk.ar/runner/host/rows"
	"arbe.0sk.ar/runner/thread"
)

// addressed is a chat with the ids of the bots that it names.
type addressed struct {
	thread.Chat
	Mentions []string `json:"mentions,omitempty"`
}

// mention adds to a chat for a thread the ids of the bots that it names. It returns what its writer has to know; "" for
// nothing. Where the rows can't be read, the chat names bots by its text alone, as one from elsewhere does.
func (p *page) mention(ctx context.Context, id string, one *addressed) (note string) {
	in := p.whose(ctx, id)
	if p.Mentions == nil || in.Since.IsZero() {
		return ""
	}
	var shared []string
	one.Mentions, shared = p.Mentions(one.Text, in.Room)
	for _, name := range shared {
		var by []string
		for _, b := range in.Bots {
			if strings.EqualFold(b.Name, name) {
				by = append(by, byID(b))
			}
		}
		note += fmt.Sprintf("Posted, but %d bots are called %s, and none of them was asked: name one as %s. ",
			len(by), name, strings.Join(by, " or "))
	}
	return strings.TrimSpace(note)
}

// byID returns how a text names a bot by its id.
func byID(b rows.RoomBot) string { return "@" + b.ID[:min(8, len(b.ID))] }

// mentions returns how a chat names each bot that answers on a thread; none where no bot does.
func mentions(in rows.Room) (all []string) {
	if in.Since.IsZero() || in.Dispatch.Off {
		return nil
	}
	for _, b := range in.Bots {
		same := func(other rows.RoomBot) bool { return other.ID != b.ID && strings.EqualFold(other.Name, b.Name) }
		switch {
		case b.Config.Model == "":
		case slices.ContainsFunc(in.Bots, same):
			all = append(all, byID(b)+" ("+b.Name+")")
		case strings.ContainsRune(b.Name, ' '):
			all = append(all, `@"`+b.Name+`"`)
		default:
			all = append(all, "@"+b.Name)
		}
	}
	return all
}
