package harness_test

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"testing"

	"arbe.0sk.ar/runner/harness"
)

// A Talk that was written down and read again at any line continues as the one that was not.
func TestTalkJSON(t *testing.T) {
	for _, r := range recordings(t) {
		t.Run(filepath.Base(r.dir), func(t *testing.T) {
			var whole, read harness.Talk
			for i, line := range r.stdout {
				a, b := r.live.Read(&whole, line), r.live.Read(&read, line)
				if fmt.Sprintf("%+v", a) != fmt.Sprintf("%+v", b) {
					t.Fatalf("line %d means %+v, and to the state that was read %+v", i, a, b)
				}
				state, err := json.Marshal(read)
				if err == nil {
					read = harness.Talk{}
					err = json.Unmarshal(state, &read)
				}
				if err != nil {
					t.Fatal(err)
				}
				if got, want := fmt.Sprintf("%+v", read), fmt.Sprintf("%+v", whole); got != want {
					t.Fatalf("line %d: read %s, want %s", i, got, want)
				}
			}
		})
	}
}
