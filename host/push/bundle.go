package push

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"
)

// header is the beginning of a bundle: the commits that it needs, and the refs that it has. The pack follows it.
type header struct {
	needs []string          // commits that are not in the pack
	tips  map[string]string // refs, and their commits
}

// Bounds of a header. A branch of a run needs far fewer commits than mostNeeds.
const (
	mostHeader = 1 << 20
	mostNeeds  = 1000
)

// readHeader reads a bundle's header, and returns the pack behind it. The format is that of gitformat-bundle(5).
func readHeader(from io.Reader) (h header, pack io.Reader, err error) {
	in := bufio.NewReaderSize(from, mostHeader)
	h.tips = map[string]string{}
	for read, first := 0, true; ; first = false {
		line, err := in.ReadSlice('\n')
		if read += len(line); err != nil || read > mostHeader {
			return h, nil, errors.New("the bundle's header is cut short")
		}
		text := strings.TrimSuffix(string(line), "\n")
		switch {
		case first:
			if text != "# v2 git bundle" && text != "# v3 git bundle" {
				return h, nil, errors.New("the box's bundle is malformed")
			}
		case text == "":
			if len(h.needs) > mostNeeds {
				return h, nil, fmt.Errorf("the bundle builds on %d commits", len(h.needs))
			}
			return h, in, nil
		case text[0] == '@':
			if text != "@object-format=sha1" {
				return h, nil, fmt.Errorf("a bundle with %s is not supported", text[1:])
			}
		case text[0] == '-':
			oid, _, _ := strings.Cut(text[1:], " ")
			if !objectID.MatchString(oid) {
				return h, nil, fmt.Errorf("the bundle's header names no commit in %q", text)
			}
			h.needs = append(h.needs, oid)
		default:
			oid, ref, _ := strings.Cut(text, " ")
			if !objectID.MatchString(oid) {
				return h, nil, fmt.Errorf("the bundle's header names no commit in %q", text)
			}
			h.tips[ref] = oid
		}
	}
}
