package screen

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"arbe.0sk.ar/runner/internal/test/recorded"
	"arbe.0sk.ar/runner/mirror"
	"arbe.0sk.ar/runner/session"
	"arbe.0sk.ar/runner/thread"
	"arbe.0sk.ar/runner/thread/redact"
)

var update = flag.Bool("update", false, "write the golden files anew")

const testdata = "../../../testdata"

// recordings returns recorded threads, and the recorded sessions as a runner mirrors them, by name.
func recordings(t *testing.T) map[string][]thread.Entry {
	t.Helper()
	all := map[string][]thread.Entry{}
	for _, folder := range []string{"threads", "tools"} {
		paths, err := filepath.Glob(filepath.Join(testdata, folder, "*.ndjson"))
		if err != nil || len(paths) == 0 {
			t.Fatalf("no recorded threads: %v", err)
		}
		for _, p := range paths {
			b, err := os.ReadFile(p)
			if err != nil {
				t.Fatal(err)
			}
			all[folder+"_"+strings.TrimSuffix(filepath.Base(p), ".ndjson")] = parsed(t, string(b))
		}
	}
	for name, file := range recorded.Sessions(t, testdata) {
		d := recorded.Dialect(t, name)
		e := mirror.Encoder{Namer: mirror.Namer{Dialect: d, Session: "s"}, Redact: &redact.Redactor{}}
		i, as := 0, strings.ReplaceAll(name, "/", "_")
		for line := range strings.Lines(string(file)) {
			entry, _ := e.Encode(session.Line{
				Start: session.Position{Index: i}, Data: []byte(strings.TrimSuffix(line, "\n")),
			})
			all[as], i = append(all[as], entry), i+1
		}
	}
	return all
}

func parsed(t *testing.T, ndjson string) []thread.Entry {
	t.Helper()
	var all []thread.Entry
	for line := range strings.Lines(strings.TrimSpace(ndjson)) {
		e, err := thread.ParseStored([]byte(strings.TrimSpace(line)))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, e)
	}
	return all
}

// looks are the outputs that each recording is painted for.
var looks = []struct {
	name    string
	columns int // 0 for a pipe
	env     map[string]string
	full    bool
}{
	{"80 columns", 80, nil, false},
	{"120 columns", 120, nil, false},
	{"80 columns, full", 80, nil, true},
	{"80 columns, NO_COLOR", 80, map[string]string{"NO_COLOR": "1"}, false},
	{"80 columns, TERM=dumb", 80, map[string]string{"TERM": "dumb"}, false},
	{"pipe", 0, nil, false},
	{"pipe, COLUMNS=80", 0, map[string]string{"COLUMNS": "80"}, false},
}

// painted returns what a screen writes of entries, without a live line.
func painted(t *testing.T, all []thread.Entry, columns int, env map[string]string, full bool) string {
	t.Helper()
	width := func() int { return columns }
	if columns == 0 {
		width = nil
	}
	o := optionsFor(width, func(name string) string { return env[name] })
	o.Live, o.Full, o.Thread = false, full, "t1"
	var out bytes.Buffer
	s := New(&out, o)
	for _, e := range all {
		if err := s.Entry(e); err != nil {
			t.Fatal(err)
		}
	}
	s.flush()
	return out.String()
}

// Recorded runs of the three agents look as they did when somebody last looked at them. A look that is the same as an
// earlier one is not written again. ESC is written as ␛.
func TestGolden(t *testing.T) {
	utc(t)
	for name, all := range recordings(t) {
		synctest.Test(t, func(t *testing.T) { // it is 2000
			var got strings.Builder
			before := map[string]string{}
			for _, look := range looks {
				text := painted(t, all, look.columns, look.env, look.full)
				if look.columns == 0 || look.env != nil {
					if strings.Contains(text, "\x1b") {
						t.Errorf("%s, %s: there is an escape sequence in it", name, look.name)
					}
				}
				text = strings.ReplaceAll(text, "\x1b", "␛")
				got.WriteString("-- " + look.name + " --\n")
				if same := before[text]; same != "" {
					got.WriteString("(as " + same + ")\n")
					continue
				}
				before[text] = look.name
				got.WriteString(text)
			}
			golden(t, filepath.Join(testdata, "view", name+".txt"), got.String())
		})
	}
}

// utc makes UTC the user's time zone.
func utc(t *testing.T) {
	local := time.Local
	time.Local = time.UTC
	t.Cleanup(func() { time.Local = local })
}

func golden(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), got); d != "" {
		t.Errorf("%s: -want +got:\n%s", path, d)
	}
}
