package thread_test

import (
	"testing"

	"arbe.0sk.ar/runner/thread"
)

func TestTypes(t *testing.T) {
	signals, quiet := []string{"signal."}, []string{thread.TypeDelta}
	for _, tt := range []struct {
		name  string
		types thread.Types
		typ   string
		want  bool
	}{
		{"all", thread.Types{}, thread.TypeChat, true},
		{"all, no type", thread.Types{}, "", true},
		{"of", thread.Types{Of: signals}, thread.TypeHeartbeat, true},
		{"not of", thread.Types{Of: signals}, thread.TypeChat, false},
		{"of several", thread.Types{Of: []string{"codex.", "chat"}}, thread.TypeChat, true},
		{"without", thread.Types{Without: quiet}, thread.TypeDelta, false},
		{"without another", thread.Types{Without: quiet}, thread.TypeChat, true},
		{"without, no type", thread.Types{Without: quiet}, "", true},
		{"of and without", thread.Types{Of: signals, Without: quiet}, thread.TypeDelta, false},
		{"of and without another", thread.Types{Of: signals, Without: quiet}, thread.TypeDecided, true},
		{"neither of nor without", thread.Types{Of: signals, Without: quiet}, thread.TypeChat, false},
	} {
		if got := tt.types.Has(tt.typ); got != tt.want {
			t.Errorf("%s: %q: got %v", tt.name, tt.typ, got)
		}
		if all := len(tt.types.Of) == 0 && len(tt.types.Without) == 0; tt.types.All() != all {
			t.Errorf("%s: All: got %v", tt.name, !all)
		}
	}
}
