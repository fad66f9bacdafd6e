package tools

import (
	"cmp"
	"context"
	"slices"

	"github.com/google/uuid"

	"arbe.0sk.ar/runner/host/dispatch"
	"arbe.0sk.ar/runner/host/rows"
)

// mostInstructions bounds the instructions of a bot that a bot makes, in bytes.
const mostInstructions = 8 << 10

// nameCreateAgent is the name of the one tool that no bot can give another one.
const nameCreateAgent = "create_agent"

// createAgent makes a bot of the house.
func (h *Host) createAgent() dispatch.Tool {
	t := shown(nameCreateAgent, "Make a new bot of this house. It answers where it is mentioned. Without model it has "+
		"yours; tools are some of yours, without them it has all that it may have.", `{
		"name": {"type": "string", "minLength": 1, "maxLength": 60, "pattern": "^[^@\\p{Cc}]+$"},
		"instructions": {"type": "string", "maxLength": 8192},
		"model": {"type": "string", "maxLength": 200},
		"tools": {"type": "array", "maxItems": 10, "items": {"type": "string"}}}`, "name", "instructions")
	return dispatch.Tool{Tool: t, Asked: true, Acts: true, Run: taking(t, h.makeAgent)}
}

type agent struct {
	Name, Instructions, Model string
	Tools                     []string
}

func (h *Host) makeAgent(ctx context.Context, c dispatch.ToolCall, a agent) (dispatch.ToolResult, error) {
	if len(a.Instructions) > mostInstructions {
		return failed("instructions: want at most %d bytes", mostInstructions)
	}
	maker, err := self(c)
	if err != nil {
		return ended(err)
	}
	tools, err := h.toolsOf(maker, a.Tools)
	if err != nil {
		return ended(err)
	}
	r, err := h.rows(ctx, c)
	if err != nil {
		return ended(err)
	}
	made, err := r.MakeBot(ctx, rows.NewBot{
		ID: uuid.NewSHA1(bots, []byte(c.Key)).String(), Name: a.Name, House: c.Room.HouseID, Tools: tools,
		Config: rows.BotConfig{Model: cmp.Or(a.Model, maker.Provider+"/"+maker.Model), Instructions: a.Instructions},
	})
	if err != nil {
		return ended(err)
	}
	return result("Made the bot %s, id %s. Mention it as @%q, and it answers.", made.Name, made.ID, made.Name)
}

// bots is the namespace of the ids of bots that calls make.
var bots = uuid.NewSHA1(uuid.NameSpaceURL, []byte("arbe:create_agent"))

// toolsOf returns the house's settings of the tools of a bot that another one makes: some of the maker's, or all that
// it may have for nil. A tool that bots have unasked, and this one too, is not in it.
func (h *Host) toolsOf(maker dispatch.Bot, some []string) (map[string]bool, error) {
	tools := map[string]bool{}
	for name, on := range maker.Tools {
		if !on {
			tools[name] = false
		}
	}
	for _, t := range h.All() {
		on, set := maker.Tools[t.Name]
		has := (on || !set && !t.Asked) && t.Name != nameCreateAgent
		wants := has
		if some != nil {
			wants = slices.Contains(some, t.Name)
		}
		switch {
		case wants && !has:
			return nil, errOther("you can't give the tool " + t.Name)
		case !wants:
			tools[t.Name] = false
		case t.Asked:
			tools[t.Name] = true
		}
	}
	for _, name := range some {
		if !slices.ContainsFunc(h.All(), func(t dispatch.Tool) bool { return t.Name == name }) {
			return nil, errOther("there is no tool " + name)
		}
	}
	return tools, nil
}
