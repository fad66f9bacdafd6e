package daytona

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/url"
	"time"

	"arbe.0sk.ar/runner/host/sandbox"
	"arbe.0sk.ar/runner/host/sandbox/kit"
)

// part is one file on its way into a box.
type part struct {
	path    string
	content io.Reader
	size    int64 // -1 if unknown
}

// Upload sends all files under temporary names and renames them when they are complete: the daemon leaves half a file
// if a request breaks off, and a running program can't be overwritten.
func (b *box) Upload(ctx context.Context, files ...sandbox.File) error {
	if len(files) == 0 {
		return nil
	}
	parts := make([]part, len(files))
	places := make([]string, len(files))
	var size int64
	for i, f := range files {
		place, err := f.Place(b.work, b.home)
		if err != nil {
			return err
		}
		places[i] = place
		parts[i] = part{path: kit.TempName(place), content: f.Reader(), size: f.Size}
		size += f.Size
	}
	err := b.send(ctx, parts, size)
	for i := 0; err == nil && i < len(files); i++ {
		query := url.Values{"path": {parts[i].path}, "mode": {fmt.Sprintf("%04o", files[i].Perm())}}
		err = b.call(ctx, request{
			doing: "set the mode of " + files[i].Path, method: http.MethodPost,
			url: "/files/permissions?" + query.Encode(),
		})
	}
	for i := 0; err == nil && i < len(files); i++ {
		err = b.move(ctx, parts[i].path, places[i])
	}
	if err != nil && !errors.Is(err, sandbox.ErrGone) {
		life, cancel := context.WithTimeout(context.WithoutCancel(ctx), attempt)
		defer cancel()
		for _, p := range parts {
			b.remove(life, p.path)
		}
	}
	return err
}

// move renames a file, and replaces an existing one. If the daemon refuses to replace it, mv does.
func (b *box) move(ctx context.Context, from, to string) error {
	query := url.Values{"source": {from}, "destination": {to}}
	err := b.call(ctx, request{
		doing: "move a file to " + to, method: http.MethodPost, url: "/files/move?" + query.Encode(), once: true,
	})
	if !answered(err, http.StatusConflict) {
		return err
	}
	output, code, err := b.execute(ctx, sh("move a file to "+to, `mv -fT "$1" "$2"`, from, to))
	if err == nil && code != 0 {
		err = fmt.Errorf("daytona: move a file to %s%s", to, kit.After(output))
	}
	return err
}

// remove deletes what a failed operation left. Its own failure is not reported: the caller returns the first one.
func (b *box) remove(ctx context.Context, path string) {
	query := url.Values{"path": {path}, "recursive": {"true"}}
	_ = b.p.do(ctx, request{
		doing: "remove " + path, method: http.MethodDelete, url: b.toolbox + "/files?" + query.Encode(),
	})
}

// minSpeed is the speed, in bytes a second, below which an upload times out.
const minSpeed = 64 << 10

// send streams the parts. It holds none in memory, so it can't retry.
func (b *box) send(ctx context.Context, parts []part, size int64) error {
	q := request{
		doing: "upload", method: http.MethodPost, url: b.toolbox + "/files/bulk-upload",
		attempt: attempt + time.Duration(size/minSpeed)*time.Second,
	}
	ctx, cancel := context.WithTimeout(ctx, q.attempt)
	defer cancel()
	pr, pw := io.Pipe()
	form := multipart.NewWriter(pw)
	written := make(chan error, 1)
	go func() {
		err := writeParts(form, parts)
		// A read error ends the form and not the connection: so the daemon has finished before its files are removed.
		_ = pw.CloseWithError(form.Close()) // never fails
		written <- err
	}()
	req, err := http.NewRequestWithContext(ctx, q.method, q.url, pr)
	if err != nil {
		return errors.Join(err, pr.Close(), <-written)
	}
	req.Header.Set("Content-Type", form.FormDataContentType())
	b.p.sign(req, q)
	one := *b.p.hc
	one.Transport = whole{one.Transport}
	resp, err := one.Do(req)
	_ = pr.CloseWithError(errUnread) // never fails
	var werr error
	select {
	case werr = <-written:
	case <-ctx.Done(): // a Read that blocks can't be interrupted: it lasts until the caller's content returns
		werr = context.Cause(ctx)
	}
	if werr != nil && !errors.Is(werr, errUnread) && !errors.Is(werr, io.ErrClosedPipe) {
		if err == nil {
			werr = errors.Join(werr, resp.Body.Close())
		}
		return fmt.Errorf("daytona: upload: %w", werr)
	}
	return b.judge(ctx, b.p.read(q, resp, err))
}

// errUnread is the write error if the server answers before it has read everything. Its answer has the reason.
var errUnread = errors.New("the server reads no more")

// writeParts writes the form. The daemon needs a file's path before the file.
func writeParts(form *multipart.Writer, parts []part) error {
	for i, p := range parts {
		if err := form.WriteField(fmt.Sprintf("files[%d].path", i), p.path); err != nil {
			return err
		}
		w, err := form.CreateFormFile(fmt.Sprintf("files[%d].file", i), "file")
		if err != nil {
			return err
		}
		n, err := io.Copy(w, p.content)
		if err != nil {
			return err
		}
		if p.size >= 0 && n != p.size {
			return fmt.Errorf("%s: the content has %d bytes, not %d", p.path, n, p.size)
		}
	}
	return nil
}

// downloadTimeout bounds one download. It is the time of an upload of 2 GiB at minSpeed.
const downloadTimeout = 9 * time.Hour

// Download streams the file: no part of it is kept in memory.
func (b *box) Download(ctx context.Context, path string, w io.Writer) error {
	place, err := sandbox.ConfineFile(b.home, path)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, downloadTimeout)
	defer cancel()
	query := url.Values{"path": {place}}
	q := request{
		doing: "download " + path, method: http.MethodGet, url: b.toolbox + "/files/download?" + query.Encode(),
	}
	req, err := http.NewRequestWithContext(ctx, q.method, q.url, nil)
	if err != nil {
		return err
	}
	b.p.sign(req, q)
	resp, err := b.p.hc.Do(req)
	if err != nil || resp.StatusCode/100 != 2 {
		return b.judge(ctx, b.p.read(q, resp, err))
	}
	n, err := io.Copy(w, resp.Body)
	if err == nil && resp.ContentLength >= 0 && n != resp.ContentLength {
		err = fmt.Errorf("%d of %d bytes arrived", n, resp.ContentLength)
	}
	if err = errors.Join(err, resp.Body.Close()); err != nil {
		return fmt.Errorf("daytona: download %s: %w", path, err)
	}
	return nil
}
