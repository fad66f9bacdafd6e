package local

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

	"arbe.0sk.ar/runner/host/sandbox"
)

// place is the location of the boxes of one local provider. Each box's record has it as text, its id has a hash of it.
type place struct {
	Machine string `json:"machine,omitempty"` // the operating system's machine id; "" if it has none
	Host    string `json:"host,omitempty"`    // the machine's name
	Path    string `json:"path,omitempty"`    // the provider's folder, absolute, without links
}

// here returns the place of the provider with the folder dir, an absolute path.
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

// resolve returns dir without symbolic links. Parts that do not exist yet stay as they are.
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

// prefix returns the first part of the ids of the place's boxes: 12 hex digits.
func (p place) prefix() string {
	sum := sha256.Sum256([]byte(p.Machine + "\n" + p.Host + "\n" + p.Path))
	return hex.EncodeToString(sum[:])[:12]
}

func (p place) String() string { return p.Path + " on " + p.Host }

// localID matches the ids of local boxes. Ids of earlier versions have no prefix.
var localID = regexp.MustCompile(`\A(?:([0-9a-f]{12})-)?[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\z`)

// newID returns an id for a new box.
func (p *Provider) newID() (string, error) {
	id, err := uuid.NewV7()
	return p.prefix + "-" + id.String(), err
}

// at returns the folder of the box with the id; the folder does not exist if the box is gone. The error wraps
// ErrForeign if the box is, or may be, one of another machine or folder. An id that does not match localID is
// refused, since it could lead to any path.
func (p *Provider) at(id string) (string, error) {
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
		return "", fmt.Errorf("the local box %s is not in %s: it is gone, or %w", id, p.place, sandbox.ErrForeign)
	}
	made := ""
	if rec, err := readRecord(dir); err == nil { // the folder was moved here, or the machine renamed
		made = ", made in " + rec.place.String()
	}
	return "", fmt.Errorf("the local box %s%s %w: this is %s", id, made, sandbox.ErrForeign, p.place)
}
