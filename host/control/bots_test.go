package control_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"arbe.0sk.ar/runner/host/control"
	"arbe.0sk.ar/runner/host/rows"
)

// Who writes which settings, by SQL. A bot writes none of its own, whatever it may do else.
func TestSettingsSecurity(t *testing.T) {
	db, url := open(t, control.Config{})
	own, other := newHouse(t, db), newHouse(t, db)
	c, ctx, host := connect(t, url), t.Context(), db.Host()
	must(host.AddMember(ctx, other.id, own.bot, rows.RoleMember))(t)
	must(host.CreateThread(ctx, rows.NewThread{House: own.id}))(t)
	left := uuid.NewString()
	check(t, host.CreateHuman(ctx, left, "Left"))
	must(host.AddMember(ctx, own.id, left, rows.RoleOwner))(t)
	check(t, host.ArchiveMember(ctx, own.id, left))
	people := map[string]string{
		"owner": own.owner, "member": own.member, "bot": own.bot, "owner who has left": left,
		"owner of another house of the bot": other.owner, "other bot": other.bot, "stranger": uuid.NewString(),
		"nobody": "",
	}
	for _, tt := range []struct{ sql, may string }{
		{"select where configure_bot('" + own.bot + `', '{"model": "a/m"}')`, "owner"},
		{"update members set config = '{}' where house_id = $1", "owner"},
		{"update houses set config = '{}' where id = $1", "owner"},
		{"update houses set dispatch_since = now() where id = $1", "owner"},
		{"update threads set config = '{}' where house_id = $1", "owner, member, bot"},
		{"update agents set config = '{}' where id = '" + own.bot + "'", ""},
		{"update agents set owner_house_id = null where id = '" + own.bot + "'", ""},
	} {
		for who, agent := range people {
			args := []any{}
			if strings.Contains(tt.sql, "$1") {
				args = append(args, own.id)
			}
			reached, err := try(t, c, agent, tt.sql, args...)
			if may := slices.Contains(strings.Split(tt.may, ", "), who); err != nil || reached != may {
				t.Errorf("%s by %s: %t, %v", tt.sql, who, reached, err)
			}
		}
	}
	// A bot that is an owner, which SQL allows, changes others, and not itself.
	_ = must(c.Exec(ctx, `update members set role = 'owner' where house_id = $1 and agent_id = $2`, own.id, own.bot))(t)
	second := must(host.CreateBot(ctx, rows.NewBot{Name: "Second", Runtime: "pi", House: own.id}))(t).ID
	for id, may := range map[string]bool{own.bot: false, second: true, own.owner: false, other.bot: false} {
		const change = `select where configure_bot($1, '{"model": "a/m"}')`
		if reached, err := try(t, c, own.bot, change, id); err != nil || reached != may {
			t.Errorf("configure %s: %t, %v", id, reached, err)
		}
	}
}

// An agent changes its own name, owners of its house change its settings, and the host changes all of it.
func TestChangeAgent(t *testing.T) {
	db, _ := open(t, control.Config{})
	h, ctx, host := newHouse(t, db), t.Context(), db.Host()
	owner := db.As(h.owner)
	check(t, owner.ChangeAgent(ctx, h.bot, rows.AgentChange{Model: new("a/m"), Instructions: new("Be brief.")}))
	check(t, db.As(h.bot).ChangeAgent(ctx, h.bot, rows.AgentChange{Name: new("Piet")}))
	if a := must(host.Agent(ctx, h.bot))(t); a.Name != "Piet" || a.Model != "a/m" || a.House != h.id {
		t.Errorf("%+v", a)
	}
	check(t, host.ChangeAgent(ctx, h.bot, rows.AgentChange{Model: new("b/n")}))
	want := rows.BotConfig{Model: "b/n", Instructions: "Be brief."}
	if got := must(owner.BotConfig(ctx, h.bot))(t); got != want {
		t.Errorf("%+v", got)
	}
	check(t, owner.ChangeAgent(ctx, h.bot, rows.AgentChange{Model: new(""), Instructions: new("")}))
	check(t, host.ChangeAgent(ctx, h.bot, rows.AgentChange{House: new("")}))
	if a := must(host.Agent(ctx, h.bot))(t); a.Model != "" || a.House != "" {
		t.Errorf("%+v", a)
	}
	if got := must(host.BotConfig(ctx, h.bot))(t); got != (rows.BotConfig{}) {
		t.Errorf("%+v", got)
	}
	model := rows.AgentChange{Model: new("a/m")}
	for _, tt := range []struct {
		scope  control.Scope
		id     string
		change rows.AgentChange
		want   error
	}{
		{owner, h.bot, model, rows.ErrAbsent}, // no house's any more
		{db.As(h.bot), h.bot, model, rows.ErrAbsent},
		{owner, h.bot, rows.AgentChange{Name: new("x")}, rows.ErrAbsent},
		{owner, h.bot, rows.AgentChange{House: &h.id}, rows.ErrForbidden},
		{host, h.bot, rows.AgentChange{House: new("none")}, rows.ErrReference},
		{host, h.member, rows.AgentChange{House: &h.id}, rows.ErrInvalid},
		{host, h.member, model, rows.ErrAbsent},
		{host, uuid.NewString(), rows.AgentChange{Name: new("x")}, rows.ErrAbsent},
		{host, h.bot, rows.AgentChange{Model: new("m")}, rows.ErrInvalid},
		{host, h.bot, rows.AgentChange{Instructions: new(strings.Repeat("x", 64<<10))}, rows.ErrInvalid},
	} {
		is(t, tt.scope.ChangeAgent(ctx, tt.id, tt.change), tt.want)
	}
	// What is too large is found by the whole of it.
	check(t, host.ChangeAgent(ctx, h.bot, rows.AgentChange{Instructions: new(strings.Repeat("x", 64<<10-30))}))
	err := host.ChangeAgent(ctx, h.bot, rows.AgentChange{Model: new("a/" + strings.Repeat("m", 100))})
	if want := "the bot's settings: a JSON object of at most 64 KiB: not valid"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// A bot is made with its settings, in its house or in none.
func TestCreateBot(t *testing.T) {
	db, _ := open(t, control.Config{})
	h, ctx, host := newHouse(t, db), t.Context(), db.Host()
	config := rows.BotConfig{Model: "a/m", Instructions: "Be brief."}
	a := must(host.CreateBot(ctx, rows.NewBot{Name: "Alma", Runtime: "codex", House: h.id, Config: config}))(t)
	if a.Name != "Alma" || a.Runtime != "codex" || a.Model != "a/m" || a.House != h.id {
		t.Errorf("%+v", a)
	}
	if got := must(host.BotConfig(ctx, a.ID))(t); got != config {
		t.Errorf("%+v", got)
	}
	members := must(host.Members(ctx, h.id))(t)
	if last := members[len(members)-1]; last.Agent != a.ID || last.Role != rows.RoleMember {
		t.Errorf("%+v", members)
	}
	bad := rows.NewBot{Name: "Bad", Runtime: "pi", Config: rows.BotConfig{Model: "m"}}
	_, err := host.CreateBot(ctx, bad)
	is(t, err, rows.ErrInvalid)
	_, err = host.CreateBot(ctx, rows.NewBot{Name: "Bad", Runtime: "pi", House: "none"})
	is(t, err, rows.ErrReference)
	_, err = db.As(h.owner).CreateBot(ctx, rows.NewBot{Name: "Bad", Runtime: "pi"})
	is(t, err, rows.ErrForbidden)
	// A house that is deleted leaves its bots without one.
	check(t, host.DeleteHouse(ctx, h.id))
	if a = must(host.Agent(ctx, a.ID))(t); a.House != "" || a.Model != "a/m" {
		t.Errorf("%+v", a)
	}
}

// A bot makes bots of its house, which may no more than it: where owners allow it, and 20 at the most.
func TestMakeBot(t *testing.T) {
	db, url := open(t, control.Config{})
	h, other, ctx, host := newHouse(t, db), newHouse(t, db), t.Context(), db.Host()
	must(host.AddMember(ctx, other.id, h.bot, rows.RoleMember))(t)
	owner, bot := db.As(h.owner), db.As(h.bot)
	n := func(name string, tools map[string]bool) rows.NewBot {
		return rows.NewBot{
			ID: uuid.NewString(), Name: name, House: h.id, Tools: tools,
			Config: rows.BotConfig{Model: "a/m", Instructions: "Be brief."},
		}
	}
	allowed := rows.MemberChange{Tools: map[string]bool{"create_agent": true, "post_to_thread": true, "hello_world": false}}
	none := map[string]bool{"hello_world": false}
	_, err := bot.MakeBot(ctx, n("Alma", nil))
	is(t, err, rows.ErrForbidden)
	check(t, owner.ChangeMember(ctx, h.id, h.bot, allowed))
	_, err = bot.MakeBot(ctx, n("Alma", none))
	is(t, err, rows.ErrForbidden) // the house's own switch is off
	check(t, owner.ChangeHouse(ctx, h.id, rows.HouseChange{Agents: new(true)}))

	first := n("Alma", map[string]bool{"hello_world": false, "post_to_thread": true})
	for range 2 {
		a := must(bot.MakeBot(ctx, first))(t)
		if a.ID != first.ID || a.Name != "Alma" || a.Runtime != "pi" || a.House != h.id || a.Model != "a/m" {
			t.Errorf("%+v", a)
		}
	}
	th := must(bot.CreateThread(ctx, rows.NewThread{House: h.id}))(t)
	want := rows.MemberConfig{Reacting: rows.Reacting{TriggerMode: rows.ModeMention}, Tools: first.Tools}
	if d := cmp.Diff(want, must(db.Room(ctx, th.ID))(t).Bots[1].Member); d != "" {
		t.Error(d)
	}
	for name, tt := range map[string]struct {
		by rows.NewBot
		as string
	}{
		"a human":               {n("X", none), h.owner},
		"a bot of elsewhere":    {n("X", none), other.bot},
		"a bot without it":      {n("X", none), first.ID},
		"nobody":                {n("X", none), uuid.NewString()},
		"its own kind":          {n("X", map[string]bool{"hello_world": false, "create_agent": true}), h.bot},
		"a tool it has not":     {n("X", map[string]bool{"hello_world": false, "run_command": true}), h.bot},
		"a tool taken from it":  {n("X", nil), h.bot},
		"a name that is taken":  {n("oWNER", none), h.bot},
		"the id of another bot": {rows.NewBot{ID: other.bot, Name: "X", House: h.id, Tools: none}, h.bot},
		"another house":         {rows.NewBot{ID: uuid.NewString(), Name: "X", House: other.id, Tools: none}, h.bot},
		"many words": {rows.NewBot{
			ID: uuid.NewString(), Name: "X", House: h.id, Tools: none,
			Config: rows.BotConfig{Instructions: strings.Repeat("x", 8<<10+1)},
		}, h.bot},
	} {
		want := rows.ErrForbidden
		if name == "the id of another bot" {
			want = rows.ErrTaken
		}
		if _, err := db.As(tt.as).MakeBot(ctx, tt.by); !errors.Is(err, want) {
			t.Errorf("%s: %v", name, err)
		}
	}

	var together errgroup.Group
	var made atomic.Int64
	for i := range 30 {
		together.Go(func() error {
			_, err := bot.MakeBot(ctx, n(fmt.Sprint("Bot ", i), none))
			if err == nil {
				made.Add(1)
			} else if !errors.Is(err, rows.ErrForbidden) {
				return err
			}
			return nil
		})
	}
	check(t, together.Wait())
	if made.Load() != 19 {
		t.Errorf("%d bots beside the first one", made.Load())
	}
	check(t, host.ArchiveAgent(ctx, first.ID))
	must(bot.MakeBot(ctx, n("Ada", none)))(t)
	var elsewhere int
	check(t, connect(t, url).QueryRow(ctx, `select count(*) from agents where made_by = $1 and owner_house_id <> $2`,
		h.bot, h.id).Scan(&elsewhere))
	if elsewhere != 0 {
		t.Errorf("%d bots of other houses", elsewhere)
	}
}

// Owners change when a bot reacts in their house.
func TestChangeMember(t *testing.T) {
	db, _ := open(t, control.Config{})
	h, ctx := newHouse(t, db), t.Context()
	owner := db.As(h.owner)
	th := must(owner.CreateThread(ctx, rows.NewThread{House: h.id}))(t)
	check(t, owner.ChangeMember(ctx, h.id, h.bot, rows.MemberChange{Mode: new(rows.ModeAmbient)}))
	check(t, owner.ChangeMember(ctx, h.id, h.bot, rows.MemberChange{
		AmbientDelay: new(2 * time.Second), Cooldown: new(time.Duration(0)),
	}))
	want := rows.MemberConfig{Reacting: rows.Reacting{
		TriggerMode: rows.ModeAmbient, AmbientDelayMs: new(int64(2000)), CooldownMs: new(int64(0)),
	}}
	if d := cmp.Diff(want, must(db.Room(ctx, th.ID))(t).Bots[0].Member); d != "" {
		t.Error(d)
	}
	modes := map[string]string{}
	for _, m := range must(owner.Members(ctx, h.id))(t) {
		modes[m.Agent] = m.Mode
	}
	if d := cmp.Diff(map[string]string{h.owner: "", h.member: "", h.bot: "ambient"}, modes); d != "" {
		t.Error(d)
	}
	off := rows.MemberChange{Mode: new(rows.ModeOff)}
	for _, tt := range []struct {
		by, of string
		change rows.MemberChange
		want   error
	}{
		{h.member, h.bot, off, rows.ErrAbsent},
		{h.bot, h.bot, off, rows.ErrAbsent},
		{h.owner, h.member, off, rows.ErrInvalid},
		{h.owner, uuid.NewString(), off, rows.ErrReference},
		{h.owner, h.bot, rows.MemberChange{Mode: new("ever")}, rows.ErrInvalid},
		{h.owner, h.bot, rows.MemberChange{Cooldown: new(-time.Second)}, rows.ErrInvalid},
		{h.owner, h.bot, rows.MemberChange{AmbientDelay: new(2 * time.Hour)}, rows.ErrInvalid},
	} {
		is(t, db.As(tt.by).ChangeMember(ctx, h.id, tt.of, tt.change), tt.want)
	}
}

// Owners change how the bots of their house answer.
func TestChangeHouse(t *testing.T) {
	db, _ := open(t, control.Config{})
	h, ctx := newHouse(t, db), t.Context()
	owner := db.As(h.owner)
	made := must(db.Host().House(ctx, h.id))(t)
	if made.DispatchSince == nil || !made.DispatchSince.Equal(made.CreatedAt) {
		t.Errorf("a new house answers since %v", made.DispatchSince)
	}
	check(t, owner.ChangeHouse(ctx, h.id, rows.HouseChange{
		GateModel: new("a/g"), Keys: map[string]string{"a": "A_KEY", "b": "B_KEY"},
	}))
	check(t, owner.ChangeHouse(ctx, h.id, rows.HouseChange{Keys: map[string]string{"b": "", "c": "C_KEY"}}))
	check(t, owner.ChangeHouse(ctx, h.id, rows.HouseChange{Dispatch: new(true)}))
	want := rows.HouseConfig{Dispatch: rows.HouseDispatch{
		GateModel: "a/g", Models: map[string]rows.ModelAccess{"a": {Secret: "A_KEY"}, "c": {Secret: "C_KEY"}},
	}}
	if d := cmp.Diff(want, must(db.As(h.member).HouseConfig(ctx, h.id))(t)); d != "" {
		t.Error(d)
	}
	if v := must(db.Host().House(ctx, h.id))(t); !v.DispatchSince.Equal(*made.DispatchSince) {
		t.Errorf("what answers already answers since %v", v.DispatchSince)
	}
	check(t, owner.ChangeHouse(ctx, h.id, rows.HouseChange{Dispatch: new(false), GateModel: new("")}))
	if v := must(db.Host().House(ctx, h.id))(t); v.DispatchSince != nil {
		t.Errorf("it answers since %v", v.DispatchSince)
	}
	check(t, owner.ChangeHouse(ctx, h.id, rows.HouseChange{Dispatch: new(true)}))
	if v := must(db.Host().House(ctx, h.id))(t); v.DispatchSince == nil || !v.DispatchSince.After(v.CreatedAt) {
		t.Errorf("it answers since %v", v.DispatchSince)
	}
	for _, tt := range []struct {
		by     string
		change rows.HouseChange
		want   error
	}{
		{h.member, rows.HouseChange{Dispatch: new(false)}, rows.ErrAbsent},
		{h.bot, rows.HouseChange{GateModel: new("a/g")}, rows.ErrAbsent},
		{h.owner, rows.HouseChange{GateModel: new("g")}, rows.ErrInvalid},
		{h.owner, rows.HouseChange{Keys: map[string]string{"a": "sk-ant-api03"}}, rows.ErrInvalid},
		{h.owner, rows.HouseChange{Keys: map[string]string{"A": "KEY"}}, rows.ErrInvalid},
	} {
		is(t, db.As(tt.by).ChangeHouse(ctx, h.id, tt.change), tt.want)
	}
}

// A thread's config is checked where it is about bots, and free beside that.
func TestThreadConfig(t *testing.T) {
	db, _ := open(t, control.Config{})
	h, ctx := newHouse(t, db), t.Context()
	member := db.As(h.member)
	const wrong = `{"dispatch":{"perAgent":{"Piet":{"triggerMode":"always"}}}}`
	const free = `{"mine":{"n":12345678901234567890},"dispatch":{"off":true}}`
	_, err := member.CreateThread(ctx, rows.NewThread{House: h.id, Config: json.RawMessage(wrong)})
	is(t, err, rows.ErrInvalid)
	if !strings.HasSuffix(err.Error(), "dispatch.perAgent.Piet: want the id of an agent, a UUID in small letters") {
		t.Errorf("got %v", err)
	}
	v := must(member.CreateThread(ctx, rows.NewThread{
		House: h.id, Config: json.RawMessage(free), ParentAgent: strings.ToUpper(h.bot),
	}))(t)
	const begin = `{"mine": {"n": 12345678901234567890}, "dispatch": {"off": true, "perAgent": {"`
	if want := begin + h.bot + `": {"triggerMode": "always"}}}}`; string(v.Config) != want {
		t.Errorf("got  %s\nwant %s", v.Config, want)
	}
	_, err = member.ChangeThread(ctx, v.ID, rows.ThreadChange{Config: json.RawMessage(wrong)})
	is(t, err, rows.ErrInvalid)
	must(member.ChangeThread(ctx, v.ID, rows.ThreadChange{Config: json.RawMessage(free)}))(t)
}

// What names no bot takes the one that joined the house first: a launch and a task alike.
func TestDefaultBot(t *testing.T) {
	db, _ := open(t, control.Config{})
	h, ctx, host := newHouse(t, db), t.Context(), db.Host()
	older := must(host.CreateBot(ctx, rows.NewBot{Name: "Older", Runtime: "codex"}))(t).ID
	first := must(host.CreateBot(ctx, rows.NewBot{Name: "First", Runtime: "codex", House: h.id}))(t).ID
	must(host.AddMember(ctx, h.id, older, rows.RoleMember))(t)
	all := must(host.Drivers(ctx, h.id, "codex"))(t)
	if len(all) != 2 || all[0].ID != first || all[1].ID != older {
		t.Errorf("bots %+v", all)
	}
	parent := must(host.CreateThread(ctx, rows.NewThread{House: h.id, Environment: h.env}))(t)
	task, _, err := host.Delegate(ctx, rows.Task{Parent: parent.ID, Prompt: "x", Harness: "codex"})
	check(t, err)
	if task.Agent != first {
		t.Errorf("the task's bot is %s, not %s", task.Agent, first)
	}
}

// A room has the thread, its house, and the members in use with their settings.
func TestRoom(t *testing.T) {
	db, url := open(t, control.Config{})
	h, ctx, host, c := newHouse(t, db), t.Context(), db.Host(), connect(t, url)
	gone := must(host.CreateBot(ctx, rows.NewBot{Name: "Gone", Runtime: "pi"}))(t).ID
	must(host.AddMember(ctx, h.id, gone, rows.RoleMember))(t)
	check(t, host.ArchiveAgent(ctx, gone))
	left := must(host.CreateBot(ctx, rows.NewBot{Name: "Left", Runtime: "pi"}))(t).ID
	must(host.AddMember(ctx, h.id, left, rows.RoleMember))(t)
	check(t, host.ArchiveMember(ctx, h.id, left))
	young := must(host.CreateBot(ctx, rows.NewBot{Name: "Young", Runtime: "codex"}))(t).ID
	must(host.AddMember(ctx, h.id, young, rows.RoleMember))(t)
	const perBot = `{"mine": 1, "dispatch": {"perAgent": {"00000000-0000-4000-8000-000000000001": {"triggerMode": "off"}}}}`
	th := must(host.CreateThread(ctx, rows.NewThread{
		House: h.id, Name: "Planning", ParentAgent: h.bot, Config: json.RawMessage(perBot),
	}))(t)
	for sql, id := range map[string]string{
		`update agents set config = '{"model": "anthropic/m", "instructions": "Be brief."}' where id = $1`: h.bot,
		`update members set config = '{"triggerMode": "ambient", "cooldownMs": 5}' where agent_id = $1`:    h.bot,
		`update houses set config = '{"dispatch": {"gateModel": "a/g", "models": {"a": {"secret": "K"}}}}'
			where id = $1`: h.id,
	} {
		_ = must(c.Exec(ctx, sql, id))(t)
	}
	r := must(db.Room(ctx, th.ID))(t)
	type short struct {
		Thread, House, Mode string
		Config              rows.HouseConfig
		Bots, Humans        []string
		Bot                 rows.BotConfig
		Member              rows.MemberConfig
	}
	got := short{
		Thread: r.Thread.Name, House: r.House.Name, Mode: r.Dispatch.PerAgent[h.bot].TriggerMode, Config: r.HouseConfig,
		Bot: r.Bots[0].Config, Member: r.Bots[0].Member,
	}
	for _, b := range r.Bots {
		got.Bots = append(got.Bots, b.ID+" "+b.Name+" "+b.Runtime)
	}
	for _, a := range r.Humans {
		got.Humans = append(got.Humans, a.ID)
	}
	want := short{
		Thread: "Planning", House: "a house", Mode: "always",
		Config: rows.HouseConfig{Dispatch: rows.HouseDispatch{
			GateModel: "a/g", Models: map[string]rows.ModelAccess{"a": {Secret: "K"}},
		}},
		Bots: []string{h.bot + " Bot pi", young + " Young codex"}, Humans: []string{h.owner, h.member},
		Bot:    rows.BotConfig{Model: "anthropic/m", Instructions: "Be brief."},
		Member: rows.MemberConfig{Reacting: rows.Reacting{TriggerMode: "ambient", CooldownMs: new(int64(5))}},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if !r.Since.Equal(th.CreatedAt) || r.Bots[0].JoinedAt.IsZero() || !r.Bots[0].JoinedAt.Before(r.Bots[1].JoinedAt) {
		t.Errorf("since %v of a thread of %v, joined %v", r.Since, th.CreatedAt, r.Bots[0].JoinedAt)
	}
	_, err := db.Room(ctx, "none")
	is(t, err, rows.ErrAbsent)
}

// No chat is answered that is older than its thread, or than the house's bots answer.
func TestRoomSince(t *testing.T) {
	db, url := open(t, control.Config{})
	h, ctx, c := newHouse(t, db), t.Context(), connect(t, url)
	th := must(db.Host().CreateThread(ctx, rows.NewThread{House: h.id}))(t)
	later := th.CreatedAt.Add(time.Hour)
	for _, tt := range []struct {
		since *time.Time
		want  time.Time
	}{{nil, time.Time{}}, {&later, later}, {new(th.CreatedAt.Add(-time.Hour)), th.CreatedAt}} {
		_ = must(c.Exec(ctx, `update houses set dispatch_since = $2 where id = $1`, h.id, tt.since))(t)
		if got := must(db.Room(ctx, th.ID))(t).Since; !got.Equal(tt.want) {
			t.Errorf("since %v, want %v", got, tt.want)
		}
	}
}

// By settings that can't be read nobody answers.
func TestRoomUnreadable(t *testing.T) {
	db, url := open(t, control.Config{})
	h, ctx, c := newHouse(t, db), t.Context(), connect(t, url)
	th := must(db.Host().CreateThread(ctx, rows.NewThread{House: h.id, ParentAgent: h.bot}))(t)
	const model = `update agents set config = '{"model": "a/m"}' where id = $1`
	_ = must(c.Exec(ctx, model, h.bot))(t)
	if r := must(db.Room(ctx, th.ID))(t); r.Since.IsZero() || r.Dispatch.Off || r.Bots[0].Config.Model != "a/m" {
		t.Errorf("%+v", r)
	}
	for _, tt := range []struct {
		sql, id string
		quiet   func(rows.Room) bool
	}{
		{
			`update agents set config = '{"model": 7}' where id = $1`, h.bot,
			func(r rows.Room) bool { return r.Bots[0].Config.Model == "" },
		},
		{model, h.bot, func(r rows.Room) bool { return r.Bots[0].Config.Model != "" }},
		{
			`update members set config = '{"triggerMode": "ever"}' where agent_id = $1`, h.bot,
			func(r rows.Room) bool { return r.Bots[0].Config.Model == "" && r.Bots[0].Member.TriggerMode == "" },
		},
		{
			`update threads set config = '{"dispatch": {"of": true}}' where id = $1`, th.ID,
			func(r rows.Room) bool { return r.Dispatch.Off && !r.Since.IsZero() },
		},
		{
			`update houses set config = '{"dispatch": []}' where id = $1`, h.id,
			func(r rows.Room) bool { return r.Since.IsZero() },
		},
	} {
		_ = must(c.Exec(ctx, tt.sql, tt.id))(t)
		if r := must(db.Room(ctx, th.ID))(t); !tt.quiet(r) {
			t.Errorf("%s: %+v", tt.sql, r)
		}
	}
}
