package control_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"arbe.0sk.ar/runner/host/control"
	"arbe.0sk.ar/runner/host/lease"
	"arbe.0sk.ar/runner/host/rows"
)

// tables returns the tables of the schema.
func tables(t testing.TB, c *pgx.Conn) []string {
	t.Helper()
	rows := must(c.Query(t.Context(), `select relname::text from pg_class
		where relnamespace = 'public'::regnamespace and relkind in ('r', 'p') order by 1`))(t)
	return must(pgx.CollectRows(rows, pgx.RowTo[string]))(t)
}

// statements are a role's SQL on the rows of a house in a table. $1 is the house; {a} stands for a
// stranger, {e} for an environment of the house.
type statements struct {
	read, add, change, delete string
	// who may, of the house's people: "" nobody, "m" members, "o" owners only
	mayRead, mayAdd, mayChange, mayDelete string
}

var access = map[string]statements{
	"houses": {
		"select from houses where id = $1", "insert into houses (id, name) values ($1 || 'x', 'new')",
		"update houses set name = 'changed' where id = $1", "delete from houses where id = $1",
		"m", "", "o", "o",
	},
	"members": {
		"select from members where house_id = $1",
		"insert into members (house_id, agent_id, role) values ($1, '{a}', 'member')",
		"update members set role = 'member' where house_id = $1 and role = 'owner'",
		"delete from members where house_id = $1 and role = 'owner'",
		"m", "o", "o", "o",
	},
	"environments": {
		"select from environments where house_id = $1",
		"insert into environments (house_id, name) values ($1, 'new')",
		"update environments set name = 'changed' where house_id = $1",
		"delete from environments where house_id = $1 and name = 'unused'",
		"m", "m", "m", "m",
	},
	"secrets": {
		"select from secrets where house_id = $1", "insert into secrets (house_id, name) values ($1, 'NEW')",
		"update secrets set name = 'CHANGED' where house_id = $1", "delete from secrets where house_id = $1",
		"m", "o", "", "o",
	},
	"secret_values": {
		"select ciphertext from secret_values where house_id = $1",
		`insert into secret_values (house_id, secret_id, ciphertext, key_id)
			select house_id, id, 'c', 'k' from secrets where house_id = $1 and name = 'EMPTY'`,
		"update secret_values set ciphertext = 'changed' where house_id = $1",
		"delete from secret_values where house_id = $1",
		"", "o", "o", "o",
	},
	"sandboxes": {
		"select from sandboxes where house_id = $1",
		"insert into sandboxes (house_id, environment_id, provider) values ($1, '{e}', 'local')",
		"update sandboxes set status = 'dead' where house_id = $1", "delete from sandboxes where house_id = $1",
		"m", "m", "", "",
	},
	"sandbox_holds": {
		"select from sandbox_holds where house_id = $1",
		`insert into sandbox_holds (house_id, sandbox_id, holder)
			select house_id, id, 'mine' from sandboxes where house_id = $1`,
		"update sandbox_holds set expires_at = now() where house_id = $1",
		"delete from sandbox_holds where house_id = $1",
		"m", "", "", "",
	},
	"sandbox_notices": {
		"select from sandbox_notices where house_id = $1",
		`insert into sandbox_notices (house_id, sandbox_id, thread_id, from_id)
			select house_id, 'new', id, 'dead' from threads where house_id = $1`,
		"update sandbox_notices set from_id = 'other' where house_id = $1",
		"delete from sandbox_notices where house_id = $1",
		"", "", "", "",
	},
	"threads": {
		"select from threads where house_id = $1",
		"insert into threads (id, stream_id, house_id) values ($1 || 'x', $1 || 'x', $1)",
		"update threads set name = 'changed' where house_id = $1", "delete from threads where house_id = $1",
		"m", "m", "m", "m",
	},
	"thread_cache": {
		"select from thread_cache c join threads t on t.id = c.thread_id where t.house_id = $1",
		`insert into thread_cache (thread_id, upto, version, status, fold)
			select id, '0', 1, 'idle', '{}' from threads where house_id = $1`,
		"update thread_cache set version = 2 where $1 <> ''", "delete from thread_cache where $1 <> ''",
		"", "", "", "",
	},
	"dispatch_cache": {
		"select from dispatch_cache c join threads t on t.id = c.thread_id where t.house_id = $1",
		"insert into dispatch_cache (thread_id, upto, version) select id, '0', 1 from threads where house_id = $1",
		"update dispatch_cache set version = 2 where $1 <> ''", "delete from dispatch_cache where $1 <> ''",
		"", "", "", "",
	},
	"waiting_runs": {
		"select from waiting_runs w join threads t on t.id = w.thread_id where t.house_id = $1",
		"insert into waiting_runs (thread_id, until) select id, now() from threads where house_id = $1",
		"update waiting_runs set until = now() where $1 <> ''", "delete from waiting_runs where $1 <> ''",
		"", "", "", "",
	},
	"spend": {
		"select from spend where house_id = $1",
		"insert into spend (house_id, day) values ($1, '2026-01-01')",
		"update spend set spent = 0 where house_id = $1", "delete from spend where house_id = $1",
		"o", "", "", "",
	},
	"bound_log": {
		"select from bound_log where $1 <> ''", "insert into bound_log (log) select 'other' where $1 <> ''",
		"update bound_log set log = 'other' where $1 <> ''", "delete from bound_log where $1 <> ''",
		"", "", "", "",
	},
	"schema_steps": {
		"select from schema_steps where $1 <> ''",
		"insert into schema_steps (step, needs) select 999, 1 where $1 <> ''",
		"update schema_steps set needs = 1 where $1 <> ''", "delete from schema_steps where $1 <> ''",
		"", "", "", "",
	},
	"arbe_schema": {
		"select from arbe_schema where $1 <> ''",
		"insert into arbe_schema (version_id, is_applied) select 99, true where $1 <> ''",
		"update arbe_schema set is_applied = false where $1 <> ''", "delete from arbe_schema where $1 <> ''",
		"", "", "", "",
	},
}

// settled has a house with a row in each table.
func settled(t testing.TB, db *control.DB) house {
	t.Helper()
	ctx, host := t.Context(), db.Host()
	h := newHouse(t, db)
	must(host.CreateEnvironment(ctx, h.id, rows.Recipe{Name: "unused"}))(t)
	seal := func(string) (control.Sealed, error) { return control.Sealed{KeyID: "k", Ciphertext: []byte("c")}, nil }
	must(host.PutSecret(ctx, h.id, "TOKEN", seal))(t)
	th := must(host.CreateThread(ctx, rows.NewThread{House: h.id, Environment: h.env, Agent: h.bot}))(t)
	box := must(resolve(ctx, db, th.ID, ""))(t).Row.ID
	check(t, boxes(db).Lease(box).Hold(ctx, lease.OfRun(th.ID, "r")))
	must(db.Reserve(ctx, rows.Spend{House: h.id, Bot: h.bot, Micros: 1, HouseBudget: 1, BotBudget: 1}))(t)
	return h
}

// try runs a statement in the request role for an agent, rolls it back, and returns whether it reached a row. A refusal
// by the database is no error.
func try(t testing.TB, c *pgx.Conn, agent, sql string, args ...any) (reached bool, err error) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	tx := must(c.Begin(ctx))(t)
	defer func() { check(t, tx.Rollback(ctx)) }()
	_ = must(tx.Exec(ctx, "set local role arbe_app"))(t)
	if agent != "" {
		_ = must(tx.Exec(ctx, "select set_config('app.agent_id', $1, true)", agent))(t)
	}
	tag, err := tx.Exec(ctx, sql, args...)
	if pe := (*pgconn.PgError)(nil); errors.As(err, &pe) && pe.Code == "42501" {
		return false, nil
	}
	return tag.RowsAffected() > 0, err
}

// Each table × {owner and member of the house, owner of another one, an agent without a house, no agent} × {select,
// insert, update, delete}.
func TestRowLevelSecurity(t *testing.T) {
	db, url := open(t, control.Config{})
	own, other := settled(t, db), settled(t, db)
	c := connect(t, url)
	ctx := t.Context()
	_ = must(c.Exec(ctx, `insert into secrets (house_id, name) values ($1, 'EMPTY')`, own.id))(t)
	_ = must(c.Exec(ctx, `insert into thread_cache (thread_id, upto, version, status, fold)
		select id, '0', 1, 'idle', '{}' from threads where house_id = $1`, other.id))(t)
	_ = must(c.Exec(ctx, `insert into sandbox_notices (house_id, sandbox_id, thread_id, from_id)
		select house_id, 'b2', id, 'b1' from threads where house_id = $1`, own.id))(t)
	for _, table := range tables(t, c) {
		if _, known := access[table]; !known && table != "agents" { // see TestAgents
			t.Errorf("no test has the table %s", table)
		}
	}
	people := map[string]string{
		"owner": own.owner, "member": own.member, "bot": own.bot,
		"owner of another house": other.owner, "agent without a house": uuid.NewString(), "no agent": "",
	}
	names := strings.NewReplacer("{a}", other.owner, "{e}", own.env)
	for table, s := range access {
		for _, tt := range []struct{ name, sql, may string }{
			{"select", s.read, s.mayRead},
			{"insert", s.add, s.mayAdd},
			{"update", s.change, s.mayChange},
			{"delete", s.delete, s.mayDelete},
		} {
			for who, agent := range people {
				may := who == "owner" && tt.may != "" || (who == "member" || who == "bot") && tt.may == "m"
				reached, err := try(t, c, agent, names.Replace(tt.sql), own.id)
				if err != nil || reached != may {
					t.Errorf("%s: %s by %s: %t, %v; want %t", table, tt.name, who, reached, err, may)
				}
			}
		}
	}
}

// An agent sees itself and the agents of its houses, and changes itself alone.
func TestAgents(t *testing.T) {
	db, url := open(t, control.Config{})
	own, other := newHouse(t, db), newHouse(t, db)
	c := connect(t, url)
	sees := func(agent string) (n int) {
		for _, id := range []string{own.owner, own.member, own.bot, other.owner, other.member, other.bot} {
			if reached, err := try(t, c, agent, "select from agents where id = $1", id); err != nil {
				t.Fatal(err)
			} else if reached {
				n++
			}
		}
		return n
	}
	if a, b, c := sees(own.member), sees(uuid.NewString()), sees(""); a != 3 || b+c != 0 {
		t.Errorf("%d, %d and %d agents are seen", a, b, c)
	}
	for _, tt := range []struct {
		sql string
		id  string
		may bool
	}{
		{"update agents set name = 'me' where id = $1", own.member, true},
		{"update agents set name = 'you' where id = $1", own.owner, false},
		{"update agents set archived_at = null where id = $1", own.member, false},
		{"insert into agents (id, kind) values ($1, 'human')", uuid.NewString(), false},
		{"delete from agents where id = $1", own.member, false},
	} {
		if reached, err := try(t, c, own.member, tt.sql, tt.id); err != nil || reached != tt.may {
			t.Errorf("%s: %t, %v", tt.sql, reached, err)
		}
	}
}

// What a request must never change: a row's house, id and stream, a member's agent, what a seal binds.
func TestFixedColumns(t *testing.T) {
	db, url := open(t, control.Config{})
	h := settled(t, db)
	c := connect(t, url)
	for _, sql := range []string{
		"update houses set id = $1", "update houses set created_at = now()",
		"update members set house_id = $1", "update members set agent_id = agent_id",
		"update environments set house_id = $1", "update environments set id = $1",
		"update members set joined_at = now()", "update agents set config = '{}'", "update agents set kind = kind",
		"update agents set owner_house_id = $1", "update agents set runtime = runtime",
		"insert into members (house_id, agent_id, role, config) values ($1, gen_random_uuid(), 'member', '{}')",
		"update secrets set house_id = $1", "update secrets set id = $1", "update secrets set name = $1",
		"update secret_values set house_id = $1", "update secret_values set secret_id = $1",
		"update sandboxes set house_id = $1", "update sandboxes set environment_id = $1",
		"update sandboxes set provider_ref = $1", "update sandboxes set destroyed_at = now()",
		"update sandboxes set maker = $1", "update sandboxes set status = 'live'",
		"update sandboxes set pending_until = now()", "update sandboxes set ephemeral = true",
		"select condemn_sandbox(id) from sandboxes",
		"update threads set house_id = $1", "update threads set id = $1", "update threads set stream_id = $1",
		"update threads set agent_id = null", "update threads set task = null",
		"update threads set launch_after = now()",
		"update threads set launch_trusted = true", "update threads set launch_host = 'h'",
		"update threads set parent_thread_id = $1",
		"truncate threads cascade", "truncate thread_cache", "create table public.mine (id int)",
		"drop policy threads_house on threads", "alter table threads disable row level security",
	} {
		args := []any{}
		if strings.Contains(sql, "$1") {
			args = append(args, h.id)
		}
		if reached, err := try(t, c, h.owner, sql, args...); err != nil || reached {
			t.Errorf("%s: %t, %v", sql, reached, err)
		}
	}
}

// What SQL alone can write, and no program reads: each is refused to a member who may change the row, and the host's
// lists stay whole.
func TestValuesBySQL(t *testing.T) {
	db, url := open(t, control.Config{})
	h := settled(t, db)
	c := connect(t, url)
	ctx := t.Context()
	for _, sql := range []string{
		"update threads set status = 'running', claimed_run = 'r', claimed_at = 'infinity' where house_id = $1",
		"update threads set status = 'running', claimed_run = 'r', claimed_at = '-infinity' where house_id = $1",
		"update threads set status = 'running', claimed_run = 'r', claimed_at = now() + '1 hour' where house_id = $1",
		"update threads set pinned_at = 'infinity' where house_id = $1",
		"update threads set pinned_at = '20000-01-01' where house_id = $1",
		"insert into threads (id, stream_id, house_id) values ('mine', 'theirs', $1)",
		`insert into sandboxes (house_id, environment_id, provider, pending_until)
			values ($1, '{e}', 'local', 'infinity')`,
		"update sandboxes set created_at = 'infinity' where house_id = $1",
		"update sandboxes set created_at = '0001-01-01 BC' where house_id = $1",
		"update environments set archived_at = '-infinity' where house_id = $1",
		"update members set archived_at = 'infinity' where house_id = $1",
		"update members set config = '[]' where house_id = $1",
		"update members set config = jsonb_build_object('x', repeat('x', 65536)) where house_id = $1",
		"update houses set config = 'null' where id = $1",
		"update houses set config = jsonb_build_object('x', repeat('x', 65536)) where id = $1",
		"update houses set dispatch_since = 'infinity' where id = $1",
		"update houses set dispatch_since = '0001-01-01 BC' where id = $1",
		"select configure_bot(id, '[]') from agents where kind = 'bot' and owner_house_id = $1",
		`select configure_bot(id, jsonb_build_object('x', repeat('x', 65536))) from agents
			where kind = 'bot' and owner_house_id = $1`,
		"update secret_values set updated_at = '290000-01-01' where house_id = $1",
	} {
		sql = strings.ReplaceAll(sql, "{e}", h.env)
		_, err := try(t, c, h.owner, sql, h.id)
		if pe := (*pgconn.PgError)(nil); !errors.As(err, &pe) || pe.Code != "23514" {
			t.Errorf("%s: %v", sql, err)
		}
	}
	b := boxes(db)
	_, err := b.Boxes(ctx, nil)
	check(t, err)
	_ = must(b.Stale(ctx))(t)
	_ = must(db.Host().Threads(ctx, rows.Query{House: h.id, Limit: 10}))(t)
}

// The catalogue: each table is under row level security, which does not hold its owner; each with a house has a policy,
// for the request role alone; and each reference between tables with a house has the house in its key.
func TestCatalogue(t *testing.T) {
	_, url := open(t, control.Config{})
	c := connect(t, url)
	for _, tt := range []struct{ what, sql string }{
		{"tables without row level security, or with it forced", `select relname::text from pg_class
			where relnamespace = 'public'::regnamespace and relkind in ('r', 'p')
				and (not relrowsecurity or relforcerowsecurity)`},
		{"tables with a house and without a policy", `select a.attrelid::regclass::text from pg_attribute a
			join pg_class r on r.oid = a.attrelid and r.relkind = 'r' and r.relnamespace = 'public'::regnamespace
			where a.attname = 'house_id' and not exists (select from pg_policy p where p.polrelid = a.attrelid)`},
		{"policies for other roles", `select polname::text from pg_policy
			where polroles <> array['arbe_app'::regrole::oid]`},
		{"references without the house", `select conname::text from pg_constraint f
			where contype = 'f' and confrelid not in ('houses'::regclass, 'agents'::regclass)
				and exists (select from pg_attribute where attrelid = f.conrelid and attname = 'house_id')
				and exists (select from pg_attribute where attrelid = f.confrelid and attname = 'house_id')
				and not exists (select from pg_attribute
					where attrelid = f.conrelid and attname = 'house_id' and attnum = any (f.conkey))`},
		{"functions of the owner that anyone may call or whose search path is open", `select proname::text from pg_proc
			where pronamespace = 'public'::regnamespace and prosecdef
				and (has_function_privilege('public', oid, 'execute') or not 'search_path=""' = any (proconfig))`},
	} {
		rows := must(c.Query(t.Context(), tt.sql))(t)
		if found := must(pgx.CollectRows(rows, pgx.RowTo[string]))(t); len(found) > 0 {
			t.Errorf("%s: %v", tt.what, found)
		}
	}
}

// Each edge from one house to another is refused by the database itself, the host's role included.
func TestCrossHouse(t *testing.T) {
	db, url := open(t, control.Config{})
	own, other := settled(t, db), settled(t, db)
	c := connect(t, url)
	ctx := t.Context()
	var box, thread string
	check(t, c.QueryRow(ctx, `select sandbox_id, id from threads where house_id = $1`, other.id).Scan(&box, &thread))
	for _, tt := range []struct {
		sql  string
		args []any
	}{
		{"insert into sandboxes (house_id, environment_id, provider) values ($1, $2, 'local')", []any{own.id, other.env}},
		{"update sandboxes set environment_id = $2 where house_id = $1", []any{own.id, other.env}},
		{"update houses set default_environment_id = $2 where id = $1", []any{own.id, other.env}},
		{"update threads set environment_id = $2 where house_id = $1", []any{own.id, other.env}},
		{"update threads set sandbox_id = $2 where house_id = $1", []any{own.id, box}},
		{"update threads set parent_thread_id = $2 where house_id = $1", []any{own.id, thread}},
		{"update threads set agent_id = $2 where house_id = $1", []any{own.id, other.bot}},
		{"update threads set house_id = $2 where house_id = $1", []any{own.id, other.id}},
		{"update sandboxes set house_id = $2 where house_id = $1", []any{own.id, other.id}},
		{"update environments set house_id = $2 where id = $1", []any{own.env, other.id}},
		{"update members set house_id = $2 where agent_id = $1", []any{own.bot, other.id}},
		{"update sandbox_holds set house_id = $2 where house_id = $1", []any{own.id, other.id}},
		{"update secrets set house_id = $2, name = 'X' where house_id = $1", []any{own.id, other.id}},
		{"update secret_values set house_id = $2 where house_id = $1", []any{own.id, other.id}},
	} {
		_, err := c.Exec(ctx, tt.sql, tt.args...)
		if pe := (*pgconn.PgError)(nil); !errors.As(err, &pe) || pe.Code != "23503" {
			t.Errorf("%s: %v", tt.sql, err)
		}
	}
	host := db.Host()
	for _, n := range []rows.NewThread{
		{House: own.id, Environment: other.env},
		{House: own.id, Sandbox: box},
		{House: own.id, Parent: thread},
		{House: own.id, Agent: other.bot},
	} {
		_, err := host.CreateThread(ctx, n)
		is(t, err, rows.ErrReference)
	}
	is(t, host.SetDefaultEnvironment(ctx, own.id, other.env), rows.ErrReference)
}

// A connection of the pool carries neither an agent nor a role to the next request: with one connection, after a
// request that succeeds, fails or is cancelled, and under load.
func TestPooledConnections(t *testing.T) {
	db, _ := open(t, control.Config{Connections: 1})
	a, b := newHouse(t, db), newHouse(t, db)
	ctx := t.Context()
	houses := func(s control.Scope) (ids []string) {
		for _, h := range must(s.Houses(ctx))(t) {
			ids = append(ids, h.ID)
		}
		return ids
	}
	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	for name, before := range map[string]func() error{
		"success":      func() error { _, err := db.As(a.owner).Houses(ctx); return err },
		"refusal":      func() error { _, err := db.As(a.owner).CreateHouse(ctx, "x", a.owner); return err },
		"an error":     func() error { _, err := db.As(a.owner).Thread(ctx, "none"); return err },
		"cancellation": func() error { _, err := db.As(a.owner).Houses(cancelled); return err },
		"the host":     func() error { _, err := db.Host().Houses(ctx); return err },
	} {
		if err := before(); (err != nil) != (name != "success" && name != "the host") {
			t.Errorf("%s: %v", name, err)
		}
		if got := houses(db.As(uuid.NewString())); len(got) != 0 {
			t.Errorf("after %s a stranger sees %v", name, got)
		}
		if got := houses(db.As(b.member)); len(got) != 1 || got[0] != b.id {
			t.Errorf("after %s a member sees %v", name, got)
		}
		if got := houses(db.Host()); len(got) < 2 {
			t.Errorf("after %s the host sees %v", name, got)
		}
	}
	var all sync.WaitGroup
	for i := range 40 {
		all.Go(func() {
			h := []house{a, b}[i%2]
			if got, err := db.As(h.owner).Houses(ctx); err != nil || len(got) != 1 || got[0].ID != h.id {
				t.Errorf("got %v, %v", got, err)
			}
		})
	}
	all.Wait()
}

// After a transaction with an agent the setting is empty on its connection, which is no agent and no error.
func TestSettingLeft(t *testing.T) {
	db, url := open(t, control.Config{})
	h := newHouse(t, db)
	c := connect(t, url)
	const count = "select from houses"
	for _, agent := range []string{h.owner, ""} {
		if reached, err := try(t, c, agent, count); err != nil || reached != (agent != "") {
			t.Errorf("agent %q: %t, %v", agent, reached, err)
		}
	}
	var left *string
	check(t, c.QueryRow(t.Context(), "select current_setting('app.agent_id', true)").Scan(&left))
	if left == nil || *left != "" {
		t.Errorf("the setting is %v", left)
	}
}
