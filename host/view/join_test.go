package view_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"arbe.0sk.ar/runner/host/view"
	"arbe.0sk.ar/runner/internal/test/recorded"
	"arbe.0sk.ar/runner/mirror"
	"arbe.0sk.ar/runner/session"
	"arbe.0sk.ar/runner/thread"
	"arbe.0sk.ar/runner/thread/redact"
)

const testdata = "../../testdata"

// threads returns recorded threads, and the recorded sessions as a runner mirrors them.
func threads(t testing.TB) map[string][]thread.Entry {
	t.Helper()
	all := map[string][]thread.Entry{}
	paths, err := filepath.Glob(filepath.Join(testdata, "t[ho]*s/*.ndjson")) // threads and tools
	if err != nil || len(paths) == 0 {
		t.Fatalf("no recorded threads: %v", err)
	}
	for _, p := range paths {
		b, err := os.ReadFile(p)
		if err != nil {
			t.Fatal(err)
		}
		all["threads/"+filepath.Base(p)] = entries(t, string(b))
	}
	for name, file := range recorded.Sessions(t, testdata) {
		d := recorded.Dialect(t, name)
		e := mirror.Encoder{Namer: mirror.Namer{Dialect: d, Session: "s"}, Redact: &redact.Redactor{}}
		i := 0
		for line := range strings.Lines(string(file)) {
			entry, _ := e.Encode(session.Line{
				Start: session.Position{Index: i}, Data: []byte(strings.TrimSuffix(line, "\n")),
			})
			all["sessions/"+name], i = append(all["sessions/"+name], entry), i+1
		}
	}
	return all
}

func entries(t testing.TB, ndjson string) []thread.Entry {
	t.Helper()
	var all []thread.Entry
	for line := range strings.Lines(ndjson) {
		e, err := thread.ParseStored([]byte(strings.TrimSpace(line)))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, e)
	}
	return all
}

func build(all []thread.Entry) []view.Item {
	var b view.Builder
	var l view.List
	for _, e := range all {
		for _, c := range b.Add(e) {
			l.Change(c)
		}
	}
	return l.Items
}

// Two pieces of a thread, cut anywhere and joined, show what the whole shows.
func TestJoin(t *testing.T) {
	for name, all := range threads(t) {
		want := build(all)
		for cut := 0; cut < len(all); cut += 1 + len(all)/25 {
			older, newer := build(all[:cut]), build(all[cut:])
			got := view.Join(older, newer)
			all := cmp.AllowUnexported(view.Verdict{}, view.Item{})
			if d := cmp.Diff(want, got, cmpopts.EquateEmpty(), all); d != "" {
				t.Fatalf("%s, cut at %d: -want +got:\n%s", name, cut, d)
			}
		}
	}
}

// A piece on its own has the items of the whole, but for results, deliveries and ends whose call, chat or reply is on
// another page, and halves of a verdict.
func TestPieces(t *testing.T) {
	parts := []view.Kind{view.KindResult, view.KindVerdict, view.KindDelivery, view.KindEnd}
	for name, all := range threads(t) {
		whole := map[string]view.Kind{}
		for _, i := range build(all) {
			whole[i.ID] = i.Kind
		}
		for cut := range all {
			for _, i := range build(all[cut:]) {
				if _, ok := whole[i.ID]; !ok && !slices.Contains(parts, i.Kind) {
					t.Errorf("%s, from %d: %s %s is not in the whole", name, cut, i.Kind, i.ID)
				}
			}
		}
	}
}
