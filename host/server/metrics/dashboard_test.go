package metrics

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"arbe.0sk.ar/runner/host/rows"
)

// exposed returns the names of all metrics of a server that has done everything once, with their labels.
func exposed(t *testing.T) map[string][]string {
	t.Helper()
	m := New("test", func(context.Context) error { return nil }, t.TempDir())
	countAll(m)
	spend(t, m, rows.Spent{House: "h1", Spent: 1})
	m.Measured(http.NotFoundHandler(), func(*http.Request) string { return "other" }).
		ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil))
	series := regexp.MustCompile(`^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? \S+$`)
	label := regexp.MustCompile(`(\w+)="`)
	names := map[string][]string{}
	for _, line := range scraped(t, m, "") {
		if found := series.FindStringSubmatch(line); found != nil {
			labels := []string{"job", "instance"} // which Prometheus adds
			for _, l := range label.FindAllStringSubmatch(found[2], -1) {
				labels = append(labels, l[1])
			}
			names[found[1]] = labels
		}
	}
	if names["arbe_append_duration_seconds_bucket"] == nil {
		t.Fatalf("the measurements are not understood: %v", names)
	}
	names["up"] = []string{"job", "instance"} // is Prometheus' own
	return names
}

var (
	promString   = regexp.MustCompile(`"[^"]*"`)
	promMatchers = regexp.MustCompile(`\{[^}]*\}`)
	promRange    = regexp.MustCompile(`\[[^\]]*\]`)
	promGrouping = regexp.MustCompile(`\b(?:by|without|on|ignoring|group_left|group_right) *\(([^)]*)\)`)
	promName     = regexp.MustCompile(`[a-zA-Z_:][a-zA-Z0-9_:]*`)
	promSelector = regexp.MustCompile(`([a-zA-Z_:][a-zA-Z0-9_:]*)\{([^}]*)\}`)
	promLabel    = regexp.MustCompile(`(\w+) *(?:=~|!~|!=|=)`)
)

// unknown returns the metrics and labels in a PromQL expression that no server exposes, and how many metrics it has.
func unknown(expr string, names map[string][]string) (bad []string, metrics int) {
	expr = promString.ReplaceAllString(expr, "")
	for _, s := range promSelector.FindAllStringSubmatch(expr, -1) {
		for _, l := range promLabel.FindAllStringSubmatch(s[2], -1) {
			if !slices.Contains(names[s[1]], l[1]) {
				bad = append(bad, s[1]+"{"+l[1]+"}")
			}
		}
	}
	rest := promRange.ReplaceAllString(promMatchers.ReplaceAllString(expr, ""), "")
	grouped := promGrouping.FindAllStringSubmatch(rest, -1)
	rest = promGrouping.ReplaceAllString(rest, " ")
	var labels []string
	for _, at := range promName.FindAllStringIndex(rest, -1) {
		name := rest[at[0]:at[1]]
		function := strings.HasPrefix(strings.TrimLeft(rest[at[1]:], " "), "(")
		number := at[0] > 0 && rest[at[0]-1] >= '0' && rest[at[0]-1] <= '9' // as the e in 1e9
		if function || number || name == "or" || name == "and" || name == "unless" {
			continue
		}
		metrics++
		labels = append(labels, names[name]...)
		if names[name] == nil {
			bad = append(bad, name)
		}
	}
	for _, g := range grouped {
		for _, l := range promName.FindAllString(g[1], -1) {
			if !slices.Contains(labels, l) {
				bad = append(bad, "by "+l)
			}
		}
	}
	return bad, metrics
}

// The test's own understanding of PromQL.
func TestDashboardExpressions(t *testing.T) {
	names := map[string][]string{"a_total": {"job", "code"}, "b_bucket": {"job", "le"}, "up": {"job"}}
	for expr, want := range map[string]string{
		`a_total`: "",
		`sum by (code) (rate(a_total{job="x or y",code=~"5.."}[5m])) / ignoring (code) group_left () sum(rate(a_total[$__rate_interval]))`: "",
		`histogram_quantile(0.99, sum by (le) (rate(b_bucket{job="$job"}[5m]))) > 1e9`:                                                     "",
		`up == 0 or absent(up{job="x"})`:     "",
		`sum(rate(c_total[5m]))`:             "c_total",
		`a_total{codes="1"}`:                 "a_total{codes}",
		`sum by (kind) (a_total)`:            "by kind",
		`time() - a_total > 36 * 3600 and d`: "d",
	} {
		bad, n := unknown(expr, names)
		if got := strings.Join(bad, " "); got != want || n == 0 {
			t.Errorf("%s: got %q of %d, want %q", expr, got, n, want)
		}
	}
}

// TestDashboard holds each panel of the dashboard against the metrics that a server exposes.
func TestDashboard(t *testing.T) {
	b, err := os.ReadFile("../../../deploy/grafana/arbe-threads.json")
	if err != nil {
		t.Fatal(err)
	}
	type source struct{ Type, UID string }
	type panel struct {
		ID          int
		Type, Title string
		Datasource  source
		GridPos     struct{ X, Y, W, H int }
		Targets     []struct {
			Expr       string
			Datasource source
		}
	}
	var d struct {
		Title         string
		SchemaVersion int
		Panels        []panel
		Templating    struct {
			List []struct {
				Name, Type string
				Query      any
			}
		}
	}
	if err := json.Unmarshal(b, &d); err != nil {
		t.Fatal(err)
	}
	names := exposed(t)
	want := source{"prometheus", "${datasource}"}
	ids, cells, shown := map[int]bool{}, map[[2]int]string{}, map[string]bool{}
	for _, p := range d.Panels {
		if ids[p.ID] || p.Title == "" {
			t.Errorf("panel %d %q: its id is taken, or it has no title", p.ID, p.Title)
		}
		ids[p.ID] = true
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if other := cells[[2]int{x, y}]; other != "" || x >= 24 {
					t.Fatalf("panel %q lies on %q, or outside", p.Title, other)
				}
				cells[[2]int{x, y}] = p.Title
			}
		}
		if p.Type == "row" {
			continue
		}
		if len(p.Targets) == 0 || p.Datasource != want {
			t.Errorf("panel %q shows nothing, or from %v", p.Title, p.Datasource)
		}
		for _, target := range p.Targets {
			if bad, n := unknown(target.Expr, names); len(bad) > 0 || n == 0 || target.Datasource != want {
				t.Errorf("panel %q: no server exposes %q in %s", p.Title, bad, target.Expr)
			}
			for _, name := range promName.FindAllString(target.Expr, -1) {
				shown[name] = true
			}
		}
	}
	for name := range names {
		base := strings.TrimSuffix(strings.TrimSuffix(name, "_sum"), "_count")
		if strings.HasPrefix(name, "arbe_") && !shown[name] && !shown[base+"_bucket"] {
			t.Errorf("%s is on no panel", name)
		}
	}
	if len(d.Templating.List) == 0 || d.Templating.List[0].Name != "datasource" ||
		d.Templating.List[0].Type != "datasource" ||
		d.SchemaVersion < 39 {
		t.Errorf("schema %d, variables %+v", d.SchemaVersion, d.Templating.List)
	}
}

// TestDashboardAlerts holds each alert against the metrics that a server exposes. Each has a text with the next step.
func TestDashboardAlerts(t *testing.T) {
	b, err := os.ReadFile("../../../deploy/prometheus/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	names := exposed(t)
	seen := map[string]bool{}
	rules := strings.Split(string(b), "      - alert: ")[1:]
	for _, rule := range rules {
		name, rest, _ := strings.Cut(rule, "\n")
		_, expr, found := strings.Cut(rest, "        expr: ")
		expr, _, ended := strings.Cut(expr, "\n        for: ")
		expr = strings.TrimPrefix(expr, "|\n")
		if bad, n := unknown(expr, names); !found || !ended || len(bad) > 0 || n == 0 {
			t.Errorf("%s: no server exposes %q in %s", name, bad, expr)
		}
		for _, part := range []string{
			"\n        labels: {severity: ", "\n          summary: \"",
			"\n          action: \"",
		} {
			if !strings.Contains(rest, part) {
				t.Errorf("%s has no %s", name, strings.TrimSpace(part))
			}
		}
		if seen[name] {
			t.Errorf("there are two of %s", name)
		}
		seen[name] = true
	}
	if len(rules) < 6 {
		t.Errorf("%d rules are understood", len(rules))
	}
}
