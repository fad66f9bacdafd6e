package main

import (
	"archive/zip"
	"bytes"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// An archive has the same bytes whenever and from wherever its files come.
func TestArchives(t *testing.T) {
	at := time.Date(2026, 11, 24, 1, 2, 4, 0, time.UTC)
	for name, write := range map[string]packer{"tar": writeTar, "zip": writeZip} {
		var archives [2]bytes.Buffer
		for i := range archives {
			from := filepath.Join(t.TempDir(), "built")
			if err := os.WriteFile(from, []byte("a program"), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Chtimes(from, time.Time{}, at.Add(time.Duration(i)*time.Hour)); err != nil {
				t.Fatal(err)
			}
			if err := write(&archives[i], "arbe", []file{{"bin/arbe.exe", from, 0o755}}, at); err != nil {
				t.Fatal(err)
			}
		}
		if !bytes.Equal(archives[0].Bytes(), archives[1].Bytes()) {
			t.Errorf("two different archives: %s", name)
		}
		if name == "tar" {
			continue // TestFullDist unpacks one
		}
		z, err := zip.NewReader(bytes.NewReader(archives[0].Bytes()), int64(archives[0].Len()))
		if err != nil {
			t.Fatal(err)
		}
		f, err := z.Open("arbe/bin/arbe.exe")
		if err != nil {
			t.Fatal(err)
		}
		if b, err := io.ReadAll(f); err != nil || string(b) != "a program" {
			t.Errorf("unpacked %q, %v", b, err)
		}
		if got := z.File[0]; got.Mode() != 0o755 || !got.Modified.Equal(at) {
			t.Errorf("mode %v, time %v", got.Mode(), got.Modified)
		}
	}
}
