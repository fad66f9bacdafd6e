package skew_test

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
)

// pair is two versions in one direction: then continues what first has begun.
type pair struct {
	t           *testing.T
	first, then version
	shows       []string // the accepted differences that were met
}

// cell is played with a pair in both directions.
type cell struct {
	what string
	play func(p *pair)
}

var cells = []cell{
	{"live run of pi → its server replaced, resumed", piAcross},
	{"run → server", runOnServer},
	{"live run, its chats → server", liveOnServer},
	{"commands of arbe → server", commandsOnServer},
	{"proxy → server", proxyOnServer},
	{"log in a folder, written → opened, and back", storeAndBack},
	{"backup → restored", backupRestored},
	{"log on NATS, written → opened, and back", natsAndBack},
	{"log on NATS, one server → another one beside it", natsBoth},
	{"server of a live run → replaced, and back", serverReplaced},
	{"session → resumed in its box, rebuilt in a new one", resumed},
	{"session → rebuilt as a file", hydrated},
	{"run whose runner died → recovered", recovered},
	{"local box, launched → settled and deleted", boxSettled},
	{"local box, its run died → ended and deleted", boxDead},
	{"local box, live run → talked to, cancelled, deleted", boxLive},
	{"local box, kept → resumed in it, removed", boxResumed},
	{"Postgres, schema of → used by", schemaOfFirst},
	{"Postgres, tasks at work → migrated, hosts replaced", migratedMeanwhile},
}

// TestFullSkew plays the cells with this version and another one.
func TestFullSkew(t *testing.T) {
	older, newer := versions(t)
	var mu sync.Mutex
	results := map[string][2]string{}
	met := map[string]bool{}
	t.Run("cells", func(t *testing.T) {
		for _, c := range cells {
			for i, p := range []pair{{first: older, then: newer}, {first: newer, then: older}} {
				t.Run(c.what, func(t *testing.T) {
					t.Parallel()
					p.t = t
					defer func() {
						mu.Lock()
						defer mu.Unlock()
						r := results[c.what]
						r[i] = p.result()
						results[c.what] = r
						for _, shows := range p.shows {
							met[shows] = true
						}
					}()
					c.play(&p)
				})
			}
		}
	})
	for _, d := range accepted {
		all := len(results) == len(cells) // and none was left out by -run
		if strings.HasPrefix(older.commit(), d.ref) && !met[d.shows] && all && !t.Failed() {
			t.Errorf("%q is accepted, and not met: %s", d.shows, d.why)
		}
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Printf("older: arbe %s, newer: arbe %s\n", older.name, newer.name)
	fmt.Fprintln(w, "first → second\tolder → newer\tnewer → older")
	for _, c := range cells {
		if results[c.what] == [2]string{} {
			continue // -run has left it out
		}
		fmt.Fprintf(w, "%s\t%s\t%s\n", c.what, results[c.what][0], results[c.what][1])
	}
	if err := w.Flush(); err != nil {
		t.Error(err)
	}
}

// result is the pair's cell of the table.
func (p *pair) result() string {
	switch {
	case p.t.Failed():
		return "FAILED"
	case len(p.shows) > 0:
		return strings.Join(p.shows, "; ")
	}
	return "works"
}
