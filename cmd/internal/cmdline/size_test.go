package cmdline

import "testing"

func TestSize(t *testing.T) {
	for text, want := range map[string]int64{
		"0": 0, "1000": 1000, "64KiB": 64 << 10, "256MiB": 256 << 20,
		"1GiB": 1 << 30, "2TiB": 2 << 40,
	} {
		var s Size
		if err := s.Set(text); err != nil || int64(s) != want {
			t.Errorf("%s is %d, %v", text, s, err)
		}
	}
	for _, text := range []string{"", "-1", "1.5GiB", "GiB", "1GB", "9000000TiB", "99999999999999999999"} {
		if err := new(Size).Set(text); err == nil {
			t.Errorf("%q is taken", text)
		}
	}
}
