package fakedaytona

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
)

var uploadPart = regexp.MustCompile(`^files\[(\d+)\]\.(path|file)$`)

// bulkUpload writes each file as it comes: into its place, so that a half of it is there when the client breaks off,
// and not at all where that is a program that runs. A file's path must come before it.
func (d *daemon) bulkUpload(w http.ResponseWriter, r *http.Request) {
	type uploaded struct {
		Path  string `json:"path"`
		Bytes int64  `json:"bytes"`
	}
	var files []uploaded
	var failures []string
	m, err := r.MultipartReader()
	if err != nil {
		complain(w, r, toolError{http.StatusBadRequest, "BAD_REQUEST", "bad request: " + err.Error()})
		return
	}
	paths := map[string]string{}
	for {
		part, err := m.NextPart()
		if errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			failures = append(failures, err.Error())
			break
		}
		name := uploadPart.FindStringSubmatch(part.FormName())
		switch {
		case name == nil: // not ours
		case name[2] == "path":
			b, err := io.ReadAll(part)
			if err != nil {
				failures = append(failures, err.Error())
			}
			paths[name[1]] = string(b)
		case paths[name[1]] == "":
			failures = append(failures, fmt.Sprintf("file[%s]: missing .path metadata", name[1]))
		default:
			n, err := d.write(paths[name[1]], part)
			if err != nil {
				failures = append(failures, fmt.Sprintf("%s: %v", paths[name[1]], err))
				break
			}
			files = append(files, uploaded{paths[name[1]], n})
		}
	}
	if len(failures) > 0 {
		reply(w, http.StatusBadRequest, map[string]any{"errors": failures, "files": files})
		return
	}
	reply(w, http.StatusOK, map[string]any{"files": files})
}

// upload writes the one file of a form.
func (d *daemon) upload(w http.ResponseWriter, r *http.Request) error {
	f, _, err := r.FormFile("file")
	if err != nil {
		return errBad
	}
	defer f.Close()
	if _, err := d.write(r.URL.Query().Get("path"), f); err != nil {
		return err
	}
	w.WriteHeader(http.StatusOK)
	return nil
}

func (d *daemon) write(path string, from io.Reader) (n int64, err error) {
	p, err := d.writable(path)
	if err != nil {
		return 0, err
	}
	if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
		return 0, err
	}
	f, err := os.OpenFile(p, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return 0, err
	}
	n, err = io.Copy(f, from)
	return n, errors.Join(err, f.Close())
}
