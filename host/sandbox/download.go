package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// Download opens the file through an os.Root: no link in the box can lead outside of it.
func (b *localBox) Download(_ context.Context, path string, w io.Writer) (err error) {
	place, err := confineFile(b.Home(), path)
	if err != nil {
		return err
	}
	if err := b.there(); err != nil {
		return err
	}
	root, err := os.OpenRoot(b.dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	rel, err := filepath.Rel(b.dir, place)
	if err != nil {
		return err
	}
	f, err := root.OpenFile(rel, os.O_RDONLY|syscall.O_NONBLOCK, 0) // opening a FIFO would block
	if err != nil {
		return fmt.Errorf("download %s: %w", path, err)
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = errors.New("not a regular file")
	}
	if err == nil {
		_, err = io.Copy(w, f)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("download %s: %w", path, err)
	}
	return nil
}

// downloadTimeout bounds one download. It is the time of an upload of 2 GiB at minSpeed.
const downloadTimeout = 9 * time.Hour

// Download streams the file: no part of it is kept in memory.
func (b *daytonaBox) Download(ctx context.Context, path string, w io.Writer) error {
	place, err := confineFile(b.home, path)
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
