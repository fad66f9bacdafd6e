package main

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

// Output of tests that passed is left out, that of failed and unfinished ones is printed, and in CI a skip fails but
// for a missing feature of the kernel.
func TestTally(t *testing.T) {
	const ok = `{"Action":"start","Package":"p"}
{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Test":"TestA","Output":"=== RUN   TestA\n"}
{"Action":"output","Package":"p","Test":"TestA","Output":"quiet\n"}
{"Action":"pass","Package":"p","Test":"TestA","Elapsed":0.1}
`
	skipped := func(reason string) string {
		return `{"Action":"output","Package":"p","Test":"TestB","Output":"=== RUN   TestB\n"}
{"Action":"output","Package":"p","Test":"TestB","Output":"    b_test.go:1: ` + reason + `\n"}
{"Action":"output","Package":"p","Test":"TestB","Output":"--- SKIP: TestB (0.00s)\n"}
{"Action":"skip","Package":"p","Test":"TestB","Elapsed":0}
`
	}
	const passes = `{"Action":"output","Package":"p","Output":"processor seconds: 2.50\n"}
{"Action":"pass","Package":"p","Elapsed":1.25}
`
	const fails = `{"Action":"fail","Package":"p","Elapsed":1.25}` + "\n"
	for _, tt := range []struct {
		name, in string
		ci       bool
		status   int
		want     []string
		not      string
	}{
		{
			"passed", ok + passes, true, 0,
			[]string{"ok  \tp\t1.2s\t2.5 processor seconds\n", "1 tests passed, 0 skipped", "\nthe longest: p 1 s\n"},
			"quiet",
		},
		{
			"skipped", ok + skipped("no reason") + passes, false, 0,
			[]string{"1 skipped", "p TestB: b_test.go:1: no reason\n"},
			"FAIL",
		},
		{"skipped in CI", ok + skipped("no reason") + passes, true, 1, []string{"FAIL\ta skip that"}, "quiet"},
		{
			"a missing feature", ok + skipped("NOT RUN: a v1 freezer: gone") + passes, true, 0,
			[]string{"1 skipped"},
			"FAIL",
		},
		{
			"a missing commit", ok + skipped("commit 0123abc is not in this checkout") + passes, true, 0,
			[]string{"1 skipped"},
			"FAIL",
		},
		{
			"failed", ok + `{"Action":"output","Package":"p","Test":"TestC","Output":"c is bad\n"}
{"Action":"fail","Package":"p","Test":"TestC","Elapsed":0}
` + fails, false, 1,
			[]string{"c is bad\n", "FAIL\tp\t1.2s\n", "\nFAIL\tp\n"},
			"quiet",
		},
		{
			"a panic", `{"Action":"output","Package":"p","Test":"TestC","Output":"panic: c\n"}
` + fails, false, 1,
			[]string{"panic: c\n"},
			"quiet",
		},
		{
			"does not build", `{"Action":"build-output","ImportPath":"p [p.test]","Output":"p.go:1: bad\n"}
{"Action":"build-fail","ImportPath":"p [p.test]"}
`, false, 1,
			[]string{"p.go:1: bad\n", "FAIL\tp [p.test]\n"},
			"quiet",
		},
		{"no JSON", "go: no such flag\n" + ok + passes, false, 0, []string{"go: no such flag\n"}, "quiet"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var out bytes.Buffer
			all := newTally(&out)
			for line := range strings.Lines(tt.in) {
				all.add([]byte(line))
			}
			if got := all.summary(time.Second, tt.ci); got != tt.status {
				t.Errorf("status %d, want %d", got, tt.status)
			}
			for _, want := range tt.want {
				if !strings.Contains(out.String(), want) {
					t.Errorf("no %q in\n%s", want, out.String())
				}
			}
			if strings.Contains(out.String(), tt.not) {
				t.Errorf("%q in\n%s", tt.not, out.String())
			}
		})
	}
}

// A command that runs no package is a failure, not a success.
func TestReportOfNothing(t *testing.T) {
	for _, command := range []string{"true", "exit 3", "no-such-command"} {
		var out bytes.Buffer
		if got := report(t.Context(), []string{command}, &out, false); got != 1 ||
			!strings.Contains(out.String(), "FAIL\t"+command) {
			t.Errorf("%s: status %d\n%s", command, got, out.String())
		}
	}
}
