package skew_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"arbe.0sk.ar/runner/internal/test/built"
)

// nexts are the next releases that have been built, by whether their step of the schema is breaking.
var nexts = struct {
	sync.Mutex
	by map[bool]version
}{by: map[bool]version{}}

// nextVersion returns the next release as it could be: this tree with another number, and with one more step of the
// schema. A step that only adds needs what the one before it needs; a breaking one needs itself.
func nextVersion(t *testing.T, breaking bool) version {
	t.Helper()
	nexts.Lock()
	defer nexts.Unlock()
	v, built := nexts.by[breaking]
	if !built {
		v = buildNext(t, breaking)
		nexts.by[breaking] = v
	}
	return v
}

func buildNext(t *testing.T, breaking bool) version {
	t.Helper()
	const folder = "host/control/migrations"
	steps, err := os.ReadDir(filepath.Join(root, folder))
	if err != nil {
		t.Fatal(err)
	}
	last, _, _ := strings.Cut(steps[len(steps)-1].Name(), "_")
	n, err := strconv.Atoi(last)
	if err != nil {
		t.Fatal(err)
	}
	n++
	needs := "max(needs)"
	if breaking {
		needs = strconv.Itoa(n)
	}
	step := fmt.Sprintf(`-- +goose Up
		alter table public.threads add column next_note text not null default 'none';
		insert into public.schema_steps (step, needs) select %d, %s from public.schema_steps;
	`, n, needs)
	catalog := string(read(t, filepath.Join(root, "host/control/catalog.txt")))
	catalog += "table threads\tcolumn: next_note text not null default 'none'::text\n"

	bin, err := os.MkdirTemp("", "arbe-next-") // it goes with the folder of all tests
	if err != nil {
		t.Fatal(err)
	}
	v := version{bin: bin}
	major, rest, _ := strings.Cut(strings.TrimSpace(string(read(t, filepath.Join(root, "VERSION")))), ".")
	minor, _, _ := strings.Cut(rest, ".")
	m, err := strconv.Atoi(minor)
	if err != nil {
		t.Fatal(err)
	}
	v.name = fmt.Sprintf("%s.%d.0", major, m+1)
	err = built.Overlaid(root, v.bin, map[string]string{
		"VERSION": v.name + "\n",
		fmt.Sprintf("%s/%05d_next.sql", folder, n): step,
		"host/control/catalog.txt":                 catalog,
	})
	if err != nil {
		t.Fatal(err)
	}
	return v
}
