package pebble

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// A backup is a tar stream of a store's files, each a plain name, and of a manifest as its last member, without which it is not whole.
const (
	backupFormat   = 1
	backupManifest = "backup.json"
	mostManifest   = 256 << 20 // bytes: some millions of files
)

// Backup is what a backup says of itself.
type Backup struct {
	Made  time.Time
	Files int
	Bytes int64 // of its files
}

// manifest is a backup's last member.
type manifest struct {
	Format int            `json:"format"`
	Store  int            `json:"store"` // the format of the store in it
	Made   time.Time      `json:"made"`
	Files  []manifestFile `json:"files"`
}

type manifestFile struct {
	Name   string `json:"name"`
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
}

// ErrBackup says that a backup is none, or is not what was written.
var ErrBackup = errors.New("the backup is damaged")

// writeBackup writes the files in dir to w, and their manifest. Nothing in dir may change meanwhile.
func writeBackup(ctx context.Context, w io.Writer, dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	out := tar.NewWriter(w)
	m := manifest{Format: backupFormat, Store: format, Made: time.Now().UTC().Truncate(time.Second)}
	buf := make([]byte, 128<<10)
	for _, e := range entries {
		f, err := addFile(ctx, out, filepath.Join(dir, e.Name()), m.Made, buf)
		if err != nil {
			return fmt.Errorf("back up %s: %w", e.Name(), err)
		}
		m.Files = append(m.Files, f)
	}
	var b bytes.Buffer
	if err := json.NewEncoder(&b).Encode(m); err != nil {
		return err
	}
	if err := out.WriteHeader(header(backupManifest, int64(b.Len()), m.Made)); err != nil {
		return err
	}
	if _, err := out.Write(b.Bytes()); err != nil {
		return err
	}
	return out.Close()
}

func header(name string, size int64, made time.Time) *tar.Header {
	return &tar.Header{Typeflag: tar.TypeReg, Name: name, Size: size, Mode: 0o600, ModTime: made}
}

// addFile adds one file to a backup.
func addFile(ctx context.Context, out *tar.Writer, path string, made time.Time, buf []byte) (m manifestFile, err error) {
	f, err := os.Open(path)
	if err != nil {
		return m, err
	}
	defer f.Close() // it was only read
	st, err := f.Stat()
	if err != nil {
		return m, err
	}
	if !st.Mode().IsRegular() {
		return m, errors.New("not a file")
	}
	m.Name, m.Size = filepath.Base(path), st.Size()
	if err := out.WriteHeader(header(m.Name, m.Size, made)); err != nil {
		return m, err
	}
	sum := sha256.New()
	n, err := io.CopyBuffer(io.MultiWriter(out, sum), io.LimitReader(ending{ctx, f}, m.Size), buf)
	if err == nil && n != m.Size {
		err = io.ErrUnexpectedEOF
	}
	m.SHA256 = hex.EncodeToString(sum.Sum(nil))
	return m, err
}

// ending is a reader that ends with its context.
type ending struct {
	ctx context.Context
	r   io.Reader
}

func (e ending) Read(b []byte) (int, error) {
	if err := e.ctx.Err(); err != nil {
		return 0, err
	}
	return e.r.Read(b)
}

// CheckBackup reads a backup to its end, and tells what it is. ErrBackup: it is not whole, or not what was written.
func CheckBackup(ctx context.Context, r io.Reader) (Backup, error) {
	return readBackup(ctx, r, func(string) (io.WriteCloser, error) { return nothing{}, nil })
}

type nothing struct{}

func (nothing) Write(b []byte) (int, error) { return len(b), nil }
func (nothing) Close() error                { return nil }

// backupName is what a file in a backup can be called. There are no folders.
var backupName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,199}$`)

// readBackup reads a backup to its end. Its files go where create says; what went there is only good where there is no error in the end.
func readBackup(ctx context.Context, r io.Reader, create func(name string) (io.WriteCloser, error)) (Backup, error) {
	r = ending{ctx, r}
	in := tar.NewReader(r)
	have := map[string]manifestFile{}
	buf := make([]byte, 128<<10)
	for {
		h, err := in.Next()
		switch {
		case errors.Is(err, io.EOF):
			return Backup{}, fmt.Errorf("%w: it ends before its manifest", ErrBackup)
		case err != nil:
			return Backup{}, badBackup(err)
		case h.Typeflag != tar.TypeReg || !backupName.MatchString(h.Name) || sparse(h):
			return Backup{}, fmt.Errorf("%w: member %.80q is none of a store's files", ErrBackup, h.Name)
		}
		if h.Name == backupManifest {
			return finishBackup(in, r, h.Size, have)
		}
		if _, twice := have[h.Name]; twice {
			return Backup{}, fmt.Errorf("%w: member %s is there twice", ErrBackup, h.Name)
		}
		f, err := create(h.Name)
		if err != nil {
			return Backup{}, err
		}
		sum := sha256.New()
		out := &placing{w: f}
		n, err := io.CopyBuffer(io.MultiWriter(out, sum), in, buf)
		if closeErr := f.Close(); out.err == nil {
			out.err = closeErr
		}
		if out.err != nil {
			return Backup{}, out.err // it is not the backup that is bad
		}
		if err != nil {
			return Backup{}, badBackup(err)
		}
		have[h.Name] = manifestFile{h.Name, n, hex.EncodeToString(sum.Sum(nil))}
	}
}

// sparse reports whether a member says to be much larger than what there is of it.
func sparse(h *tar.Header) bool {
	for key := range h.PAXRecords {
		if strings.HasPrefix(key, "GNU.sparse.") {
			return true
		}
	}
	return false
}

// placing keeps in mind that a write failed.
type placing struct {
	w   io.Writer
	err error
}

func (p *placing) Write(b []byte) (n int, err error) {
	n, p.err = p.w.Write(b)
	return n, p.err
}

// badBackup tells a backup that ends too early from a reader that has other troubles.
func badBackup(err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, tar.ErrHeader) {
		return fmt.Errorf("%w: %w", ErrBackup, err)
	}
	return fmt.Errorf("read the backup: %w", err)
}

// finishBackup reads the manifest, and compares what was there with it.
func finishBackup(in, rest io.Reader, size int64, have map[string]manifestFile) (Backup, error) {
	if size > mostManifest {
		return Backup{}, fmt.Errorf("%w: a manifest of %d bytes", ErrBackup, size)
	}
	b, err := io.ReadAll(in)
	if err != nil {
		return Backup{}, badBackup(err)
	}
	var m manifest
	if err := json.Unmarshal(b, &m); err != nil {
		return Backup{}, fmt.Errorf("%w: its manifest: %w", ErrBackup, err)
	}
	if len(m.Files) == 0 {
		return Backup{}, fmt.Errorf("%w: there is nothing in it", ErrBackup)
	}
	if m.Format > backupFormat || m.Store > format {
		return Backup{}, fmt.Errorf("%w: a backup %d of a store %d; this program knows %d and %d", ErrFormat, m.Format, m.Store, backupFormat, format)
	}
	info := Backup{Made: m.Made, Files: len(m.Files)}
	for _, want := range m.Files {
		if have[want.Name] != want {
			return Backup{}, fmt.Errorf("%w: member %.80q is not what the manifest says", ErrBackup, want.Name)
		}
		delete(have, want.Name)
		info.Bytes += want.Size
	}
	for name := range have {
		return Backup{}, fmt.Errorf("%w: member %s is not in the manifest", ErrBackup, name)
	}
	if err := onlyZeros(rest, 1024+int((512-size%512)%512)); err != nil {
		return Backup{}, err
	}
	return info, nil
}

// onlyZeros reads on to the end of a tar stream, which is of zeros: two blocks of them, behind the rest of the last member's.
func onlyZeros(r io.Reader, least int) error {
	buf := make([]byte, 32<<10)
	for total := 0; ; {
		n, err := r.Read(buf)
		total += n
		if len(bytes.Trim(buf[:n], "\x00")) > 0 {
			return fmt.Errorf("%w: there is more behind its manifest", ErrBackup)
		}
		switch {
		case errors.Is(err, io.EOF) && total < least:
			return fmt.Errorf("%w: %w", ErrBackup, io.ErrUnexpectedEOF)
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return badBackup(err)
		}
	}
}
