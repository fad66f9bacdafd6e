package screen

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"arbe.0sk.ar/runner/host/view"
	"arbe.0sk.ar/runner/internal/test/hostile"
)

// Whatever stands in a field that an agent, a bot, a tool or another writer can choose, and in a name, a terminal obeys
// nothing of it, and shows every character.
func TestHostile(t *testing.T) {
	utc(t)
	for n, text := range hostile.Texts {
		synctest.Test(t, func(t *testing.T) {
			for _, o := range []Options{
				{Live: true, Full: true, Columns: func() int { return 400 }},
				{Live: true, Columns: func() int { return 20 }},
				{},
			} {
				o.Name = func(string) string { return text }
				var out strings.Builder
				s := New(&out, o)
				for _, e := range hostile.Entries("r1", n, text) {
					if err := s.Entry(e); err != nil {
						t.Fatal(err)
					}
					time.Sleep(mostDraws) // the live line is drawn again
				}
				s.Stop()
				for line := range strings.Lines(strings.ReplaceAll(out.String(), "\r\x1b[K", "")) {
					if line = strings.TrimSuffix(line, "\n"); view.Visible(line) != line {
						t.Errorf("%.60q: written as %.200q", text, line)
					}
				}
			}
		})
	}
}
