package control_test

import (
	"encoding/json"
	"slices"
	"testing"

	"arbe.0sk.ar/runner/host/control"
	"arbe.0sk.ar/runner/host/rows"
)

// Lists have no configs: a thousand of them may be large.
func TestListsWithoutConfigs(t *testing.T) {
	db, _ := open(t, control.Config{})
	ctx, h := t.Context(), newHouse(t, db)
	s := db.As(h.member)
	config := json.RawMessage(`{"image": "x"}`)
	e := must(s.CreateEnvironment(ctx, h.id, rows.Recipe{Name: "large", Config: config}))(t)
	thread := must(s.CreateThread(ctx, rows.NewThread{House: h.id, Config: config}))(t)
	for _, e := range must(s.Environments(ctx, h.id))(t) {
		if e.Config != nil {
			t.Errorf("the list has the config %s", e.Config)
		}
	}
	for _, v := range must(s.Threads(ctx, rows.Query{House: h.id}))(t) {
		if v.Config != nil {
			t.Errorf("the list has the config %s", v.Config)
		}
	}
	if got := must(s.Environment(ctx, e.ID))(t).Config; string(got) != string(config) {
		t.Errorf("the environment's config is %s", got)
	}
	if got := must(s.Thread(ctx, thread.ID))(t).Config; string(got) != string(config) {
		t.Errorf("the thread's config is %s", got)
	}
}

// A change of a thread adds and removes tags in one transaction with the rest of it.
func TestChangeTags(t *testing.T) {
	db, _ := open(t, control.Config{})
	ctx, h := t.Context(), newHouse(t, db)
	s, yes := db.As(h.member), true
	n := rows.NewThread{House: h.id, Agent: h.bot, Tags: []string{"b", "a"}}
	id := must(s.CreateThread(ctx, n))(t).ID
	for _, tt := range []struct {
		change rows.ThreadChange
		want   []string
	}{
		{rows.ThreadChange{Pinned: &yes}, []string{"b", "a"}},
		{rows.ThreadChange{AddTags: []string{"c", "a"}}, []string{"b", "a", "c"}},
		{rows.ThreadChange{AddTags: []string{"d", "b"}, RemoveTags: []string{"b", "x"}}, []string{"a", "c", "d"}},
		{rows.ThreadChange{Tags: &[]string{"e"}, AddTags: []string{"f"}}, []string{"e", "f"}},
		{rows.ThreadChange{RemoveTags: []string{"e", "f"}}, []string{}},
	} {
		if got := must(s.ChangeThread(ctx, id, tt.change))(t); !slices.Equal(got.Tags, tt.want) {
			t.Errorf("%+v: got %q, want %q", tt.change, got.Tags, tt.want)
		}
	}
	_, err := s.ChangeThread(ctx, id, rows.ThreadChange{AddTags: []string{"g"}, Closed: &yes}) // it is no chat
	is(t, err, rows.ErrInvalid)
	if got := must(s.Thread(ctx, id))(t); len(got.Tags) > 0 {
		t.Errorf("a change that was refused left the tags %q", got.Tags)
	}
}

// The counts of a house are those of its rows, however many they are.
func TestHouseCounts(t *testing.T) {
	db, url := open(t, control.Config{})
	ctx, h := t.Context(), newHouse(t, db)
	for _, sql := range []string{
		`insert into environments (house_id, name) select $1, n::text from generate_series(1, 1100) n`,
		`insert into secrets (house_id, name) select $1, 'S' || n from generate_series(1, 1200) n`,
		`insert into sandboxes (house_id, environment_id, provider)
			select $1, (select id from environments where house_id = $1 limit 1), 'local' from generate_series(1, 1300)`,
		`insert into sandboxes (house_id, environment_id, provider, status, destroyed_at)
			select $1, (select id from environments where house_id = $1 limit 1), 'local', 'dead', now()`,
	} {
		_ = must(connect(t, url).Exec(ctx, sql, h.id))(t)
	}
	check(t, db.Host().ArchiveMember(ctx, h.id, h.member))
	got := must(db.Host().HouseCounts(ctx, h.id))(t)
	if want := (rows.HouseCounts{Members: 2, Environments: 1101, Secrets: 1200, Sandboxes: 1300}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
