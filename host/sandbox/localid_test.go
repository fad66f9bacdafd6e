package sandbox_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"arbe.0sk.ar/runner/host/sandbox"
	"arbe.0sk.ar/runner/host/sandbox/local"
)

// TestLocalPlace: the id of a local box names its machine and data folder, and no other provider takes the box for
// its own.
func TestLocalPlace(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	dir := filepath.Join(root, "boxes")
	p := local.New(dir)
	b, err := p.Create(t.Context(), sandbox.Options{Labels: map[string]string{"l": "1"}})
	if err != nil {
		t.Fatal(err)
	}
	id := b.Ref().ID
	if ok, _ := regexp.MatchString(`\A[0-9a-f]{12}-[0-9a-f]{8}-[0-9a-f]{4}-7`, id); !ok {
		t.Errorf("id %s", id)
	}
	var rec struct{ Machine, Host, Path string }
	host, _ := os.Hostname()
	data, err := os.ReadFile(filepath.Join(dir, id, "box.json"))
	if err := errors.Join(err, json.Unmarshal(data, &rec)); err != nil || rec.Path != dir || rec.Host != host {
		t.Errorf("record %s, %v", data, err)
	}
	// The same folder by another way is the same place.
	if err := os.Symlink(root, filepath.Join(root, "link")); err != nil {
		t.Fatal(err)
	}
	linked := local.New(filepath.Join(root, "link", "boxes"))
	if health, _, err := linked.Probe(t.Context(), id); health != sandbox.Live {
		t.Errorf("by a link: %v, %v", health, err)
	}
	moved := filepath.Join(root, "moved")
	foreign(t, local.New(moved), "another folder", id)
	if err := os.Rename(dir, moved); err != nil {
		t.Fatal(err)
	}
	foreign(t, local.New(moved), "moved", id)
	if err := os.Rename(moved, dir); err != nil {
		t.Fatal(err)
	}
	if err := p.Destroy(t.Context(), id); err != nil {
		t.Error(err)
	}
	if health, why, err := p.Probe(t.Context(), id); health != sandbox.Gone || err != nil {
		t.Errorf("%v, %s, %v", health, why, err)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if health, why, err := p.Probe(t.Context(), id); health != sandbox.Unknown || err == nil {
		t.Errorf("without its folder: %v, %s, %v", health, why, err)
	}
}

// foreign checks that p does not take the box for its own.
func foreign(t *testing.T, p provider, name, id string) {
	t.Helper()
	ctx := t.Context()
	health, _, err := p.Probe(ctx, id)
	if health != sandbox.Unknown || !errors.Is(err, sandbox.ErrForeign) {
		t.Errorf("%s: probe: %v, %v", name, health, err)
	}
	if _, err := p.Open(ctx, id); !errors.Is(err, sandbox.ErrForeign) || errors.Is(err, sandbox.ErrGone) {
		t.Errorf("%s: open: %v", name, err)
	}
	if err := p.Destroy(ctx, id); !errors.Is(err, sandbox.ErrForeign) {
		t.Errorf("%s: destroy: %v", name, err)
	}
	if boxes, err := p.List(ctx, nil); err != nil || len(boxes) > 0 {
		t.Errorf("%s: listed %v, %v", name, boxes, err)
	}
}

// TestLocalOldID: a box whose id does not name its place is ours where its folder is, and else nothing is known of it.
func TestLocalOldID(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := local.New(dir)
	b, err := p.Create(t.Context(), sandbox.Options{})
	if err != nil {
		t.Fatal(err)
	}
	old := uuid.NewString()
	foreign(t, local.New(t.TempDir()), "elsewhere", old)
	if err := os.Rename(filepath.Join(dir, b.Ref().ID), filepath.Join(dir, old)); err != nil {
		t.Fatal(err)
	}
	if health, _, err := p.Probe(t.Context(), old); health != sandbox.Live || err != nil {
		t.Errorf("%v, %v", health, err)
	}
	if boxes, err := p.List(t.Context(), nil); err != nil || len(boxes) != 1 || boxes[0].Ref.ID != old {
		t.Errorf("%v, %v", boxes, err)
	}
	if err := p.Destroy(t.Context(), old); err != nil {
		t.Error(err)
	}
	foreign(t, p, "destroyed", old)
}

// TestLocalDamaged: one record that can't be read hides no other box.
func TestLocalDamaged(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := local.New(dir)
	var ids []string
	for range 2 {
		b, err := p.Create(t.Context(), sandbox.Options{Labels: map[string]string{"l": "1"}})
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, b.Ref().ID)
	}
	if err := os.WriteFile(filepath.Join(dir, ids[0], "box.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	boxes, err := p.List(t.Context(), map[string]string{"l": "1"})
	if err != nil || len(boxes) != 1 || boxes[0].Ref.ID != ids[1] {
		t.Errorf("%v, %v", boxes, err)
	}
	boxes, err = p.List(t.Context(), nil)
	if err != nil || len(boxes) != 2 || !strings.HasPrefix(boxes[0].State, "damaged") {
		t.Errorf("%v, %v", boxes, err)
	}
}

// TestAliveAfterReboot: a process of another boot is not alive, be there one of its number and start.
func TestAliveAfterReboot(t *testing.T) {
	each(t, func(t *testing.T, h *house) {
		b := h.create(t, sandbox.Options{})
		p, err := b.Detach(t.Context(), script("sleep 1000"), "log")
		if err != nil {
			t.Fatal(err)
		}
		if want := read("/proc/sys/kernel/random/boot_id"); p.Boot != want {
			t.Errorf("boot %q, want %q", p.Boot, want)
		}
		for boot, want := range map[string]bool{p.Boot: true, "": true, uuid.NewString(): false} {
			p.Boot = boot
			if alive, err := b.Alive(t.Context(), p); alive != want || err != nil {
				t.Errorf("boot %q: alive %v, %v", boot, alive, err)
			}
		}
	})
}

// TestLocalLeftovers: what a process that was killed has left of a box that is not whole goes with a later box. One
// that another process makes stays, and so does what is not empty.
func TestLocalLeftovers(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "boxes")
	p := local.New(dir)
	b, err := p.Create(t.Context(), sandbox.Options{})
	if err != nil {
		t.Fatal(err)
	}
	prefix, _, _ := strings.Cut(b.Ref().ID, "-")
	id := func() string { return prefix + "-" + uuid.Must(uuid.NewV7()).String() }
	now := time.Now()
	left := map[string]time.Time{ // the folders, and their times
		id(): now.Add(-2 * time.Hour), ".new-" + id(): now.Add(-2 * time.Hour), ".old-" + id(): now.Add(-2 * time.Hour),
	}
	stays := map[string]time.Time{
		id(): now, ".new-" + id(): now, "elsewhere": now.Add(-2 * time.Hour), b.Ref().ID: now.Add(-2 * time.Hour),
	}
	for _, folders := range []map[string]time.Time{left, stays} {
		for name, at := range folders {
			path := filepath.Join(dir, name)
			if strings.HasPrefix(name, ".") {
				path = filepath.Join(path, "home")
			}
			if err := os.MkdirAll(path, 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.Chtimes(filepath.Join(dir, name), at, at); err != nil {
				t.Fatal(err)
			}
		}
	}
	other, err := p.Create(t.Context(), sandbox.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Destroy(t.Context(), other.Ref().ID); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if _, is := stays[e.Name()]; !is {
			t.Errorf("%s is left", e.Name())
		}
		delete(stays, e.Name())
	}
	if len(stays) > 0 {
		t.Errorf("removed: %v", stays)
	}
}

// TestLocalProcessWithoutFolder: a process of a box whose folder somebody has removed is known to live, or to be dead.
func TestLocalProcessWithoutFolder(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "boxes")
	p := local.New(dir)
	b, err := p.Create(t.Context(), sandbox.Options{})
	if err != nil {
		t.Fatal(err)
	}
	proc, err := b.Detach(t.Context(), sandbox.Command{Argv: []string{"sleep", "1000"}}, "log")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(dir, b.Ref().ID)); err != nil {
		t.Fatal(err)
	}
	if health, _, err := p.Probe(t.Context(), b.Ref().ID); health != sandbox.Gone || err != nil {
		t.Errorf("%v, %v", health, err)
	}
	if runs, err := p.Runs(t.Context(), b.Ref().ID, proc); !runs || err != nil {
		t.Errorf("the process runs: %v, %v", runs, err)
	}
	if err := p.Destroy(t.Context(), b.Ref().ID); err != nil { // ends it by its mark
		t.Fatal(err)
	}
	if runs, err := p.Runs(t.Context(), b.Ref().ID, proc); runs || err != nil {
		t.Errorf("the process is killed: %v, %v", runs, err)
	}
}
