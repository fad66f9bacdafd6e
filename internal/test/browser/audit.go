package browser

import (
	"context"
	"os"
	"path/filepath"

	"github.com/chromedp/chromedp"

	"arbe.0sk.ar/runner/internal/test/agents"
)

// AxeVersion is the version of axe-core that "make agents" installs.
const AxeVersion = "4.14.1"

// audit runs axe's rules for WCAG 2.1, A and AA, and returns each violation as a line.
const audit = `axe.run(document, {runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa']}).then((r) =>
  r.violations.flatMap((v) => v.nodes.map((n) => v.id + ': ' + n.target + ': ' + n.failureSummary + '\\n' + n.html)))`

// Audit returns what the page, as it is shown now, has against the rules of WCAG 2.1, levels A and AA, that axe-core
// checks.
func (b *Tab) Audit() []string {
	b.t.Helper()
	cache, err := agents.Cache()
	if err != nil {
		b.t.Fatal(err)
	}
	axe, err := os.ReadFile(filepath.Join(cache, "axe-core-"+AxeVersion, "node_modules/axe-core/axe.min.js"))
	if err != nil {
		b.t.Fatalf("%v: run make agents", err)
	}
	b.Run(string(axe) + "; undefined")
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	all, err := chromedp.Run(ctx, chromedp.Evaluate[[]string](audit, chromedp.EvalAwaitPromise))
	if err != nil {
		b.t.Fatal(err)
	}
	return all
}
