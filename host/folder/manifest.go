package folder

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
	"unicode/utf8"

	"arbe.0sk.ar/runner/host/folder/repository"
	"arbe.0sk.ar/runner/internal/durable"
)

// Manifest is the content of a folder: an Entry for each path, relative and with slashes.
type Manifest map[string]Entry

// Entry is one file, folder or link. The zero Entry is that of a path that does not exist. Entries compare with ==.
type Entry struct {
	Type   Type
	Mode   fs.FileMode // permission bits of a file or folder
	Size   int64       // of a file, in bytes
	SHA256 Sum         // of a file
	Link   string      // the target of a link
}

// Type is the type of an Entry.
type Type byte

// The types. Special is a device, a socket or a named pipe, which is never copied.
const (
	Absent  Type = 0
	File    Type = 'f'
	Dir     Type = 'd'
	Link    Type = 'l'
	Special Type = 's'
)

// Sum is a SHA-256. The zero Sum is an unknown one.
type Sum [sha256.Size]byte

// header is the first line of a saved manifest.
type header struct {
	Manifest int `json:"manifest"` // the version of the format: 1
	Entries  int `json:"entries"`  // lines that follow

	Repositories map[string]repository.State `json:"repositories,omitempty"`
}

// line is one entry of a saved manifest. Paths and targets that are not UTF-8 are in the Raw fields, as base64.
type line struct {
	Path    string `json:"path,omitempty"`
	RawPath []byte `json:"rawPath,omitempty"`
	Type    string `json:"type"`
	Mode    uint32 `json:"mode,omitempty"`
	Size    int64  `json:"size,omitempty"`
	SHA256  string `json:"sha256,omitempty"`
	Link    string `json:"link,omitempty"`
	RawLink []byte `json:"rawLink,omitempty"`
}

// text splits s into the field for text and the one for raw bytes.
func text(s string) (string, []byte) {
	if utf8.ValidString(s) {
		return s, nil
	}
	return "", []byte(s)
}

// Encode writes the base as JSON lines, sorted by path, one entry at a time.
func (b Base) Encode(w io.Writer) error {
	enc := json.NewEncoder(w)
	if err := enc.Encode(header{1, len(b.Manifest), b.Repositories}); err != nil {
		return err
	}
	for _, path := range slices.Sorted(maps.Keys(b.Manifest)) {
		e := b.Manifest[path]
		l := line{Type: string(rune(e.Type)), Mode: uint32(e.Mode), Size: e.Size}
		l.Path, l.RawPath = text(path)
		l.Link, l.RawLink = text(e.Link)
		if e.Type == File {
			l.SHA256 = hex.EncodeToString(e.SHA256[:])
		}
		if err := enc.Encode(l); err != nil {
			return err
		}
	}
	return nil
}

// Decode reads a base that Encode wrote. A truncated one is an error.
func Decode(r io.Reader) (b Base, err error) {
	dec := json.NewDecoder(r)
	var h header
	if err := dec.Decode(&h); err != nil {
		return b, fmt.Errorf("read manifest: %w", err)
	}
	if h.Manifest != 1 {
		return b, fmt.Errorf("read manifest: unknown version %d", h.Manifest)
	}
	m := Manifest{}
	for range h.Entries {
		var l line
		if err := dec.Decode(&l); err != nil {
			return b, fmt.Errorf("read manifest: %w", err)
		}
		e := Entry{Mode: fs.FileMode(l.Mode), Size: l.Size, Link: l.Link + string(l.RawLink)}
		if len(l.Type) == 1 {
			e.Type = Type(l.Type[0])
		}
		if e.Type == File {
			if n, err := hex.Decode(e.SHA256[:], []byte(l.SHA256[:min(len(l.SHA256), 64)])); err != nil ||
				n != len(e.SHA256) {
				return b, fmt.Errorf("read manifest: bad SHA-256 %q", l.SHA256)
			}
		}
		m[l.Path+string(l.RawPath)] = e
	}
	if len(m) != h.Entries {
		return b, fmt.Errorf("read manifest: %d paths in %d lines", len(m), h.Entries)
	}
	return Base{m, h.Repositories}, nil
}

// Save writes the base to the file at path. When it returns nil, the file is on disk. After an error or a crash the
// file is the previous one or the new one.
func (b Base) Save(path string) error {
	err := durable.Create(path, func(f io.Writer) error {
		w := bufio.NewWriter(f)
		if err := b.Encode(w); err != nil {
			return err
		}
		return w.Flush()
	})
	if err != nil {
		return fmt.Errorf("save manifest: %w", err)
	}
	return nil
}

// Load reads the base that Save wrote to the file at path.
func Load(path string) (Base, error) {
	f, err := os.Open(path)
	if err != nil {
		return Base{}, err
	}
	b, err := Decode(bufio.NewReader(f))
	return b, errors.Join(err, f.Close())
}
