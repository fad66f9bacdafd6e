package pebble

import (
	"archive/tar"
	"bytes"
	"cmp"
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

	"arbe.0sk.ar/runner/internal/format"
)

// A backup is a tar archive of a store's files, without folders. Its last member is a manifest: an archive without it
// is not whole.
const (
	archiveFormat   = 1
	archiveManifest = "backup.json"
	mostManifest    = 256 << 20 // bytes: some millions of files
)

// Backup describes a backup.
type Backup struct {
	Made  time.Time
	Files int
	Bytes int64 // of its files
}

// manifest is the last member of an archive.
type manifest struct {
	Format int            `json:"format"`
	Store  int            `json:"store"` // format of the store in the archive
	Made   time.Time      `json:"made"`
	Files  []manifestFile `json:"files"`
}

type manifestFile struct {
	Name   string `json:"name"`
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
}

// ErrBackup is the error of a file that is no backup, or has changed since it was written.
var ErrBackup = errors.New("the backup is damaged")

// writeArchive writes the files in dir to w, and their manifest. The files must not change meanwhile.
func writeArchive(ctx context.Context, w io.Writer, dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	out := tar.NewWriter(w)
	m := manifest{Format: archiveFormat, Store: logFormat, Made: time.Now().UTC().Truncate(time.Second)}
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
	if err := out.WriteHeader(header(archiveManifest, int64(b.Len()), m.Made)); err != nil {
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

// addFile adds a file to an archive.
func addFile(
	ctx context.Context, out *tar.Writer, path string, made time.Time, buf []byte,
) (m manifestFile, err error) {
	f, err := os.Open(path)
	if err != nil {
		return m, err
	}
	defer f.Close() // opened to read: the error means nothing
	st, err := f.Stat()
	if err != nil {
		return m, err
	}
	if !st.Mode().IsRegular() {
		return m, errors.New("not a regular file")
	}
	m.Name, m.Size = filepath.Base(path), st.Size()
	if err := out.WriteHeader(header(m.Name, m.Size, made)); err != nil {
		return m, err
	}
	sum := sha256.New()
	n, err := io.CopyBuffer(io.MultiWriter(out, sum), io.LimitReader(ctxReader{ctx, f}, m.Size), buf)
	if err == nil && n != m.Size {
		err = io.ErrUnexpectedEOF
	}
	m.SHA256 = hex.EncodeToString(sum.Sum(nil))
	return m, err
}

// ctxReader is a reader that fails once its context is done.
type ctxReader struct {
	ctx context.Context
	r   io.Reader
}

func (c ctxReader) Read(b []byte) (int, error) {
	if c.ctx.Err() != nil {
		return 0, context.Cause(c.ctx)
	}
	return c.r.Read(b)
}

// CheckBackup reads a backup to its end and describes it. ErrBackup: it is damaged or not whole. format.ErrLater: a
// later program has written it.
func CheckBackup(ctx context.Context, r io.Reader) (Backup, error) {
	return readArchive(ctx, r, func(string) (io.WriteCloser, error) { return discard{}, nil })
}

// discard is a file that keeps nothing.
type discard struct{}

func (discard) Write(b []byte) (int, error) { return len(b), nil }
func (discard) Close() error                { return nil }

// memberName matches the names of the files in an archive.
var memberName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,199}$`)

// readArchive reads an archive to its end, and writes its files to those that create returns. They are valid only if
// readArchive returns no error.
func readArchive(ctx context.Context, r io.Reader, create func(name string) (io.WriteCloser, error)) (Backup, error) {
	r = ctxReader{ctx, r}
	in := tar.NewReader(r)
	have := map[string]manifestFile{}
	buf := make([]byte, 128<<10)
	for {
		h, err := in.Next()
		switch {
		case errors.Is(err, io.EOF):
			return Backup{}, fmt.Errorf("%w: it ends before its manifest", ErrBackup)
		case err != nil:
			return Backup{}, readError(err)
		case h.Typeflag != tar.TypeReg || !memberName.MatchString(h.Name) || sparse(h):
			return Backup{}, fmt.Errorf("%w: member %.80q is not a file of a store", ErrBackup, h.Name)
		}
		if h.Name == archiveManifest {
			return readManifest(in, r, h.Size, have)
		}
		if _, twice := have[h.Name]; twice {
			return Backup{}, fmt.Errorf("%w: it has member %s twice", ErrBackup, h.Name)
		}
		f, err := create(h.Name)
		if err != nil {
			return Backup{}, err
		}
		sum := sha256.New()
		out := &errWriter{w: f}
		n, err := io.CopyBuffer(io.MultiWriter(out, sum), in, buf)
		if closeErr := f.Close(); out.err == nil {
			out.err = closeErr
		}
		if out.err != nil {
			return Backup{}, out.err // the backup may be good
		}
		if err != nil {
			return Backup{}, readError(err)
		}
		have[h.Name] = manifestFile{h.Name, n, hex.EncodeToString(sum.Sum(nil))}
	}
}

// sparse reports whether a member claims to be larger than its data.
func sparse(h *tar.Header) bool {
	for key := range h.PAXRecords {
		if strings.HasPrefix(key, "GNU.sparse.") {
			return true
		}
	}
	return false
}

// errWriter records the error of the last write.
type errWriter struct {
	w   io.Writer
	err error
}

func (e *errWriter) Write(b []byte) (n int, err error) {
	n, e.err = e.w.Write(b)
	return n, e.err
}

// readError returns ErrBackup for an archive that is cut off or is no tar file, and else the error of its reader.
func readError(err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, tar.ErrHeader) {
		return fmt.Errorf("%w: %w", ErrBackup, err)
	}
	return fmt.Errorf("read the backup: %w", err)
}

// readManifest reads the manifest, which is the rest of the archive, and compares it with the members before it.
func readManifest(in, rest io.Reader, size int64, have map[string]manifestFile) (Backup, error) {
	if size > mostManifest {
		return Backup{}, fmt.Errorf("%w: a manifest of %d bytes", ErrBackup, size)
	}
	b, err := io.ReadAll(in)
	if err != nil {
		return Backup{}, readError(err)
	}
	var m manifest
	if err := json.Unmarshal(b, &m); err != nil {
		return Backup{}, fmt.Errorf("%w: its manifest: %w", ErrBackup, err)
	}
	if len(m.Files) == 0 {
		return Backup{}, fmt.Errorf("%w: it has no files", ErrBackup)
	}
	later := format.Check("the backup", m.Format, archiveFormat)
	if err := cmp.Or(later, format.Check("the log in the backup", m.Store, logFormat)); err != nil {
		return Backup{}, err
	}
	info := Backup{Made: m.Made, Files: len(m.Files)}
	for _, want := range m.Files {
		if have[want.Name] != want {
			return Backup{}, fmt.Errorf("%w: member %.80q differs from the manifest", ErrBackup, want.Name)
		}
		delete(have, want.Name)
		info.Bytes += want.Size
	}
	for name := range have {
		return Backup{}, fmt.Errorf("%w: member %s is not in the manifest", ErrBackup, name)
	}
	if err := checkZeros(rest, 1024+int((512-size%512)%512)); err != nil {
		return Backup{}, err
	}
	return info, nil
}

// checkZeros reads to the end of a tar archive, which is zeros: the padding of the last member, and two blocks.
func checkZeros(r io.Reader, least int) error {
	buf := make([]byte, 32<<10)
	for total := 0; ; {
		n, err := r.Read(buf)
		total += n
		if len(bytes.Trim(buf[:n], "\x00")) > 0 {
			return fmt.Errorf("%w: there is data after its manifest", ErrBackup)
		}
		switch {
		case errors.Is(err, io.EOF) && total < least:
			return fmt.Errorf("%w: %w", ErrBackup, io.ErrUnexpectedEOF)
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return readError(err)
		}
	}
}
