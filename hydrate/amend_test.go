package hydrate_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"arbe.0sk.ar/runner/hydrate"
	"arbe.0sk.ar/runner/internal/test/fakethread"
	"arbe.0sk.ar/runner/session"
)

// A rebuilt file ends with the line that the agent needs to continue it, once, whether it is written or copied.
func TestAmend(t *testing.T) {
	const (
		begin = `{"parentUuid":null,"isSidechain":false,"type":"user","uuid":"u1","sessionId":"s1","message":{"role":"user","content":"one"}}
{"parentUuid":"u1","isSidechain":false,"type":"assistant","uuid":"a1","sessionId":"s1","message":{"role":"assistant","content":[]}}
{"parentUuid":"a1","isSidechain":false,"type":"system","subtype":"api_error","uuid":"e1","sessionId":"s1"}
`
		noted = `{"type":"last-prompt","lastPrompt":"go","leafUuid":"e1","sessionId":"s1"}
`
		beside = `{"parentUuid":"a1","isSidechain":false,"type":"user","uuid":"u2","sessionId":"s1","message":{"role":"user","content":"two"}}
`
		want = `{"type":"last-prompt","leafUuid":"u2","sessionId":"s1"}
`
	)
	for _, tt := range []struct {
		name, file, more string
		amend            bool
	}{
		{"an old note", begin + noted + beside, want, true},
		{"not asked for", begin + noted + beside, "", false},
		{"none needed", begin + noted, "", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			server := fakethread.New(t, nil)
			ship(t, session.Claude, []byte(tt.file), server)
			r := &hydrate.Rebuilder{Dialect: session.Claude, TempDir: t.TempDir(), Amend: tt.amend}
			defer r.Close()
			for _, e := range server.Entries() {
				if err := r.Add(hydrate.Parse(e, session.Claude)); err != nil {
					t.Fatal(err)
				}
			}
			plan, err := r.Plan("", time.Time{})
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.Count(tt.file+tt.more, "\n"); plan.Lines != got || plan.Amended != (tt.more != "") {
				t.Errorf("the plan has %d lines, want %d: %+v", plan.Lines, got, plan)
			}
			var copied bytes.Buffer
			if _, err := r.Copy(&copied, "", time.Time{}); err != nil || copied.String() != tt.file+tt.more {
				t.Errorf("%v, copied\n%s\nwant\n%s", err, &copied, tt.file+tt.more)
			}
			path := filepath.Join(t.TempDir(), "s1.jsonl")
			report, err := r.Write(path, "", time.Time{})
			if err != nil {
				t.Fatal(err)
			}
			got, err := os.ReadFile(path)
			if err != nil || string(got) != tt.file+tt.more || report.Size != int64(len(got)) {
				t.Errorf("%v, wrote %d bytes of\n%s\nwant\n%s", err, report.Size, got, tt.file+tt.more)
			}
		})
	}
}
