package daemon

import "testing"

func TestMostConnections(t *testing.T) {
	for _, tt := range []struct{ asked, files, each, want int }{
		{0, 1 << 20, 1, 20_000}, {50_000, 1 << 20, 1, 50_000}, {0, 20_000, 1, 18_904}, {0, 1024, 1, 672}, {0, 1024, 2, 336}, {0, 256, 1, 86}, {50, 256, 1, 50}, {0, 100, 1, 1},
	} {
		if got := (Limits{Connections: tt.asked}).most(tt.files, tt.each); got != tt.want {
			t.Errorf("%+v: got %d", tt, got)
		}
	}
}
