package httpd_test

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"arbe.0sk.ar/runner/host/httpd"
)

// The socket of a killed server is replaced. One that is in use, and a file, stay.
func TestListenSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.sock")
	killed, err := net.ListenUnix("unix", &net.UnixAddr{Name: path})
	if err != nil {
		t.Fatal(err)
	}
	killed.SetUnlinkOnClose(false)
	if err := killed.Close(); err != nil {
		t.Fatal(err)
	}
	ln, err := httpd.ListenSocket(path)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o666 {
		t.Errorf("it is %v, %v", info, err)
	}
	if _, err := httpd.ListenSocket(path); !errors.Is(err, httpd.ErrSocketInUse) {
		t.Errorf("in use: %v", err)
	}
	if err := ln.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("it is left: %v", err)
	}
	if err := os.WriteFile(path, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := httpd.ListenSocket(path); err == nil || !strings.Contains(err.Error(), "a file is in its place") {
		t.Errorf("a file: %v", err)
	}
	for _, bad := range []string{"", "a", "/a/", "/a b", "/a:b", "/" + strings.Repeat("a", 107)} {
		if err := httpd.CheckSocket(bad); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}
