package push

import (
	"io"
	"reflect"
	"strings"
	"testing"
)

func TestReadHeader(t *testing.T) {
	a, b := strings.Repeat("a", 40), strings.Repeat("b", 40)
	for in, want := range map[string]header{
		"# v2 git bundle\n" + a + " refs/heads/x\n\nPACK": {
			tips: map[string]string{"refs/heads/x": a},
		},
		"# v3 git bundle\n@object-format=sha1\n-" + b + " a commit\n-" + a + "\n" + a + " refs/heads/x\n\nPACK": {needs: []string{b, a}, tips: map[string]string{"refs/heads/x": a}},
	} {
		got, pack, err := readHeader(strings.NewReader(in))
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%q: got %+v, %v, want %+v", in, got, err, want)
			continue
		}
		if rest, err := io.ReadAll(pack); string(rest) != "PACK" || err != nil {
			t.Errorf("%q: the pack is %q, %v", in, rest, err)
		}
	}
	for in, want := range map[string]string{
		"":                    "cut short",
		"# v2 git bundle\n":   "cut short",
		"# v4 git bundle\n\n": "is malformed",
		"# v3 git bundle\n@object-format=sha256\n\n":                   "object-format=sha256 is not supported",
		"# v3 git bundle\n@filter=blob:none\n\n":                       "filter=blob:none is not supported",
		"# v2 git bundle\n---upload-pack=x refs/heads/x\n\n":           "names no commit",
		"# v2 git bundle\n--x refs/heads/x\n\n":                        "names no commit",
		"# v2 git bundle\n" + a + ":x refs/heads/x\n\n":                "names no commit",
		"# v2 git bundle\n" + strings.Repeat("x", 2<<20):               "cut short",
		"# v2 git bundle\n" + strings.Repeat("-"+a+"\n", 1001) + "\n":  "builds on 1001 commits",
		"# v2 git bundle\n" + strings.Repeat("-"+a+"\n", 1<<16) + "\n": "cut short",
	} {
		if got, _, err := readHeader(strings.NewReader(in)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60q: got %+v, %v, want %q", in, got, err, want)
		}
	}
}
