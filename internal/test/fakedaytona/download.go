package fakedaytona

import (
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"mime/multipart"
	"net/http"
	"net/textproto"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

func (d *daemon) download(w http.ResponseWriter, r *http.Request) error {
	p, err := d.readable(r)
	if err != nil {
		return err
	}
	f, fi, err := open(p)
	if err != nil {
		return err
	}
	defer f.Close()
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Disposition", "attachment; filename="+filepath.Base(p))
	w.Header().Set("Content-Length", strconv.FormatInt(fi.Size(), 10))
	_, _ = io.Copy(w, f) // the client may have gone
	return nil
}

// open opens a file that is no folder.
func open(p string) (*os.File, fs.FileInfo, error) {
	f, err := os.Open(p)
	if err != nil {
		return nil, nil, err
	}
	fi, err := f.Stat()
	if err == nil && fi.IsDir() {
		err = errBad
	}
	if err != nil {
		_ = f.Close() // nothing was written
		return nil, nil, err
	}
	return f, fi, nil
}

// bulkDownload sends the files, and for each that it cannot send, why.
func (d *daemon) bulkDownload(w http.ResponseWriter, r *http.Request) {
	var q struct{ Paths []string }
	if !ask(w, r, &q) {
		return
	}
	if len(q.Paths) == 0 {
		complain(
			w,
			r,
			toolError{
				http.StatusBadRequest,
				"BAD_REQUEST",
				"bad request: request body must be {\"paths\": [ ... ]} and non-empty",
			},
		)
		return
	}
	m := multipart.NewWriter(w)
	w.Header().Set("Content-Type", m.FormDataContentType())
	for _, p := range q.Paths {
		if err := d.downloadPart(m, p); err != nil {
			return // the client has gone
		}
	}
	_ = m.Close() // as above
}

func (d *daemon) downloadPart(m *multipart.Writer, p string) error {
	part := func(name, kind string) (io.Writer, error) {
		h := textproto.MIMEHeader{"Content-Type": {kind}}
		h.Set("Content-Disposition", fmt.Sprintf(`form-data; name=%q; filename=%q`, name, p))
		return m.CreatePart(h)
	}
	f, _, err := open(d.path(p))
	if err != nil {
		body, err := part("error", "application/json")
		if err != nil {
			return err
		}
		return json.NewEncoder(body).Encode(map[string]any{
			"statusCode": http.StatusNotFound, "message": "file not found: " + p, "code": "FILE_NOT_FOUND",
			"timestamp": stamp(time.Now()),
			"path":      "/files/bulk-download", "method": http.MethodPost,
		})
	}
	defer f.Close()
	body, err := part("file", "application/octet-stream")
	if err != nil {
		return err
	}
	_, err = io.Copy(body, f)
	return err
}
