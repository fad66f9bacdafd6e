package folder

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	"arbe.0sk.ar/runner/host/sandbox"
)

// listScript lists the working directory into the folder $1, for find with the arguments $2…: list has
// "type mode size path NUL target NUL" for each path, sums has sha256sum's output for the files. It prints length and
// SHA-256 of both. If the sum of a file is missing, because it changes, its content is fetched.
const listScript = `export LC_ALL=C; dir=$1; shift
command -v gzip >/dev/null || { echo "gzip is missing" >&2; exit 1; }
rm -rf "$dir"; (umask 077; mkdir -p "$dir") || exit
find . -ignore_readdir_race -mindepth 1 "$@" -printf '%y %m %s %p\0%l\0' >"$dir/list" || exit
find . -ignore_readdir_race -mindepth 1 "$@" -type f -print0 2>/dev/null |
	xargs -0 -r sha256sum -z -- >"$dir/sums" 2>/dev/null
about() { wc -c <"$1"; sha256sum <"$1" | cut -c1-64; }
echo $(about "$dir/list") $(about "$dir/sums")`

// packScript archives the files of the list $1/want. The archive lacks files that tar can't read.
const packScript = `dir=$1
tar --null --no-recursion --hard-dereference -I 'gzip -1' -cf "$dir/archive" -T "$dir/want" 2>"$dir/said"
s=$?; [ $s -le 2 ] || { tail -c 2000 "$dir/said" >&2; exit $s; }
echo $(wc -c <"$dir/archive") $(sha256sum <"$dir/archive" | cut -c1-64)`

// copyScript archives copies of the files of the list, for files that changed while packScript read them. It skips
// paths that are no files any more. A file that can't be copied is an error.
const copyScript = `dir=$1; mkdir "$dir/tree" || exit
xargs -0 -r sh -c 'for f; do
	if [ -f "$f" ] && [ ! -L "$f" ]; then
		mkdir -p "$0/tree/${f%/*}" && cp -p -- "$f" "$0/tree/$f" || { [ ! -e "$f" ] || exit 255; }
	fi
done' "$dir" <"$dir/want" || exit
(cd "$dir/tree" && find . -type f -print0) >"$dir/want" || exit
tar -C "$dir/tree" --null -I 'gzip -1' -cf "$dir/archive" -T "$dir/want" || exit
echo $(wc -c <"$dir/archive") $(sha256sum <"$dir/archive" | cut -c1-64)`

// remote is the copy of a folder in a box, and its download.
type remote struct {
	box   Source
	state string // the folder for downloads
	dir   string // the temporary folder in the box, relative to the home
}

// newRemote returns a remote. Its temporary folder in the box has the same name each time, so a Pull that was killed
// leaves no other. newRemote removes the downloads that it left.
func newRemote(box Source, state string) (*remote, error) {
	for i := range rounds {
		if err := os.Remove(archiveName(state, i)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	host, err := os.Hostname()
	if err != nil {
		return nil, err
	}
	if state, err = filepath.Abs(state); err != nil {
		return nil, err
	}
	sum := sha256.Sum256([]byte(host + "\x00" + state))
	return &remote{box: box, state: state, dir: fmt.Sprintf(".arbe/pull-%x", sum[:6])}, nil
}

// rounds bounds the archives that a Pull fetches.
const rounds = 2

func archiveName(state string, i int) string {
	return filepath.Join(state, fmt.Sprintf("archive-%d.tar", i))
}

// tidy removes the temporary folder in the box. It ignores an error: the folder goes with the box.
func (r *remote) tidy(ctx context.Context) {
	_, _ = script(context.WithoutCancel(ctx), r.box, tidyTimeout, `rm -rf "$1"`, r.place())
}

func (r *remote) place() string { return path.Join(r.box.Home(), r.dir) }

// list returns the manifest of the box's folder, without the paths that the matcher hides. A file that could not be
// hashed has no SHA256.
func (r *remote) list(ctx context.Context, match matcher) (Manifest, error) {
	out, err := script(ctx, r.box, scriptTimeout, listScript, append([]string{r.place()}, match.prune()...)...)
	if err != nil {
		return nil, fmt.Errorf("list the box's folder: %w", err)
	}
	words := strings.Fields(out)
	if len(words) != 4 {
		return nil, fmt.Errorf("list the box's folder: unexpected output %q", out)
	}
	m := Manifest{}
	err = r.fetch(ctx, "list", words[:2], func(b *bufio.Reader) error { return readList(b, m, match) })
	if err == nil {
		err = r.fetch(ctx, "sums", words[2:], func(b *bufio.Reader) error { return readSums(b, m) })
	}
	return m, err
}

// fetch downloads a file of the temporary folder, checks its length and SHA-256, and passes it to read.
func (r *remote) fetch(ctx context.Context, name string, is []string, read func(*bufio.Reader) error) (err error) {
	f, err := os.OpenFile(filepath.Join(r.state, name), os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close(), os.Remove(f.Name())) }()
	sum := sha256.New()
	if err := r.box.Download(ctx, r.dir+"/"+name, io.MultiWriter(f, sum)); err != nil {
		return err
	}
	size, err := f.Seek(0, io.SeekCurrent)
	if err == nil && (strconv.FormatInt(size, 10) != is[0] || hex.EncodeToString(sum.Sum(nil)) != is[1]) {
		err = fmt.Errorf("%s of the box's folder: %d bytes arrived, and not the %s bytes that were sent", name, size,
			is[0])
	}
	if err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err == nil {
		err = read(bufio.NewReader(f))
	}
	return err
}

// readList reads the list that listScript makes.
func readList(b *bufio.Reader, m Manifest, match matcher) error {
	for {
		text, err := b.ReadString(0)
		if errors.Is(err, io.EOF) && text == "" {
			return nil
		}
		target, err2 := b.ReadString(0)
		if err = errors.Join(err, err2); err != nil {
			return fmt.Errorf("list of the box's folder: %w", err)
		}
		f := strings.SplitN(strings.TrimSuffix(text, "\x00"), " ", 4)
		if len(f) != 4 {
			return fmt.Errorf("list of the box's folder: unexpected line %q", text)
		}
		mode, err := strconv.ParseUint(f[1], 8, 16)
		size, err2 := strconv.ParseInt(f[2], 10, 64)
		if err = errors.Join(err, err2); err != nil {
			return fmt.Errorf("list of the box's folder: %w", err)
		}
		e := Entry{Type: Special}
		switch f[0] {
		case "f":
			e = Entry{Type: File, Mode: fs.FileMode(mode).Perm(), Size: size}
		case "d":
			e = Entry{Type: Dir, Mode: fs.FileMode(mode).Perm()}
		case "l":
			e = Entry{Type: Link, Link: strings.TrimSuffix(target, "\x00")}
		}
		name, err := clean(f[3])
		if err != nil {
			return err
		}
		if !match.hides(name, e.Type == Dir) {
			m[name] = e
		}
	}
}

// readSums adds the sums that listScript makes. It ignores the sum of a path that the list lacks, and a truncated last
// line.
func readSums(b *bufio.Reader, m Manifest) error {
	for {
		text, err := b.ReadString(0)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		sum, name, _ := strings.Cut(strings.TrimSuffix(text, "\x00"), "  ")
		e, ok := m[path.Clean(name)]
		if !ok || e.Type != File || len(sum) != 2*sha256.Size {
			continue
		}
		if _, err := hex.Decode(e.SHA256[:], []byte(sum)); err == nil {
			m[path.Clean(name)] = e
		}
	}
}

// clean returns the path of a box as a path below the folder.
func clean(name string) (string, error) {
	c := path.Clean(name)
	if !filepath.IsLocal(c) || c == "." {
		return "", fmt.Errorf("the box's folder has the path %q, which is outside of it", name)
	}
	return c, nil
}

// piece is the content of a file in a downloaded archive.
type piece struct {
	Entry
	archive *os.File
	at      int64
}

func (p piece) reader() io.Reader { return io.NewSectionReader(p.archive, p.at, p.Size) }

// archives are the downloaded archives.
type archives struct {
	files  []*os.File
	pieces map[string]piece
}

// Close removes the archives.
func (a *archives) Close() error {
	var errs []error
	for _, f := range a.files {
		errs = append(errs, f.Close(), os.Remove(f.Name()))
	}
	return errors.Join(errs...)
}

// contents fetches the files. A file that has changed since it was listed is fetched again, as a copy that does not
// change, and its piece has the Entry of the copy. A path without a piece is no file any more.
func (r *remote) contents(ctx context.Context, want []string, listed Manifest) (a *archives, err error) {
	a = &archives{pieces: map[string]piece{}}
	if len(want) == 0 {
		return a, nil
	}
	if err := r.round(ctx, a, want, packScript); err != nil {
		return a, err
	}
	var again []string
	for _, name := range want {
		p, ok := a.pieces[name]
		if e := listed[name]; ok && p.Size == e.Size && p.SHA256 == e.SHA256 {
			p.Entry = e
			a.pieces[name] = p
			continue
		}
		delete(a.pieces, name)
		again = append(again, name)
	}
	if len(again) == 0 {
		return a, nil
	}
	return a, r.round(ctx, a, again, copyScript)
}

// round fetches one archive.
func (r *remote) round(ctx context.Context, a *archives, want []string, text string) error {
	var list bytes.Buffer
	for _, name := range want {
		list.WriteString("./" + name + "\x00")
	}
	file := sandbox.File{
		Path: r.dir + "/want", InHome: true,
		Content: bytes.NewReader(list.Bytes()), Size: int64(list.Len()), Mode: 0o600,
	}
	if err := r.box.Upload(ctx, file); err != nil {
		return err
	}
	out, err := script(ctx, r.box, scriptTimeout, text, r.place())
	if err != nil {
		return fmt.Errorf("pack the box's folder: %w", err)
	}
	is := strings.Fields(out)
	if len(is) != 2 {
		return fmt.Errorf("pack the box's folder: unexpected output %q", out)
	}
	f, err := os.Create(archiveName(r.state, len(a.files)))
	if err != nil {
		return err
	}
	a.files = append(a.files, f)
	return r.fetch(ctx, "archive", is, func(b *bufio.Reader) error {
		zip, err := gzip.NewReader(b)
		if err == nil {
			_, err = io.Copy(f, zip)
		}
		if err == nil {
			err = a.index(f)
		}
		if err != nil {
			return fmt.Errorf("archive of the box's folder: %w", err)
		}
		return nil
	})
}

// index finds the contents in an archive.
func (a *archives) index(f *os.File) error {
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	for t := tar.NewReader(f); ; {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if h.Typeflag != tar.TypeReg {
			continue
		}
		name, err := clean(h.Name)
		if err != nil {
			return err
		}
		p := piece{Entry: Entry{Type: File, Mode: h.FileInfo().Mode().Perm(), Size: h.Size}, archive: f}
		if p.at, err = f.Seek(0, io.SeekCurrent); err != nil { // tar reads whole blocks only
			return err
		}
		sum := sha256.New()
		if _, err := io.Copy(sum, t); err != nil {
			return err
		}
		p.SHA256 = Sum(sum.Sum(nil))
		a.pieces[name] = p
	}
}
