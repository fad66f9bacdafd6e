package main

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// entry is a file, a folder (its name ends with "/") or a link of an image.
type entry struct {
	name  string // from the root
	mode  os.FileMode
	owner int
	from  string // a file of this machine
	text  []byte // or the content
	link  string // or where a symbolic link leads
}

// withFolders adds the folders above entries, and sorts all by name.
func withFolders(entries []entry) []entry {
	known := map[string]bool{}
	for _, e := range entries {
		known[e.name] = true
	}
	for _, e := range slices.Clone(entries) {
		for dir := filepath.Dir(strings.TrimSuffix(e.name, "/")); dir != "."; dir = filepath.Dir(dir) {
			if folder := dir + "/"; !known[folder] {
				known[folder] = true
				entries = append(entries, entry{name: folder, mode: 0o755})
			}
		}
	}
	slices.SortFunc(entries, func(a, b entry) int { return strings.Compare(a.name, b.name) })
	return entries
}

// writeLayer writes the layer of an image.
func writeLayer(out *os.File, entries []entry, at time.Time) error {
	gz, err := gzip.NewWriterLevel(out, gzip.BestCompression)
	if err != nil {
		return err
	}
	w := tar.NewWriter(gz)
	for _, e := range entries {
		h := &tar.Header{
			Typeflag: tar.TypeReg, Name: e.name, Mode: int64(e.mode.Perm()), Uid: e.owner, Gid: e.owner, ModTime: at,
		}
		if e.mode&fs.ModeSticky != 0 {
			h.Mode |= 0o1000
		}
		switch {
		case strings.HasSuffix(e.name, "/"):
			h.Typeflag = tar.TypeDir
		case e.link != "":
			h.Typeflag, h.Linkname, h.Mode = tar.TypeSymlink, e.link, 0o777
		case e.from != "":
			if e.text, err = os.ReadFile(e.from); err != nil {
				return err
			}
		}
		h.Size = int64(len(e.text))
		if err := w.WriteHeader(h); err != nil {
			return err
		}
		if _, err := w.Write(e.text); err != nil {
			return err
		}
	}
	return errors.Join(w.Close(), gz.Close())
}

// writeLayout writes a folder with a layout as a tar.
func writeLayout(out *os.File, folder string, at time.Time) error {
	w := tar.NewWriter(out)
	err := filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(folder, path)
		if err != nil {
			return err
		}
		h := &tar.Header{
			Typeflag: tar.TypeReg, Name: filepath.ToSlash(rel), Mode: 0o644, Size: int64(len(b)), ModTime: at,
		}
		if err := w.WriteHeader(h); err != nil {
			return err
		}
		_, err = w.Write(b)
		return err
	})
	return errors.Join(err, w.Close())
}
