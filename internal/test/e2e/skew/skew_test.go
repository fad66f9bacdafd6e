package skew_test

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"

	"arbe.0sk.ar/runner/internal/test/generated"
)

var update = flag.Bool("update", false, "write the table into docs/UPGRADE.md")

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
	fmt.Printf("older: arbe %s, newer: arbe %s\n", older.name, newer.name)
	table := tableOf(results)
	fmt.Print(table)
	if os.Getenv(refVar) == "" && len(results) == len(cells) && !t.Failed() {
		generated.Hold(t, root+"/docs", "skew", "```text\n"+table+"```\n", *update)
	}
}

// tableOf returns a table of the results of cells. Those that -run has left out are not in it.
func tableOf(results map[string][2]string) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "first → second\tolder → newer\tnewer → older")
	for _, c := range cells {
		if r, played := results[c.what]; played {
			fmt.Fprintf(w, "%s\t%s\t%s\n", c.what, r[0], r[1])
		}
	}
	_ = w.Flush() // into memory
	return b.String()
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
