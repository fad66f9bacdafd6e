package view

import "slices"

// inbox are the chats of a thread that its agent does not have, the oldest first.
type inbox struct {
	open  []Item
	bytes int // of their texts
}

// wait keeps a chat until it is delivered.
func (x *inbox) wait(i Item) {
	if i.Input == nil || i.Input.Delivery != Undelivered {
		return
	}
	x.open = append(x.open, i)
	x.bytes += len(i.Text)
	for len(x.open) > mostOpen || x.bytes > mostOpenBytes {
		x.take(0)
	}
}

// take removes and returns a chat.
func (x *inbox) take(at int) Item {
	i := x.open[at]
	x.bytes -= len(i.Text)
	if at == 0 {
		x.open[0] = Item{}
		x.open = x.open[1:]
	} else {
		x.open = slices.Delete(x.open, at, at+1)
	}
	return i
}

// deliver returns the changes that mark chats as delivered, and the chats that are not known.
func (x *inbox) deliver(ids []string) (changes []Change, unknown []string) {
	for _, id := range ids {
		if at := x.find(id); at >= 0 {
			changes = append(changes, marked(x.take(at), Delivered, ""))
		} else {
			unknown = append(unknown, id)
		}
	}
	return changes, unknown
}

// deliverAll returns the changes that mark all chats as delivered.
func (x *inbox) deliverAll() (changes []Change) {
	for len(x.open) > 0 {
		changes = append(changes, marked(x.take(0), Delivered, ""))
	}
	return changes
}

// refuse returns the change that marks a chat as refused; none for one that is not known.
func (x *inbox) refuse(n Notice) []Change {
	at := x.find(n.Chat)
	if at < 0 {
		return nil
	}
	return []Change{marked(x.take(at), Refused, n.Reason)}
}

func (x *inbox) find(id string) int {
	return slices.IndexFunc(x.open, func(i Item) bool { return i.Entry == id })
}

// marked returns the change that gives a chat another delivery.
func marked(i Item, d Delivery, reason string) Change {
	in := *i.Input
	in.Delivery, in.Reason = d, reason
	i.Input = &in
	return Change{i, true}
}
