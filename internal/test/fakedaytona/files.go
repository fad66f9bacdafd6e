package fakedaytona

import (
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"os/user"
	"strconv"
	"syscall"
	"time"
)

func (d *daemon) fileRoutes() {
	on := func(pattern string, do func(http.ResponseWriter, *http.Request) error) {
		d.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			if err := do(w, r); err != nil {
				w.WriteHeader(fileStatus(err)) // with nothing more, as the original does
			}
		})
	}
	on("GET /files", d.listFiles)
	on("DELETE /files", d.deleteFile)
	on("GET /files/info", d.fileInfo)
	on("GET /files/download", d.download)
	on("POST /files/folder", d.createFolder)
	on("POST /files/permissions", d.permissions)
	on("POST /files/move", d.moveFile)
	on("POST /files/upload", d.upload)
	d.mux.HandleFunc("POST /files/bulk-upload", d.bulkUpload)
	d.mux.HandleFunc("POST /files/bulk-download", d.bulkDownload)
}

var (
	errBad     = errors.New("bad request")
	errOutside = errors.New("outside of the box")
	errExists  = errors.New("the destination exists")
)

func fileStatus(err error) int {
	switch {
	case errors.Is(err, errBad):
		return http.StatusBadRequest
	case errors.Is(err, errExists):
		return http.StatusConflict
	case errors.Is(err, fs.ErrNotExist):
		return http.StatusNotFound
	case errors.Is(err, fs.ErrPermission), errors.Is(err, errOutside):
		return http.StatusForbidden
	}
	return http.StatusBadRequest
}

// writable is the path of a file that may be written to: this machine's own may not.
func (d *daemon) writable(p string) (string, error) {
	if p == "" {
		return "", errBad
	}
	if p = d.path(p); !within(d.dir, p) {
		return "", fmt.Errorf("open %s: %w", p, errOutside)
	}
	return p, nil
}

// readable is the path of a file that is asked for.
func (d *daemon) readable(r *http.Request) (string, error) {
	p := r.URL.Query().Get("path")
	if p == "" {
		return "", errBad
	}
	return d.path(p), nil
}

func (d *daemon) listFiles(w http.ResponseWriter, r *http.Request) error {
	list, err := os.ReadDir(d.path(r.URL.Query().Get("path")))
	if err != nil {
		return err
	}
	infos := []any{}
	for _, e := range list {
		if fi, err := e.Info(); err == nil { // else it has gone meanwhile
			infos = append(infos, info(fi))
		}
	}
	reply(w, http.StatusOK, infos)
	return nil
}

func (d *daemon) fileInfo(w http.ResponseWriter, r *http.Request) error {
	p, err := d.readable(r)
	if err != nil {
		return err
	}
	fi, err := os.Stat(p)
	if err != nil {
		return err
	}
	reply(w, http.StatusOK, info(fi))
	return nil
}

func info(fi fs.FileInfo) map[string]any {
	st := fi.Sys().(*syscall.Stat_t)
	return map[string]any{
		"name": fi.Name(), "size": fi.Size(), "mode": fi.Mode().String(), "modTime": fi.ModTime().String(),
		"modifiedAt": fi.ModTime().Format(time.RFC3339),
		"isDir":      fi.IsDir(), "owner": strconv.Itoa(int(st.Uid)), "group": strconv.Itoa(int(st.Gid)),
		"permissions": fmt.Sprintf("%04o", fi.Mode().Perm()),
	}
}

// createFolder makes a folder and those above it. One that is there stays as it is.
func (d *daemon) createFolder(w http.ResponseWriter, r *http.Request) error {
	p, err := d.writable(r.URL.Query().Get("path"))
	if err != nil {
		return err
	}
	mode := uint64(0o755)
	if m := r.URL.Query().Get("mode"); m != "" {
		if mode, err = strconv.ParseUint(m, 8, 12); err != nil {
			return errBad
		}
	}
	if err := os.MkdirAll(p, fs.FileMode(mode)); err != nil {
		return err
	}
	w.WriteHeader(http.StatusCreated)
	return nil
}

func (d *daemon) permissions(_ http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	p, err := d.writable(q.Get("path"))
	if err != nil {
		return err
	}
	if _, err := os.Stat(p); err != nil {
		return err
	}
	if m := q.Get("mode"); m != "" {
		mode, err := strconv.ParseUint(m, 8, 12)
		if err != nil {
			return errBad
		}
		if err := os.Chmod(p, fs.FileMode(mode)); err != nil {
			return err
		}
	}
	uid, gid := -1, -1
	if name := q.Get("owner"); name != "" {
		u, err := user.Lookup(name)
		if err != nil {
			return errBad
		}
		uid, _ = strconv.Atoi(u.Uid) // a number on all that we run on
	}
	if name := q.Get("group"); name != "" {
		g, err := user.LookupGroup(name)
		if err != nil {
			return errBad
		}
		gid, _ = strconv.Atoi(g.Gid)
	}
	return os.Chown(p, uid, gid)
}

func (d *daemon) moveFile(_ http.ResponseWriter, r *http.Request) error {
	from, err := d.writable(r.URL.Query().Get("source"))
	if err != nil {
		return err
	}
	to, err := d.writable(r.URL.Query().Get("destination"))
	if err != nil {
		return err
	}
	if _, err := os.Lstat(from); err != nil {
		return err
	}
	if _, err := os.Lstat(to); err == nil {
		return errExists // the original moves nothing over what is there
	}
	return os.Rename(from, to)
}

func (d *daemon) deleteFile(w http.ResponseWriter, r *http.Request) error {
	p, err := d.writable(r.URL.Query().Get("path"))
	if err != nil {
		return err
	}
	fi, err := os.Lstat(p)
	if err != nil {
		return err
	}
	switch {
	case !fi.IsDir():
		err = os.Remove(p)
	case r.URL.Query().Get("recursive") == "true":
		err = os.RemoveAll(p)
	default:
		err = errBad
	}
	if err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}
