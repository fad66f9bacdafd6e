package control_test

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"arbe.0sk.ar/runner/host/control"
)

var update = flag.Bool("update", false, "write catalog.txt anew")

// The description of the schema is that of its steps, with every version of Postgres.
func TestCatalog(t *testing.T) {
	t.Parallel()
	lines := must(control.Catalog(t.Context(), databases.Shared(t)))(t)
	got := strings.Join(lines, "\n") + "\n"
	if *update {
		check(t, os.WriteFile("catalog.txt", []byte(got), 0o666))
	}
	want := must(os.ReadFile("catalog.txt"))(t)
	if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got, "\n")); diff != "" {
		t.Errorf("-update writes it anew: (-want +got)\n%s", diff)
	}
}

// The status of a database names each thing that its steps have not made so.
func TestStatusNamesDifferences(t *testing.T) {
	t.Parallel()
	url := databases.New(t)
	s := must(control.ReadStatus(t.Context(), url))(t)
	if len(s.Lacks) > 0 || len(s.Extra) > 0 {
		t.Errorf("fresh: %q, %q", s.Lacks, s.Extra)
	}
	_ = must(connect(t, url).Exec(t.Context(), `
		drop policy sandbox_notices_read on sandbox_notices;
		create policy open on secrets for select to arbe_app using (true);
		alter table spend add column note text;
		alter table houses alter column name drop not null;
		alter table members disable row level security;
		drop table dispatch_cache;
		create or replace function require_log(log text) returns void language sql as 'select';
		drop function condemn_sandbox(text);
		grant select on secret_values to arbe_app;
		grant update (name) on threads to public;
		drop index threads_places_idx;
		create index mine on threads (name);
		create table another (id int);
		create function another() returns void language sql as 'select'`))(t)
	s = must(control.ReadStatus(t.Context(), url))(t)
	for name, tt := range map[string]struct{ got, want []string }{
		"lacks": {s.Lacks, []string{
			"function public.condemn_sandbox(text)\tfunction: ", "function public.require_log(text)\tfunction: ",
			"table dispatch_cache\t", "table houses\tcolumn: name text not null",
			"table members\ttable: row level security on", "table sandbox_notices\tpolicy: sandbox_notices_read ",
			"table threads\tindex: CREATE INDEX threads_places_idx ",
		}},
		"extra": {s.Extra, []string{
			"function public.require_log(text)\tfunction: ", "table houses\tcolumn: name text",
			"table members\ttable: row level security off", "table secret_values\tgrant: select to arbe_app",
			"table secrets\tpolicy: open ", "table spend\tcolumn: note text",
			"table threads\tgrant: update (name) to ",
		}},
	} {
		for _, want := range tt.want {
			starts := func(line string) bool { return strings.HasPrefix(line, want) }
			if !slices.ContainsFunc(tt.got, starts) {
				t.Errorf("%s: nothing begins with %q", name, want)
			}
		}
		for _, line := range tt.got {
			if !slices.ContainsFunc(tt.want, func(w string) bool { return strings.HasPrefix(line, w) }) {
				t.Errorf("%s: also %q", name, line)
			}
		}
	}
}

// A step that has landed never changes: databases that were made meanwhile would not get the change.
func TestLandedSteps(t *testing.T) {
	f := must(os.Open("testdata/migrations.sha256"))(t)
	defer f.Close() // read only
	last := ""
	for lines := bufio.NewScanner(f); lines.Scan(); {
		want, name, _ := strings.Cut(lines.Text(), "  ")
		b := must(os.ReadFile(filepath.Join("migrations", name)))(t)
		if sum := sha256.Sum256(b); hex.EncodeToString(sum[:]) != want {
			t.Errorf("%s has changed: add a step in its place", name)
		}
		last = name
	}
	files := must(os.ReadDir("migrations"))(t)
	if len(files) == 0 || last == "" {
		t.Fatal("no steps")
	}
	sums := string(must(os.ReadFile("testdata/migrations.sha256"))(t))
	for _, f := range files {
		if f.Name() < last && !strings.Contains(sums, "  "+f.Name()+"\n") {
			t.Errorf("%s comes before %s, which has landed: its number has to be a later one", f.Name(), last)
		}
	}
}

// Each step since the rule names what a program has to know to use it.
func TestStepsNameTheirNeeds(t *testing.T) {
	t.Parallel()
	var steps []int64
	rows := must(connect(t, databases.Shared(t)).Query(t.Context(), "select step from schema_steps"))(t)
	for rows.Next() {
		var step int64
		check(t, rows.Scan(&step))
		steps = append(steps, step)
	}
	check(t, rows.Err())
	for _, m := range must(control.ReadStatus(t.Context(), databases.Shared(t)))(t).Migrations {
		if m.Version >= 14 && !slices.Contains(steps, m.Version) {
			t.Errorf("%s ends without: insert into public.schema_steps (step, needs) values (%d, …)", m.Name, m.Version)
		}
	}
}
