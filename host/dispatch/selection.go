package dispatch

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/text"

	"arbe.0sk.ar/runner/host/model/price"
	"arbe.0sk.ar/runner/host/rows"
	"arbe.0sk.ar/runner/thread"
)

// Bot is a bot of a thread's house, as it is on that thread.
type Bot struct {
	ID           string // a UUID
	Name         string
	Joined       time.Time // the house
	Mode         string    // of package rows: when it reacts to what does not name it
	AmbientDelay time.Duration
	Cooldown     time.Duration // of rows.ModeAlways, for triggers of bots
	Provider     string        // of the model
	Model        string        // the provider's name of it; "" where the bot has none, and can't answer
	Instructions string
	Tools        map[string]bool // what the house's settings say of which tools
	Caps         rows.Caps       // of its reactions, where they are not the usual ones
}

// Member is a human member of a house.
type Member struct {
	ID   string
	Name string
}

// Room is a thread with its house, as the rows have them.
type Room struct {
	Thread string // names
	House  string

	HouseID     string
	Environment string // of the thread's box, by its id; "" for none

	Off    bool   // nobody reacts
	Closed bool   // nobody may write
	Driver string // the bot that drives the thread by runs; "" for none

	// The house's model for gates; "" for the bot's own.
	GateProvider, GateModel string

	Prices map[string]price.Price // of the house, by PROVIDER/NAME: they go before those of package price

	Bots   []Bot    // of the house, but archived ones
	Humans []Member // of the house
}

// bot returns the bot with an id; false where the room has it no more.
func (r Room) bot(id string) (Bot, bool) {
	i := slices.IndexFunc(r.Bots, func(b Bot) bool { return b.ID == id })
	if i < 0 {
		return Bot{}, false
	}
	return r.Bots[i], true
}

// name returns the label of a member, and whether it is a human, a bot or nobody of the house.
func (r Room) name(id string) (name, kind string) {
	name, kind = "somebody", "no member"
	if b, ok := r.bot(id); ok {
		name, kind = b.Name, "bot"
	} else if i := slices.IndexFunc(r.Humans, func(m Member) bool { return m.ID == id }); i >= 0 {
		name, kind = r.Humans[i].Name, "human"
	}
	return label(name), kind
}

// Caps of a selection.
const (
	maxDepth    = 8  // of a trigger that bots react to
	maxTurns    = 20 // bots' replies since the last chat of a human
	maxUnasked  = 3  // bots that react to one trigger without being named
	maxMentions = 8  // bots that react to one trigger since they are named
)

// resumes reports whether a run may be launched for the chat that it is to take: its author is still of the house.
func (r Room) resumes(x Resume) bool {
	_, is := r.bot(x.Bot)
	return is && x.Bot == r.Driver && r.human(x.Author) && !r.Off && !r.Closed
}

func (r Room) human(id string) bool {
	return slices.ContainsFunc(r.Humans, func(m Member) bool { return m.ID == id })
}

// selection is a decision in the making.
type selection struct {
	Trigger
	Room
	depth   int
	turns   int      // replies of bots since the last chat of a human, with those that are to come
	names   []string // ids of the bots that it names
	asked   int      // bots so far that react since they are named
	unasked int      // and those that are not named
}

// Select decides which bots of a room react to a trigger of the thread. The order of the room's bots has no influence.
func (s *State) Select(t Trigger, r Room) thread.Decided {
	d := thread.Decided{Type: thread.TypeDecided, Trigger: t.ID, Bots: []thread.Choice{}}
	d.Depth, d.Root = s.chain(t, r)
	x := selection{
		Trigger: t, Room: r, depth: d.Depth, names: t.named(r.Bots),
		turns: s.finals - s.human + len(s.open) + len(s.waiting),
	}
	for _, b := range slices.SortedFunc(slices.Values(r.Bots), oldest) {
		if b.ID == t.Author || b.Joined.After(t.At) {
			continue
		}
		c := thread.Choice{AgentID: b.ID, Decision: thread.DecisionReact, Reason: x.reason(b)}
		if c.Reason == "" {
			continue
		}
		if c.Reason == thread.ReasonAmbient && d.Depth == 0 {
			c.DueAt = thread.Stamp(t.At.Add(b.AmbientDelay))
		}
		if why := x.refusal(b, c.Reason); why != "" {
			c = thread.Choice{AgentID: b.ID, Decision: thread.DecisionSkip, Reason: why}
		}
		d.Bots = append(d.Bots, c)
	}
	return d
}

// oldest compares bots by when they joined.
func oldest(a, b Bot) int {
	if c := a.Joined.Compare(b.Joined); c != 0 {
		return c
	}
	return strings.Compare(a.ID, b.ID)
}

// chain returns the depth of a trigger, and the chat of a human that began its chain.
func (s *State) chain(t Trigger, r Room) (depth int, root *thread.Root) {
	switch {
	case t.final || t.via:
		return t.depth, t.root
	case r.human(t.Author):
		return 0, &thread.Root{AuthorID: t.Author, ThreadID: s.threadID, EntryID: t.ID}
	}
	return 1, nil // a bot's own chat, or one of nobody in the house
}

// reason returns why a bot would react; "" where the trigger does not concern it.
func (x *selection) reason(b Bot) string {
	switch {
	case b.ID == x.Driver && x.final:
		return "" // its runs take in chats alone
	case b.ID == x.Driver && !x.Off:
		return thread.ReasonDriver
	case slices.Contains(x.names, b.ID):
		return thread.ReasonMention
	case x.Driver != "" || x.Off:
		return ""
	case b.Mode == rows.ModeAlways:
		return thread.ReasonAlways
	case b.Mode == rows.ModeAmbient:
		return thread.ReasonAmbient
	}
	return ""
}

// refusal returns why a bot may not react for a reason; "" where it may.
func (x *selection) refusal(b Bot, reason string) string {
	switch {
	case reason == thread.ReasonDriver:
		return ""
	case x.Off || b.Mode == rows.ModeOff:
		return thread.ReasonMode
	case x.depth >= maxDepth:
		return thread.ReasonDepth
	case x.depth > 0 && x.turns >= maxTurns:
		return thread.ReasonCap
	case reason == thread.ReasonAlways && x.depth > 0 && x.At.Before(x.ended[b.ID].Add(b.Cooldown)):
		return thread.ReasonCooldown
	}
	count, most := &x.unasked, maxUnasked
	if reason == thread.ReasonMention {
		count, most = &x.asked, maxMentions
	}
	if *count >= most {
		return thread.ReasonCap
	}
	*count++
	x.turns++
	return ""
}

// mostText bounds the text that is read as markdown for mentions, in bytes; behind it nobody is named.
const mostText = 128 << 10

// named returns the ids of the bots that a trigger names.
func (t Trigger) named(bots []Bot) []string {
	ids, _ := Mentions(t.Text, bots)
	for _, b := range bots {
		if slices.Contains(t.Mentions, b.ID) && !slices.Contains(ids, b.ID) {
			ids = append(ids, b.ID)
		}
	}
	return ids
}

// Mentions returns the ids of the bots that a text names: @Name, @"Two Words", or @ and the first 8 characters of the
// id. Case does not count, of several names the longest counts, and what is in code or in a quote names nobody. A name
// that two bots have names none of them: it is in shared, in lower case.
func Mentions(source string, bots []Bot) (ids, shared []string) {
	if len(source) > mostText {
		source = source[:mostText]
	}
	if !strings.Contains(source, "@") {
		return nil, nil
	}
	called := map[string][]string{} // ids by what a bot is called
	for _, b := range bots {
		name := strings.ToLower(b.Name)
		called[name] = append(called[name], b.ID)
		if len(b.ID) >= 8 {
			called[b.ID[:8]] = append(called[b.ID[:8]], b.ID)
		}
	}
	names := slices.SortedFunc(maps.Keys(called), func(a, b string) int {
		return cmp.Or(len(b)-len(a), strings.Compare(a, b))
	})
	for _, words := range prose(source) {
		words = strings.ToLower(words)
		for i := 0; i < len(words); i++ {
			if words[i] != '@' || wordEnds(words[:i]) {
				continue
			}
			for _, name := range names {
				if name == "" || !begins(words[i+1:], name) {
					continue
				}
				if who := called[name]; len(who) == 1 {
					ids = with(ids, who[0])
				} else {
					shared = with(shared, name)
				}
				break
			}
		}
	}
	return ids, shared
}

// with adds a value to a list that has each one once.
func with(list []string, value string) []string {
	if slices.Contains(list, value) {
		return list
	}
	return append(list, value)
}

// begins reports whether a text begins with a name as a whole word, or with the name in quotes.
func begins(text, name string) bool {
	if strings.HasPrefix(text, `"`+name+`"`) {
		return true
	}
	rest, ok := strings.CutPrefix(text, name)
	r, _ := utf8.DecodeRuneInString(rest)
	return ok && (rest == "" || !isWord(r))
}

// wordEnds reports whether a text ends within a word, as the text before the @ of an address of mail does.
func wordEnds(text string) bool {
	r, _ := utf8.DecodeLastRuneInString(text)
	return text != "" && (isWord(r) || r == '@')
}

func isWord(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) || r == '_' }

// prose returns the text of each block of a markdown document, but code and quotes.
func prose(source string) (blocks []string) {
	src := []byte(source)
	doc := goldmark.DefaultParser().Parse(text.NewReader(src))
	var b strings.Builder
	// The walker returns no error.
	_ = ast.Walk(doc, func(n ast.Node, enter bool) (ast.WalkStatus, error) {
		switch n := n.(type) {
		case *ast.Blockquote, *ast.CodeBlock, *ast.FencedCodeBlock:
			return ast.WalkSkipChildren, nil
		case *ast.CodeSpan:
			if enter {
				b.WriteByte(' ')
			}
			return ast.WalkSkipChildren, nil
		case *ast.Text:
			if enter {
				b.Write(n.Segment.Value(src))
				if n.SoftLineBreak() || n.HardLineBreak() {
					b.WriteByte('\n')
				}
			}
		default:
			if !enter && n.Type() == ast.TypeBlock && b.Len() > 0 {
				blocks = append(blocks, b.String())
				b.Reset()
			}
		}
		return ast.WalkContinue, nil
	})
	return blocks
}
