package sandbox

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/google/uuid"
)

// place is where the boxes of one local provider are. It stands in each box's record in plain words, and hashed in
// its id.
type place struct {
	Machine string `json:"machine,omitempty"` // the operating system's machine id; "" where there is none
	Host    string `json:"host,omitempty"`    // the machine's name
	Path    string `json:"path,omitempty"`    // the provider's folder, absolute, without links
}

// here is the place of the provider whose folder is dir, an absolute path.
func here(dir string) place {
	p := place{Path: resolve(dir)}
	for _, file := range []string{"/etc/machine-id", "/var/lib/dbus/machine-id"} {
		if id, err := os.ReadFile(file); err == nil && p.Machine == "" {
			p.Machine = strings.TrimSpace(string(id))
		}
	}
	p.Host, _ = os.Hostname() // a machine without a name still has its id
	return p
}

// resolve is dir without the links in it; what is not there yet is taken as it is.
func resolve(dir string) string {
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		return real
	}
	up := filepath.Dir(dir)
	if up == dir {
		return dir
	}
	return filepath.Join(resolve(up), filepath.Base(dir))
}

// prefix is what the ids of the place's boxes begin with: 12 hex digits.
func (p place) prefix() string {
	sum := sha256.Sum256([]byte(p.Machine + "\n" + p.Host + "\n" + p.Path))
	return hex.EncodeToString(sum[:])[:12]
}

func (p place) String() string { return p.Path + " on " + p.Host }

// localID matches the ids of local boxes. Those that were made before ids named their place have no prefix.
var localID = regexp.MustCompile(`\A(?:([0-9a-f]{12})-)?[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\z`)

// newID is the id of a new box.
func (p *Local) newID() (string, error) {
	id, err := uuid.NewV7()
	return p.prefix + "-" + id.String(), err
}

// at is the folder of the box with the id, which is not there if the box is gone. It is an error that wraps
// ErrForeign where the id is, or may be, that of a box on another machine or in another folder. An id that isn't one
// could lead anywhere.
func (p *Local) at(id string) (string, error) {
	m := localID.FindStringSubmatch(id)
	if m == nil {
		return "", fmt.Errorf("%q is not the id of a local box", id)
	}
	dir := filepath.Join(p.dir, id)
	_, err := os.Lstat(dir)
	there := err == nil
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("look at the local box %s: %w", id, err)
	}
	switch {
	case m[1] == p.prefix, m[1] == "" && there:
		return dir, nil
	case m[1] == "":
		return "", fmt.Errorf("the local box %s is not in %s: it is gone, or %w", id, p.place, ErrForeign)
	}
	made := ""
	if rec, err := readRecord(dir); err == nil { // the folder was moved here, or the machine renamed
		made = ", made in " + rec.place.String()
	}
	return "", fmt.Errorf("the local box %s%s %w: this is %s", id, made, ErrForeign, p.place)
}
