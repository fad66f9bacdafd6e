package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/url"
	"time"
)

// part is one file on its way into a box.
type part struct {
	path    string
	content io.Reader
	size    int64 // -1 where nobody knows
}

// Upload sends all files under other names first, because the daemon leaves half a file where a request breaks off, and because a program that runs can't be
// written over. Only when they are there, whole, they take their names.
func (b *daytonaBox) Upload(ctx context.Context, files ...File) error {
	if len(files) == 0 {
		return nil
	}
	parts := make([]part, len(files))
	places := make([]string, len(files))
	var size int64
	for i, f := range files {
		place, err := f.place(b.work, b.home)
		if err != nil {
			return err
		}
		places[i] = place
		parts[i] = part{path: tempName(place), content: f.content(), size: f.Size}
		size += f.Size
	}
	err := b.send(ctx, parts, size)
	for i := 0; err == nil && i < len(files); i++ {
		query := url.Values{"path": {parts[i].path}, "mode": {fmt.Sprintf("%04o", files[i].mode())}}
		err = b.call(ctx, request{doing: "set the mode of " + files[i].Path, method: http.MethodPost, url: "/files/permissions?" + query.Encode()})
	}
	for i := 0; err == nil && i < len(files); i++ {
		err = b.move(ctx, parts[i].path, places[i])
	}
	if err != nil && !errors.Is(err, ErrGone) {
		life, cancel := context.WithTimeout(context.WithoutCancel(ctx), attempt)
		defer cancel()
		for _, p := range parts {
			b.remove(life, p.path)
		}
	}
	return err
}

// move renames a file, over the one that is there. A daemon that refuses that has mv, which does not.
func (b *daytonaBox) move(ctx context.Context, from, to string) error {
	query := url.Values{"source": {from}, "destination": {to}}
	err := b.call(ctx, request{doing: "move a file to " + to, method: http.MethodPost, url: "/files/move?" + query.Encode(), once: true})
	if !answered(err, http.StatusConflict) {
		return err
	}
	said, code, err := b.execute(ctx, sh("move a file to "+to, `mv -fT "$1" "$2"`, from, to))
	if err == nil && code != 0 {
		err = fmt.Errorf("daytona: move a file to %s: %s", to, clip(said))
	}
	return err
}

// remove takes away what was left of something that failed, or was cut short. That it can't be is no news beside that.
func (b *daytonaBox) remove(ctx context.Context, path string) {
	query := url.Values{"path": {path}, "recursive": {"true"}}
	_ = b.p.do(ctx, request{doing: "remove " + path, method: http.MethodDelete, url: b.toolbox + "/files?" + query.Encode()})
}

// slowest is the least speed, in bytes a second, that an upload is given time for.
const slowest = 64 << 10

// send uploads parts as they are read: none is held in memory, and so none can be sent twice.
func (b *daytonaBox) send(ctx context.Context, parts []part, size int64) error {
	q := request{doing: "upload", method: http.MethodPost, url: b.toolbox + "/files/bulk-upload", attempt: attempt + time.Duration(size/slowest)*time.Second}
	ctx, cancel := context.WithTimeout(ctx, q.attempt)
	defer cancel()
	pr, pw := io.Pipe()
	form := multipart.NewWriter(pw)
	written := make(chan error, 1)
	go func() {
		err := writeParts(form, parts)
		// Content that can't be read ends the form and not the connection: only then the daemon has ended, too, when what it wrote is removed.
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
	case <-ctx.Done(): // content that blocks can't be interrupted, and is left to whoever gave it
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

// errUnread says that the server has answered before it read all, in which case its answer says why.
var errUnread = errors.New("the server reads no more")

// writeParts writes the form. The daemon wants to know a file's path before the file.
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
