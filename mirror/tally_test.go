package mirror_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"arbe.0sk.ar/runner/mirror"
	"arbe.0sk.ar/runner/session"
	"arbe.0sk.ar/runner/thread"
)

var errAway = errors.New("the thread is away")

// tallied is a Mirror whose Tally and posts are recorded.
type tallied struct {
	*mirror.Mirror
	tally, posted []string // ids
	away          bool
	decoded       int // lines
}

func newTallied(d session.Dialect, path string) *tallied {
	m := &tallied{}
	decode := d.Decode
	d.Decode = func(line []byte) session.Entry { m.decoded++; return decode(line) }
	e := newEncoder()
	e.Dialect = d
	m.Mirror = &mirror.Mirror{
		Encoder: *e, Path: path, Log: slog.New(slog.DiscardHandler),
		Tally: func(id string, _ session.Entry) { m.tally = append(m.tally, id) },
		Append: func(_ context.Context, entries []thread.Entry) error {
			if m.away {
				return errAway
			}
			for _, e := range entries {
				m.posted = append(m.posted, e.ID)
			}
			return nil
		},
	}
	return m
}

func appendFile(t testing.TB, path string, content []byte) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err == nil {
		_, err = f.Write(content)
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
}

// A line is decoded once, for Tally and for its post, as long as posts get through; Look comes when it will.
func TestReadOnce(t *testing.T) {
	for _, look := range []bool{false, true} {
		path := writeFile(t, nil)
		m := newTallied(session.Pi, path)
		defer m.Close()
		written := 0
		for part := range slices.Chunk(bytes.SplitAfter(lines(3000), []byte("\n")), 300) {
			appendFile(t, path, bytes.Join(part, nil))
			written += len(part)
			if look {
				if err := m.Look(false); err != nil {
					t.Fatal(err)
				}
			}
			sync(t, m.Mirror)
		}
		if m.decoded != 3000 || len(m.tally) != 3000 || !slices.Equal(m.tally, m.posted) {
			t.Errorf(
				"look %v: %d lines are decoded %d times, tallied %d times and posted %d times",
				look,
				written,
				m.decoded,
				len(m.tally),
				len(m.posted),
			)
		}
	}
}

// Tally has every line while the thread is away, without a post's room for most of them, and none twice when the
// thread is back.
func TestTallyNeedsNoThread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := writeFile(t, lines(2000))
		m := newTallied(session.Pi, path)
		defer m.Close()
		m.away = true
		for range 3 {
			if err := m.Sync(t.Context()); !errors.Is(err, errAway) {
				t.Fatal(err)
			}
		}
		for range 2 {
			if err := m.Look(false); err != nil {
				t.Fatal(err)
			}
			time.Sleep(3 * time.Second)
		}
		if len(m.tally) != 2000 || m.Seen() != 2000 || m.Posted() != 0 {
			t.Fatalf("%d lines are tallied, seen %d, posted %d", len(m.tally), m.Seen(), m.Posted())
		}
		appendFile(
			t,
			path,
			[]byte(message("more", "", `{"role":"user","content":"more"}`)+"\n"+`{"type":"label","id":"torn`),
		)
		if err := m.Look(true); err != nil {
			t.Fatal(err)
		}
		if st, err := os.Stat(path); err != nil || m.Tallied() != (session.Position{Offset: st.Size(), Index: 2002}) {
			t.Errorf("read up to %+v of %v (%v)", m.Tallied(), st.Size(), err)
		}
		m.away = false
		if err := m.Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(m.posted, m.tally); diff != "" || len(m.posted) != 2002 {
			t.Errorf("%d posted; -posted +tallied:\n%s", len(m.posted), diff)
		}
	})
}

// A Mirror that continues from another one's notes posts from there, and reads for Tally what was posted before.
func TestTallyOfPostedLines(t *testing.T) {
	for _, tt := range []struct {
		name            string
		before, runFrom int
	}{
		{"all lines are the run's", 3000, 0},
		{"some are", 3000, 1234},
		{"the run begins where the notes end", 3000, 3000},
		{"the run begins behind them", 3000, 3010},
	} {
		t.Run(tt.name, func(t *testing.T) {
			content := bytes.SplitAfter(lines(3100), []byte("\n"))
			path := writeFile(t, bytes.Join(content[:tt.before], nil))
			notes := filepath.Join(t.TempDir(), "notes")
			first := newTallied(session.Pi, path)
			first.Notes = notes
			sync(t, first.Mirror)
			if err := first.Close(); err != nil {
				t.Fatal(err)
			}
			appendFile(t, path, bytes.Join(content[tt.before:], nil))
			want := slices.Clone(first.tally)

			second := newTallied(session.Pi, path)
			second.Notes, second.RunFrom = notes, tt.runFrom
			defer second.Close()
			sync(t, second.Mirror)
			if len(second.posted) != 3100-tt.before {
				t.Errorf("%d lines posted", len(second.posted))
			}
			want = append(want, second.posted...)[tt.runFrom:]
			if err := second.Look(false); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, second.tally); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if second.Seen() != 3100 || second.Posted() != 3100 {
				t.Errorf("seen %d, posted %d", second.Seen(), second.Posted())
			}
			decoded := second.decoded
			appendFile(t, path, []byte(message("more", "", `{"role":"user","content":"more"}`)+"\n"))
			sync(t, second.Mirror)
			if len(second.tally) != len(want)+1 || second.decoded != decoded+1 {
				t.Errorf("a further line is tallied %d times, decoded %d times", len(second.tally)-len(want),
					second.decoded-decoded)
			}
		})
	}
}

// Whatever becomes of the file and of the thread: what is posted is tallied before, once; and where the file only grew,
// Tally has its lines in their order. TestFullTallyOfChangingFiles plays 50 seeds more.
func TestTallyOfChangingFiles(t *testing.T) { tallyOfChangingFiles(t, 0, 10) }

func TestFullTallyOfChangingFiles(t *testing.T) { tallyOfChangingFiles(t, 10, 60) }

// tallyOfChangingFiles plays the seeds from from on, below to.
func tallyOfChangingFiles(t *testing.T, from, to uint64) {
	for seed := from; seed < to; seed++ {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 7))
			d := session.Harnesses()[seed%3]
			path := writeFile(t, []byte(header+"\n"))
			content := [][]byte{[]byte(header)}
			m := newTallied(d, path)
			defer m.Close()
			grewOnly := true
			check := func() {
				seen := map[string]bool{}
				for _, id := range m.tally {
					if seen[id] {
						t.Fatalf("seed %d: %s is tallied twice", seed, id)
					}
					seen[id] = true
				}
				for _, id := range m.posted {
					if !seen[id] {
						t.Fatalf("seed %d: %s is posted and not tallied", seed, id)
					}
				}
			}
			for range 4 + rng.IntN(12) {
				switch op := rng.IntN(12); {
				case op == 0 && len(content) > 2: // another file with the same beginning, or in place
					grewOnly = false
					content = content[:1+rng.IntN(len(content)-1)]
					whole := append(bytes.Join(content, []byte("\n")), '\n')
					name := path
					if rng.IntN(2) == 0 {
						name = path + ".new"
					}
					err := os.WriteFile(name, whole, 0o600)
					if name != path {
						err = errors.Join(err, os.Rename(name, path))
					}
					if err != nil {
						t.Fatal(err)
					}
				case op < 5:
					var more bytes.Buffer
					for range rng.IntN(1200) {
						line := aLine(rng, d, content[max(0, len(content)-50):])
						if rng.IntN(4) > 0 { // so that two files rarely have the same bytes in the same place
							line = slices.Concat(bytes.TrimSpace(line), bytes.Repeat([]byte(" "), rng.IntN(64)))
						}
						content = append(content, line)
						more.Write(line)
						more.WriteByte('\n')
					}
					appendFile(t, path, more.Bytes())
				case op < 7:
					m.away = !m.away
				case op < 10:
					if err := m.Sync(t.Context()); err != nil && !errors.Is(err, errAway) {
						t.Fatal(err)
					}
					check()
				default:
					if err := m.Look(rng.IntN(3) == 0); err != nil {
						t.Fatal(err)
					}
					time.Sleep(time.Duration(rng.IntN(4)) * time.Second) // of the bubble
				}
			}
			if err := m.Look(true); err != nil {
				t.Fatal(err)
			}
			if grewOnly && len(m.tally) != len(content) {
				t.Fatalf("seed %d: %d lines tallied of %d", seed, len(m.tally), len(content))
			}
			m.away = false
			if err := m.Drain(t.Context()); err != nil {
				t.Fatal(err)
			}
			check()
			if grewOnly && !slices.Equal(m.tally, m.posted) {
				t.Fatalf("seed %d: %s", seed, cmp.Diff(m.posted, m.tally))
			}
			if grewOnly && m.Seen() != m.Posted() {
				t.Fatalf("seed %d: seen %d, posted %d", seed, m.Seen(), m.Posted())
			}
		})
	}
}

// Look and posts come from two goroutines.
func TestLookBesideRun(t *testing.T) {
	path := writeFile(t, nil)
	m := newTallied(session.Pi, path)
	all := make(chan struct{})
	post := m.Append
	m.Append = func(ctx context.Context, entries []thread.Entry) error {
		err := post(ctx, entries)
		if len(m.posted) == 4000 {
			close(all)
		}
		return err
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 2)
	go func() { done <- m.Run(ctx) }()
	go func() {
		var err error
		for ctx.Err() == nil && err == nil {
			err = m.Look(false)
		}
		done <- err
	}()
	for part := range slices.Chunk(bytes.SplitAfter(lines(4000), []byte("\n")), 37) {
		appendFile(t, path, bytes.Join(part, nil))
	}
	<-all
	cancel()
	for range 2 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if err := m.Look(true); err != nil {
		t.Error(err)
	}
	if err := m.Close(); err != nil {
		t.Error(err)
	}
	if !slices.Equal(m.tally, m.posted) {
		t.Error(
			fmt.Sprintf("%d lines tallied, %d posted: ", len(m.tally), len(m.posted)),
			cmp.Diff(m.posted, m.tally),
		)
	}
}
