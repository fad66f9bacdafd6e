package control_test

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"arbe.0sk.ar/runner/host/control"
	"arbe.0sk.ar/runner/host/rows"
)

// Ids are sixteen letters of base32 and differ.
func TestShortIDs(t *testing.T) {
	_, url := open(t, control.Config{})
	rows := must(connect(t, url).Query(t.Context(), `select generate_short_id() from generate_series(1, 2000)`))(t)
	seen, letters := map[string]bool{}, map[rune]bool{}
	for _, id := range must(pgx.CollectRows(rows, pgx.RowTo[string]))(t) {
		seen[id] = true
		for _, r := range id {
			letters[r] = true
		}
		if len(id) != 16 || strings.Trim(id, "abcdefghijklmnopqrstuvwxyz234567") != "" {
			t.Errorf("got %q", id)
		}
	}
	if len(seen) != 2000 || len(letters) != 32 {
		t.Errorf("%d ids, %d letters", len(seen), len(letters))
	}
}

// A house of its owner: what is made is there, as the owner and its members see it, and goes with the house.
func TestHouse(t *testing.T) {
	db, _ := open(t, control.Config{})
	ctx, h := t.Context(), newHouse(t, db)
	owner, member := db.As(h.owner), db.As(h.member)
	check(t, owner.RenameHouse(ctx, h.id, "renamed"))
	check(t, owner.SetDefaultEnvironment(ctx, h.id, h.env))
	got := must(member.House(ctx, h.id))(t)
	if got.Name != "renamed" || got.DefaultEnvironment != h.env || got.CreatedAt.IsZero() {
		t.Errorf("got %+v", got)
	}
	is(t, member.RenameHouse(ctx, h.id, "x"), rows.ErrAbsent)
	is(t, member.DeleteHouse(ctx, h.id), rows.ErrAbsent)
	_, err := db.As(uuid.NewString()).House(ctx, h.id)
	is(t, err, rows.ErrAbsent)
	th := must(member.CreateThread(ctx, rows.NewThread{House: h.id, Agent: h.bot}))(t)
	box := must(resolve(ctx, db, th.ID, ""))(t).Row.ID
	check(t, owner.DeleteEnvironment(ctx, must(member.CreateEnvironment(ctx, h.id, rows.Recipe{Name: "x"}))(t).ID))
	is(t, owner.DeleteHouse(ctx, h.id), rows.ErrInUse)
	check(t, condemn(ctx, boxes(db), box))
	is(t, owner.DeleteHouse(ctx, h.id), rows.ErrInUse) // its machine may exist
	check(t, boxes(db).Gone(ctx, box))
	check(t, owner.DeleteHouse(ctx, h.id))
	_, err = db.Host().Thread(ctx, th.ID)
	is(t, err, rows.ErrAbsent)
	for _, id := range []string{h.owner, h.member, h.bot} {
		must(db.Host().Agent(ctx, id))(t)
	}
}

// A deleted environment is no house's default any more.
func TestDefaultDeleted(t *testing.T) {
	db, _ := open(t, control.Config{})
	ctx, h := t.Context(), newHouse(t, db)
	check(t, db.Host().SetDefaultEnvironment(ctx, h.id, h.env))
	check(t, db.As(h.member).DeleteEnvironment(ctx, h.env))
	if got := must(db.Host().House(ctx, h.id))(t); got.DefaultEnvironment != "" {
		t.Errorf("got %+v", got)
	}
}

// Members come, get roles, leave and come back; a house keeps an owner, also when two leave at once.
func TestMembers(t *testing.T) {
	db, _ := open(t, control.Config{})
	ctx, h := t.Context(), newHouse(t, db)
	owner := db.As(h.owner)
	is(t, owner.RemoveMember(ctx, h.id, h.owner), rows.ErrLastOwner)
	is(t, owner.ArchiveMember(ctx, h.id, h.owner), rows.ErrLastOwner)
	is(t, owner.SetRole(ctx, h.id, h.owner, rows.RoleMember), rows.ErrLastOwner)
	is(t, owner.SetRole(ctx, h.id, h.bot, rows.RoleOwner), rows.ErrInvalid)
	is(t, owner.SetRole(ctx, h.id, uuid.NewString(), rows.RoleMember), rows.ErrAbsent)
	is(t, db.As(h.member).RemoveMember(ctx, h.id, h.owner), rows.ErrAbsent)
	_, err := owner.AddMember(ctx, h.id, h.member, rows.RoleMember)
	is(t, err, rows.ErrTaken)
	_, err = owner.AddMember(ctx, h.id, uuid.NewString(), rows.RoleMember)
	is(t, err, rows.ErrReference)
	_, err = db.As(h.member).AddMember(ctx, h.id, uuid.NewString(), rows.RoleMember)
	is(t, err, rows.ErrForbidden)

	check(t, owner.ArchiveMember(ctx, h.id, h.member))
	if all := must(db.As(h.member).Houses(ctx))(t); len(all) != 0 {
		t.Errorf("one that has left sees %v", all)
	}
	back := must(owner.AddMember(ctx, h.id, h.member, rows.RoleOwner))(t)
	if back.ArchivedAt != nil || back.Role != rows.RoleOwner {
		t.Errorf("got %+v", back)
	}
	var both sync.WaitGroup
	left := make([]error, 2)
	for i, agent := range []string{h.owner, h.member} {
		both.Go(func() { left[i] = db.As(agent).RemoveMember(ctx, h.id, agent) })
	}
	both.Wait()
	if (left[0] == nil) == (left[1] == nil) {
		t.Errorf("both owners left, or none: %v", left)
	}
	owners := 0
	for _, m := range must(db.Host().Members(ctx, h.id))(t) {
		if m.Role == rows.RoleOwner {
			owners++
		}
	}
	if owners != 1 {
		t.Errorf("%d owners", owners)
	}
}

// What is in use is not deleted but archived, and archived it gets no new use.
func TestArchive(t *testing.T) {
	db, _ := open(t, control.Config{})
	ctx, h := t.Context(), newHouse(t, db)
	host := db.Host()
	th := must(host.CreateThread(ctx, rows.NewThread{House: h.id, Environment: h.env, Agent: h.bot}))(t)
	for name, tt := range map[string]struct{ remove, archive func() error }{
		"environment": {
			func() error { return host.DeleteEnvironment(ctx, h.env) },
			func() error { return host.ArchiveEnvironment(ctx, h.env) },
		},
		"membership": {
			func() error { return host.RemoveMember(ctx, h.id, h.bot) },
			func() error { return host.ArchiveMember(ctx, h.id, h.bot) },
		},
		"bot": {
			func() error { return host.DeleteAgent(ctx, h.bot) },
			func() error { return host.ArchiveAgent(ctx, h.bot) },
		},
	} {
		err := tt.remove()
		is(t, err, rows.ErrInUse)
		if err != nil && !strings.Contains(err.Error(), "threads names it): archive the ") {
			t.Errorf("%s: %v", name, err)
		}
		check(t, errors.Join(tt.archive(), tt.archive()))
	}
	_, err := host.CreateThread(ctx, rows.NewThread{House: h.id, Environment: h.env})
	is(t, err, rows.ErrArchived)
	_, err = host.CreateThread(ctx, rows.NewThread{House: h.id, Agent: h.bot})
	is(t, err, rows.ErrArchived)
	_, err = resolve(ctx, db, th.ID, "")
	is(t, err, rows.ErrArchived)
	is(t, host.SetDefaultEnvironment(ctx, h.id, h.env), rows.ErrArchived)
}

// An archived agent has no access, in any house.
func TestArchivedAgent(t *testing.T) {
	db, _ := open(t, control.Config{})
	ctx, h := t.Context(), newHouse(t, db)
	check(t, db.Host().ArchiveAgent(ctx, h.owner))
	if all := must(db.As(h.owner).Houses(ctx))(t); len(all) != 0 {
		t.Errorf("it sees %v", all)
	}
}

// Environments keep what they were given, and those that inject a secret are found.
func TestEnvironments(t *testing.T) {
	db, _ := open(t, control.Config{})
	ctx, h := t.Context(), newHouse(t, db)
	s := db.As(h.member)
	recipe := rows.Recipe{
		Name: "web", Runtime: "local", Config: json.RawMessage(`{"image": "node:24"}`),
		Bindings: []rows.Binding{{Name: "TOKEN", Required: true}, {Name: "OTHER"}},
	}
	e := must(s.CreateEnvironment(ctx, h.id, recipe))(t)
	got := rows.Recipe{Name: e.Name, Runtime: e.Runtime, Config: e.Config, Bindings: e.Bindings}
	if d := cmp.Diff(recipe, got); d != "" || e.House != h.id {
		t.Error(d)
	}
	for name, n := range map[string]int{"TOKEN": 1, "OTHER": 1, "NONE": 0} {
		if all := must(s.Binding(ctx, h.id, name))(t); len(all) != n {
			t.Errorf("%s: %v", name, all)
		}
	}
	must(s.ChangeEnvironment(ctx, e.ID, rows.EnvironmentChange{Recipe: func(r *rows.Recipe) error {
		r.Bindings = nil
		return nil
	}}))(t)
	if e := must(s.Environment(ctx, e.ID))(t); len(e.Bindings) != 0 || len(must(s.Environments(ctx, h.id))(t)) != 2 {
		t.Errorf("got %+v", e)
	}
	_, err := s.CreateEnvironment(ctx, h.id, rows.Recipe{Name: "x", Config: json.RawMessage(`[]`)})
	is(t, err, rows.ErrInvalid)
	_, err = s.CreateEnvironment(ctx, "none", rows.Recipe{Name: "x"})
	is(t, err, rows.ErrForbidden)
	_, err = db.Host().CreateEnvironment(ctx, "none", rows.Recipe{Name: "x"})
	is(t, err, rows.ErrReference)
}

// Secrets: owners put and delete them, members read their names, and sealed values are read by the host alone.
func TestSecrets(t *testing.T) {
	db, _ := openAlone(t, control.Config{})
	ctx, h := t.Context(), newHouse(t, db)
	owner, host := db.As(h.owner), db.Host()
	sealed := func(v, key string) func(string) (control.Sealed, error) {
		return func(id string) (control.Sealed, error) {
			return control.Sealed{KeyID: key, Ciphertext: []byte(v + " of " + id)}, nil
		}
	}
	first := must(owner.PutSecret(ctx, h.id, "TOKEN", sealed("one", "k1")))(t)
	again := must(owner.PutSecret(ctx, h.id, "TOKEN", sealed("two", "k2")))(t)
	if first.ID != again.ID || first.Name != "TOKEN" || first.House != h.id {
		t.Errorf("got %+v, then %+v", first, again)
	}
	_, err := db.As(h.member).PutSecret(ctx, h.id, "MINE", sealed("x", "k"))
	is(t, err, rows.ErrForbidden)
	_, err = owner.PutSecret(ctx, h.id, "not a name", sealed("x", "k"))
	is(t, err, rows.ErrInvalid)
	failed := errors.New("the key is away")
	_, err = owner.PutSecret(ctx, h.id, "LATER", func(string) (control.Sealed, error) {
		return control.Sealed{}, failed
	})
	is(t, err, failed)
	if all := must(db.As(h.member).Secrets(ctx, h.id))(t); len(all) != 1 || all[0].Name != "TOKEN" {
		t.Errorf("got %v", all)
	}

	e := must(owner.CreateEnvironment(ctx, h.id, rows.Recipe{
		Name: "e", Bindings: []rows.Binding{{Name: "ABSENT", Required: true}, {Name: "TOKEN"}},
	}))(t)
	_, err = owner.BoundSecrets(ctx, e.ID)
	is(t, err, rows.ErrForbidden)
	bound := must(host.BoundSecrets(ctx, e.ID))(t)
	if len(bound) != 2 || bound[0].Value != nil || !bound[0].Required || bound[1].Value == nil ||
		string(bound[1].Value.Ciphertext) != "two of "+first.ID || bound[1].Value.KeyID != "k2" {
		t.Errorf("got %+v", bound)
	}

	old := must(host.SealedByOthers(ctx, "k3", 10))(t)
	if len(old) != 1 {
		t.Fatalf("got %v", old)
	}
	for _, want := range []bool{true, false} { // the second time it is another value
		if got := must(host.Reseal(ctx, old[0], control.Sealed{KeyID: "k3", Ciphertext: []byte("3")}))(t); got != want {
			t.Errorf("resealed: %t", got)
		}
	}
	if old := must(host.SealedByOthers(ctx, "k3", 10))(t); len(old) != 0 {
		t.Errorf("left: %v", old)
	}
	check(t, owner.DeleteSecret(ctx, h.id, "TOKEN"))
	is(t, owner.DeleteSecret(ctx, h.id, "TOKEN"), rows.ErrAbsent)
}

// Threads: what is chosen stays, lists have their filters and pages, updated_at follows each change of a row.
func TestThreads(t *testing.T) {
	db, _ := open(t, control.Config{})
	ctx, h := t.Context(), newHouse(t, db)
	s := db.As(h.member)
	root := must(s.CreateThread(ctx, rows.NewThread{
		ID: "chosen-1", House: h.id, Name: "Root", Pinned: true, Tags: []string{"a", "b"},
		Environment: h.env, Config: json.RawMessage(`{"k": 1}`),
	}))(t)
	if root.Status != rows.ThreadOpen || !root.Pinned || root.Agent != "" || !root.UpdatedAt.Equal(root.CreatedAt) {
		t.Errorf("got %+v", root)
	}
	_, err := s.CreateThread(ctx, rows.NewThread{ID: "chosen-1", House: h.id})
	is(t, err, rows.ErrTaken)
	_, err = s.CreateThread(ctx, rows.NewThread{ID: "not valid", House: h.id})
	is(t, err, rows.ErrInvalid)
	_, err = s.CreateThread(ctx, rows.NewThread{House: h.id, Agent: h.owner})
	is(t, err, rows.ErrInvalid)
	var ids []string
	var marks []rows.Mark
	for range 5 {
		child := must(s.CreateThread(ctx, rows.NewThread{House: h.id, Parent: root.ID, Agent: h.bot}))(t)
		if child.Status != rows.ThreadIdle || child.Tags == nil || len(child.ID) != 16 {
			t.Errorf("got %+v", child)
		}
		ids, marks = append([]string{child.ID}, ids...), append([]rows.Mark{child.Mark()}, marks...)
	}
	list := func(q rows.Query) (got []string) {
		for _, v := range must(s.Threads(ctx, q))(t) {
			got = append(got, v.ID)
		}
		return got
	}
	for name, tt := range map[string]struct {
		q    rows.Query
		want []string
	}{
		"all":      {rows.Query{House: h.id}, append(ids, root.ID)},
		"children": {rows.Query{Parent: root.ID}, ids},
		"named":    {rows.Query{House: h.id, Name: "OO"}, []string{root.ID}},
		"no name":  {rows.Query{House: h.id, Name: "%"}, nil},
		"first":    {rows.Query{House: h.id, Limit: 2}, ids[:2]},
		"next":     {rows.Query{House: h.id, Limit: 2, After: marks[1]}, ids[2:4]},
		"pinned":   {rows.Query{Pinned: true}, []string{root.ID}},
		"tags":     {rows.Query{Tags: []string{"b", "a"}}, []string{root.ID}},
		"no tags":  {rows.Query{Tags: []string{"b", "c"}}, nil},
		"status":   {rows.Query{Statuses: []string{"open", "closed"}}, []string{root.ID}},
	} {
		if d := cmp.Diff(tt.want, list(tt.q)); d != "" {
			t.Errorf("%s:\n%s", name, d)
		}
	}
	no, yes, name := false, true, ""
	got := must(s.ChangeThread(ctx, root.ID, rows.ThreadChange{
		Name: &name, Pinned: &no, Tags: &[]string{"c"}, Closed: &yes,
	}))(t)
	if got.Name != "" || got.Pinned || got.Tags[0] != "c" || got.Status != rows.ThreadClosed ||
		!got.UpdatedAt.After(root.UpdatedAt) || string(got.Config) != `{"k": 1}` {
		t.Errorf("got %+v", got)
	}
	_, err = s.ChangeThread(ctx, ids[0], rows.ThreadChange{Closed: &yes})
	is(t, err, rows.ErrInvalid)
	check(t, claim(ctx, db, ids[0], "r1", h.env))
	is(t, s.DeleteThread(ctx, root.ID, nil), rows.ErrRunning)
	check(t, boxes(db).Ended(ctx, ids[0], "r1", rows.ThreadCompleted))
	check(t, s.DeleteThread(ctx, root.ID, nil))
	if left := list(rows.Query{House: h.id}); left != nil {
		t.Errorf("left: %v", left)
	}
}

// No error has a value of a row.
func TestErrorsWithoutValues(t *testing.T) {
	db, _ := open(t, control.Config{})
	ctx, h := t.Context(), newHouse(t, db)
	const value = "hunter2-hunter2"
	seal := func(string) (control.Sealed, error) {
		return control.Sealed{KeyID: value, Ciphertext: nil}, nil
	}
	_, err := db.As(h.owner).PutSecret(ctx, h.id, "TOKEN", seal)
	if err == nil || strings.Contains(err.Error(), value) {
		t.Errorf("got %v", err)
	}
	_, err = db.Host().CreateEnvironment(ctx, h.id, rows.Recipe{
		Name: value, Config: json.RawMessage(`["` + value + `"]`),
	})
	is(t, err, rows.ErrInvalid)
	if err == nil || strings.Contains(err.Error(), value) {
		t.Errorf("got %v", err)
	}
	_, err = control.Open(ctx, "postgres://u:"+value+"@host:bad/db", control.Config{})
	if err == nil || strings.Contains(err.Error(), value) {
		t.Errorf("got %v", err)
	}
}

// A conversation with a bot is answered by it, unless the thread's config has another mode for it. A config is changed
// as a whole.
func TestParentAgent(t *testing.T) {
	db, _ := open(t, control.Config{})
	ctx, h := t.Context(), newHouse(t, db)
	other := newHouse(t, db)
	member := db.As(h.member)
	mode := func(mode string) string {
		return `{"dispatch":{"perAgent":{"` + h.bot + `":{"triggerMode":"` + mode + `"}}}}`
	}
	for config, want := range map[string]string{
		"": mode("always"), mode("mention"): mode("mention"), `{"a":1,"dispatch":{"off":true}}`: `{"a":1,"dispatch":` +
			`{"off":true,"perAgent":{"` + h.bot + `":{"triggerMode":"always"}}}}`,
	} {
		n := rows.NewThread{House: h.id, ParentAgent: h.bot}
		if config != "" {
			n.Config = json.RawMessage(config)
		}
		v := must(member.CreateThread(ctx, n))(t)
		if v.ParentAgent != h.bot || !sameJSON(t, v.Config, want) {
			t.Errorf("config %s became %s, with %q", config, v.Config, v.ParentAgent)
		}
		changed := must(member.ChangeThread(ctx, v.ID, rows.ThreadChange{Config: json.RawMessage(`{"b":2}`)}))(t)
		if !sameJSON(t, changed.Config, `{"b":2}`) {
			t.Errorf("the config was changed to %s", changed.Config)
		}
		kept := must(member.ChangeThread(ctx, v.ID, rows.ThreadChange{Tags: &[]string{"x"}}))(t)
		if !sameJSON(t, kept.Config, `{"b":2}`) || kept.ParentAgent != h.bot {
			t.Errorf("another change left %s, with %q", kept.Config, kept.ParentAgent)
		}
	}
	for agent, kind := range map[string]error{
		h.member: rows.ErrInvalid, other.bot: rows.ErrReference, "x": rows.ErrInvalid,
	} {
		_, err := member.CreateThread(ctx, rows.NewThread{House: h.id, ParentAgent: agent})
		is(t, err, kind)
	}
	parent := must(member.CreateThread(ctx, rows.NewThread{House: h.id}))(t).ID
	_, err := member.CreateThread(ctx, rows.NewThread{House: h.id, Parent: parent, ParentAgent: h.bot})
	is(t, err, rows.ErrInvalid)
	_, err = member.ChangeThread(ctx, parent, rows.ThreadChange{Config: json.RawMessage(`[]`)})
	is(t, err, rows.ErrInvalid)
}

// sameJSON reports whether two texts are equal as JSON.
func sameJSON(t *testing.T, got json.RawMessage, want string) bool {
	t.Helper()
	var a, b any
	if err := errors.Join(json.Unmarshal(got, &a), json.Unmarshal([]byte(want), &b)); err != nil {
		t.Fatal(err)
	}
	return reflect.DeepEqual(a, b)
}

// What a caller reads of an error is its text: with no code of the database and no name of a transaction.
func TestErrorTexts(t *testing.T) {
	db, url := open(t, control.Config{})
	ctx, h, host := t.Context(), newHouse(t, db), db.Host()
	other := newHouse(t, db)
	id := must(host.CreateThread(ctx, rows.NewThread{House: h.id, Agent: h.bot}))(t).ID
	_, taken := db.As(other.member).CreateThread(ctx, rows.NewThread{House: other.id, ID: id})
	_, reference := host.CreateThread(ctx, rows.NewThread{House: h.id, Environment: other.env})
	_, invalid := host.CreateThread(ctx, rows.NewThread{House: h.id, ID: "not valid"})
	_, value := host.CreateThread(ctx, rows.NewThread{House: h.id, Name: "a\x00b"})
	_, driver := host.CreateThread(ctx, rows.NewThread{House: h.id, Agent: "no UUID"})
	_, forbidden := db.As(h.member).AddMember(ctx, h.id, other.owner, rows.RoleMember)
	_, stranger := db.As("no UUID").Thread(ctx, id)
	_, absent := host.Thread(ctx, "none")
	for _, tt := range []struct {
		err, kind error
		text      string // "" for one of the database
	}{
		{taken, rows.ErrTaken, "the thread's id: taken"},
		{reference, rows.ErrReference, "the environment: not in this house"},
		{invalid, rows.ErrInvalid, "the thread's id: not valid"},
		{value, rows.ErrInvalid, "a value: not valid"},
		{driver, rows.ErrInvalid, "the driving agent: not valid: its id is no UUID"},
		{forbidden, rows.ErrForbidden, ""},
		{stranger, rows.ErrInvalid, "the agent's id: not valid"},
		{absent, rows.ErrAbsent, "thread: no such row in this scope"},
		{host.DeleteSecret(ctx, h.id, "NONE"), rows.ErrAbsent, "secret: no such row in this scope"},
	} {
		is(t, tt.err, tt.kind)
		var r *rows.Refusal
		if !errors.As(tt.err, &r) || tt.err.Error() != r.Text || tt.text != "" && r.Text != tt.text {
			t.Errorf("got %q, want %q", tt.err, tt.text)
		} else if strings.Contains(r.Text, "SQLSTATE") {
			t.Errorf("%q has a code of the database", r.Text)
		}
	}

	// Errors of the database itself have none of its codes either.
	config := must(pgx.ParseConfig(url))(t)
	_, user := control.Open(ctx, "host="+config.Host+" user=nobody dbname="+config.Database, control.Config{})
	_, name := control.Open(ctx, "host="+config.Host+" user="+config.User+" dbname=nowhere", control.Config{})
	alone, url := openAlone(t, control.Config{})
	_ = must(connect(t, url).Exec(ctx, `alter table secrets rename to others`))(t)
	_, table := alone.Host().Secrets(ctx, h.id)
	for of, err := range map[string]error{`role "nobody"`: user, `database "nowhere"`: name, `relation "secrets"`: table} {
		if err == nil || strings.Contains(err.Error(), "SQLSTATE") || !strings.Contains(err.Error(), of) {
			t.Errorf("got %v, want an error of the %s", err, of)
		}
	}
}

// An owner deletes a secret; to a member that sees it, that is forbidden.
func TestDeleteSecretOfOwners(t *testing.T) {
	db, _ := open(t, control.Config{})
	ctx, h := t.Context(), newHouse(t, db)
	seal := func(string) (control.Sealed, error) { return control.Sealed{KeyID: "k", Ciphertext: []byte("c")}, nil }
	must(db.As(h.owner).PutSecret(ctx, h.id, "TOKEN", seal))(t)
	is(t, db.As(h.member).DeleteSecret(ctx, h.id, "TOKEN"), rows.ErrForbidden)
	is(t, db.As(h.member).DeleteSecret(ctx, h.id, "NONE"), rows.ErrAbsent)
	is(t, db.As(newHouse(t, db).owner).DeleteSecret(ctx, h.id, "TOKEN"), rows.ErrAbsent)
	check(t, db.As(h.owner).DeleteSecret(ctx, h.id, "TOKEN"))
}
