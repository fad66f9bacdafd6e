package server_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// While another program fills the disk, appends are refused in time and reads succeed. Appends succeed again once there
// is room.
func TestDiskFull(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=64m"); err != nil {
		t.Skipf("a small disk can't be mounted here: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	s := &testServer{t: t, dir: filepath.Join(dir, "log")}
	s.open()
	token, path := writer(t, "t1"), "/api/stream/arbe-thread-t1"
	var acked []string
	post := func() answer {
		id := fmt.Sprintf("e%d", len(acked))
		got := s.do(
			"POST",
			path,
			token,
			fmt.Sprintf(
				`{"id":%q,"ts":"2026-01-01T00:00:00.000Z","payload":{"type":"chat","text":%q}}`,
				id,
				strings.Repeat("x", 10_000),
			),
		)
		if got.status == 200 {
			acked = append(acked, id)
		}
		return got
	}
	check := func(when string) {
		t.Helper()
		got := s.do("GET", path+"?offset=0", token, "")
		if got.status != 200 || strings.Count(got.body, "\n") != len(acked) {
			t.Fatalf(
				"%s: %d with %d entries, %d were acknowledged",
				when,
				got.status,
				strings.Count(got.body, "\n"),
				len(acked),
			)
		}
		for i, line := range strings.Split(strings.TrimSpace(got.body), "\n") {
			if !strings.HasPrefix(line, `{"id":"`+acked[i]+`"`) {
				t.Fatalf("%s: entry %d is %.40s", when, i, line)
			}
		}
	}
	filler := filepath.Join(dir, "filler")
	for round := range 3 {
		for range 20 {
			if got := post(); got.status != 200 {
				t.Fatalf("%d %s", got.status, got.body)
			}
		}
		fill := func() {
			t.Helper()
			f, err := os.OpenFile(filler, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
			if err != nil {
				t.Fatal(err)
			}
			for block := make([]byte, 64<<10); err == nil; {
				_, err = f.Write(block)
			}
			_ = f.Close() // the disk is full, as intended
		}
		fill()
		refused := 0
		for began := time.Now(); refused < 50; { // at first there may be room for some
			got := post()
			switch {
			case got.status == 507 && got.header.Get("Retry-After") != "" && got.code == "full":
				refused++
			case got.status != 200:
				t.Fatalf("full: %d %s", got.status, got.body)
			case time.Since(began) > patience:
				t.Fatal("it takes ever more")
			}
		}
		// while the log deletes old files
		until(t, "not ready, as it is full", func() bool {
			if s.do("GET", "/readyz", "", "").status == 503 {
				return true
			}
			fill()
			return false
		})
		check("full")
		if round == 1 { // it can be opened again nonetheless
			s.close()
			s.open()
			check("opened again")
			if got := post(); got.status != 507 && got.status != 200 { // old files of the log may have made room
				t.Errorf("opened again: %d %s", got.status, got.body)
			}
		}
		if err := os.Remove(filler); err != nil {
			t.Fatal(err)
		}
		until(t, "an append, as there is room", func() bool { return post().status == 200 }) // it looks once a second
		check("room again")
		if got := s.do("GET", "/readyz", "", ""); got.status != 200 {
			t.Errorf("readyz with room again: %d", got.status)
		}
	}
	s.close()
	s.open()
	check("in the end")
	s.close()
}
