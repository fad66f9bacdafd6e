package main

import (
	"archive/tar"
	"archive/zip"
	"bufio"
	"cmp"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"slices"
	"time"
)

// packer writes files into one archive, in their order, below folder.
type packer func(w io.Writer, folder string, files []file, at time.Time) error

// pack writes the archive at path by write, its files sorted by name.
func (r *release) pack(path, folder string, files []file, write packer) (err error) {
	slices.SortFunc(files, func(a, b file) int { return cmp.Compare(a.name, b.name) })
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	w := bufio.NewWriter(f)
	return errors.Join(write(w, folder, files, r.time), w.Flush(), f.Close())
}

func writeTar(w io.Writer, folder string, files []file, at time.Time) error {
	gz, err := gzip.NewWriterLevel(w, gzip.BestCompression)
	if err != nil {
		return err
	}
	t := tar.NewWriter(gz)
	for _, f := range files {
		b, err := os.ReadFile(f.from)
		if err != nil {
			return err
		}
		header := &tar.Header{
			Typeflag: tar.TypeReg, Name: folder + "/" + f.name, Size: int64(len(b)), Mode: int64(f.mode), ModTime: at,
			Uname: "root", Gname: "root",
		}
		if err := t.WriteHeader(header); err != nil {
			return err
		}
		if _, err := t.Write(b); err != nil {
			return err
		}
	}
	return errors.Join(t.Close(), gz.Close())
}

func writeZip(w io.Writer, folder string, files []file, at time.Time) error {
	z := zip.NewWriter(w)
	for _, f := range files {
		b, err := os.ReadFile(f.from)
		if err != nil {
			return err
		}
		header := &zip.FileHeader{Name: folder + "/" + f.name, Method: zip.Deflate, Modified: at}
		header.SetMode(f.mode)
		in, err := z.CreateHeader(header)
		if err != nil {
			return err
		}
		if _, err := in.Write(b); err != nil {
			return err
		}
	}
	return z.Close()
}
