// Package deps guards who may import whom. The table is the one in CONTRIBUTING.md; a failure names the import and the
// reason why it must not be.
package deps_test

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const module = "arbe.0sk.ar/runner/"

// may are the packages of ours that each package may import. What is not in the table may import none.
var may = map[string][]string{
	"":                          {}, // the module's own
	"outcome":                   {},
	"session":                   {"internal/jsonscan", "internal/pause"},
	"thread":                    {"internal/jsonscan"},
	"thread/client":             {"internal/pause", "thread"},
	"thread/redact":             {"thread"},
	"harness":                   {"harness/catalog", "internal/pause", "internal/procfs", "outcome", "session"},
	"harness/catalog":           {"session"},
	"mirror":                    {"internal/jsonscan", "internal/pause", "session", "thread", "thread/client", "thread/redact"},
	"hydrate":                   {"internal/durable", "internal/jsonscan", "session", "thread"},
	"runner/runfolder":          {"harness", "internal/durable", "internal/format", "internal/procfs", "outcome", "session"},
	"runner/stdio":              {"internal/pause", "runner/runfolder"},
	"runner/live":               {"harness", "session", "thread"},
	"runner/command":            {"harness", "internal/pause", "internal/procfs", "outcome", "thread", "thread/client", "thread/redact"},
	"runner":                    {"harness", "hydrate", "internal/durable", "internal/pause", "internal/procfs", "mirror", "outcome", "runner/live", "runner/runfolder", "runner/stdio", "session", "thread", "thread/client", "thread/redact"},
	"host/index":                {"host/log", "host/log/engine", "internal/durable", "internal/filelock", "internal/jsonscan", "internal/pause", "thread"},
	"host/httpd":                {},
	"host/access":               {"host/log"},
	"host/page":                 {"host/access", "host/httpd", "host/index", "host/log", "host/log/engine", "host/member", "host/memory", "host/page/markup", "host/rows", "host/token", "host/view", "internal/pause", "session", "thread"},
	"host/page/markup":          {"host/view"},
	"host/log":                  {"host/log/engine", "internal/jsonscan", "session", "thread"},
	"host/log/engine":           {},
	"host/log/jetstream":        {"host/log/engine", "internal/format", "internal/pause"},
	"host/log/pebble":           {"host/log/engine", "internal/durable", "internal/format", "internal/openfiles"},
	"host/memory":               {"host/log/engine"},
	"host/proxy":                {"thread"},
	"host/daemon":               {"host/httpd", "host/index", "host/log", "host/log/jetstream", "host/log/pebble", "host/member", "host/memory", "host/rows", "host/server", "host/server/houses", "host/server/metrics", "host/token", "internal/durable", "internal/openfiles", "session", "thread", "thread/client"},
	"host/server":               {"host/httpd", "host/index", "host/log", "host/log/engine", "host/member", "host/memory", "host/rows", "host/server/houses", "host/server/metrics", "host/server/request", "host/server/streams", "host/token", "session", "thread"},
	"host/server/houses":        {"host/index", "host/log", "host/member", "host/rows", "host/server/request", "host/token", "thread"},
	"host/server/metrics":       {"host/httpd", "host/memory", "host/rows", "internal/pause"},
	"host/server/request":       {"host/index", "host/log", "host/log/engine", "host/member", "host/memory", "host/rows", "host/server/metrics", "host/token", "session", "thread"},
	"host/server/streams":       {"host/httpd", "host/log", "host/log/engine", "host/memory", "host/server/metrics", "host/server/request", "host/token", "thread"},
	"host/member":               {},
	"host/rows":                 {},
	"host/token":                {},
	"host/view":                 {"outcome", "session", "thread"},
	"host/sandbox":              {},
	"host/sandbox/kit":          {"host/sandbox", "internal/procfs"},
	"host/sandbox/local":        {"host/sandbox", "host/sandbox/kit", "internal/durable", "internal/procfs", "internal/procgroup"},
	"host/sandbox/daytona":      {"host/sandbox", "host/sandbox/kit", "internal/pause"},
	"host/sandbox/providers":    {"host/sandbox", "host/sandbox/daytona", "host/sandbox/local"},
	"host/folder":               {"host/folder/repository", "host/sandbox", "internal/durable", "internal/filelock", "internal/pause"},
	"host/folder/repository":    {"internal/git", "internal/pause"},
	"host/provision":            {"harness/catalog", "host/exec", "host/launch", "host/lease", "host/reap", "host/recipe", "host/resolve", "host/rows", "host/sandbox", "host/token", "thread", "thread/client"},
	"host/control":              {"host/control/seal", "host/index", "host/lease", "host/rows", "host/settings", "internal/pause", "thread"},
	"host/resolve":              {"host/lease", "host/reap", "host/rows", "host/sandbox", "internal/pause", "thread", "thread/client"},
	"host/reap":                 {"host/lease", "host/rows", "host/sandbox", "internal/pause", "thread", "thread/client"},
	"host/lease":                {"host/rows", "host/sandbox", "internal/pause", "thread", "thread/client"},
	"host/dispatch":             {"host/model", "host/model/price", "host/rows", "internal/pause", "thread"},
	"host/dispatch/tools":       {"host/dispatch", "host/model", "host/rows", "thread"},
	"host/answer":               {"host/dispatch", "host/model", "host/rows", "internal/pause", "thread", "thread/client", "thread/redact"},
	"host/model":                {},
	"host/model/anthropic":      {"host/model", "host/model/provider"},
	"host/model/openai":         {"host/model", "host/model/provider"},
	"host/model/price":          {"host/model"},
	"host/model/provider":       {"host/model", "thread/redact"},
	"host/recipe":               {"host/rows"},
	"host/settings":             {"host/rows"},
	"host/control/seal":         {"internal/durable", "internal/filelock"},
	"host/exec":                 {"host/launch", "host/lease", "host/sandbox", "outcome", "thread", "thread/client", "thread/redact"},
	"host/control/kms":          {},
	"host/launch":               {"host/lease", "host/reap", "host/recipe", "host/resolve", "host/rows", "host/sandbox", "internal/pause", "thread", "thread/client", "thread/redact", "outcome", "session"},
	"host/reconcile":            {"host/dispatch", "host/lease", "host/reap", "host/resolve", "host/rows", "host/sandbox", "thread", "thread/client", "outcome", "session"},
	"host/push":                 {"host/sandbox", "internal/git", "outcome", "session"},
	"cmd/internal/cmdline":      {"internal/format"},
	"cmd/internal/listing":      {"cmd/internal/cmdline", "cmd/internal/shortid", "host/view", "thread", "thread/client"},
	"cmd/internal/shortid":      {},
	"cmd/internal/stdin":        {},
	"cmd/internal/screen":       {"cmd/internal/cmdline", "host/view", "session", "thread"},
	"cmd/arbe-pi-runner":        {"cmd/internal/cmdline", "cmd/internal/shortid", "harness", "hydrate", "internal/pause", "mirror", "outcome", "runner", "runner/command", "runner/runfolder", "session", "thread", "thread/client", "thread/redact"},
	"cmd/arbe":                  {"cmd/internal/cmdline", "cmd/internal/listing", "cmd/internal/screen", "cmd/internal/shortid", "cmd/internal/stdin", "harness/catalog", "host/access", "host/answer", "host/control", "host/control/kms", "host/control/seal", "host/daemon", "host/dispatch", "host/dispatch/tools", "host/exec", "host/folder", "host/httpd", "host/index", "host/launch", "host/lease", "host/log", "host/log/engine", "host/member", "host/memory", "host/model", "host/model/anthropic", "host/model/openai", "host/model/provider", "host/page", "host/provision", "host/proxy", "host/push", "host/reap", "host/recipe", "host/reconcile", "host/rows", "host/sandbox", "host/sandbox/providers", "host/server", "host/server/houses", "host/settings", "host/token", "host/view", "hydrate", "internal/durable", "internal/pause", "internal/procfs", "internal/procgroup", "outcome", "session", "thread", "thread/client"},
	"internal/dist":             {},
	"internal/durable":          {},
	"internal/format":           {},
	"internal/filelock":         {},
	"internal/git":              {"internal/procgroup"},
	"internal/jsonscan":         {},
	"internal/openfiles":        {},
	"internal/pause":            {},
	"internal/procfs":           {},
	"internal/procgroup":        {},
	"internal/test/nosyscall":   {},
	"internal/test/model":       {},
	"internal/test/oddsecrets":  {},
	"internal/test/natsserver":  {},
	"internal/test/postgres":    {"internal/test/agents"},
	"internal/test/enginetest":  {"host/log", "host/log/engine"},
	"internal/test/agents":      {},
	"internal/test/fakeagent":   {},
	"internal/test/fakethread":  {"thread", "thread/client"},
	"internal/test/fakerows":    {"host/lease", "host/reconcile", "host/resolve", "host/rows"},
	"internal/test/fakedaytona": {"internal/procfs"},
	"internal/test/fakevault":   {},
	"internal/test/browser":     {"internal/test/agents"},
	"internal/test/built":       {"internal/test/agents"},
	"internal/test/output":      {},
	"internal/test/port":        {},
	"internal/test/program":     {},
	"internal/test/generated":   {},
	"internal/test/hostile":     {"thread"},
	"internal/test/reaction":    {"thread"},
	"internal/test/house":       {},
	"internal/test/release":     {},
	"internal/test/report":      {},
	"internal/test/stress":      {},
	"internal/test/debian":      {"internal/test/agents"},
	"internal/test/dockerd":     {"internal/test/debian"},
	"internal/test/demo":        {"internal/test/agents", "internal/test/demo/stage"},
	"internal/test/demo/stage":  {"internal/test/agents", "internal/test/model", "internal/test/postgres"},
	"internal/test/demobots":    {"internal/test/agents", "internal/test/demo/stage", "internal/test/model"},
	"internal/test/demohouse":   {"internal/test/agents", "internal/test/demo/stage"},
	"internal/test/captures":    {"internal/procfs", "internal/test/agents", "internal/test/model", "internal/test/postgres"},
	"internal/test/deps":        {},
	"internal/test/page":        {},
	"internal/test/recorded":    {"session"},
	"internal/test/harnesses":   {},
	"internal/test/providers":   {},
	"internal/test/wire":        {},
	"internal/test/chaos":       {},
	"internal/test/livechaos":   {"internal/test/model", "session", "thread"},
	"internal/test/botchaos":    {"host/rows", "internal/test/model", "thread"},
	"internal/test/faults":      {},
	"internal/test/scripts":     {},

	"internal/test/surroundings": {"internal/procfs"},
	"internal/test/scene":        {"harness", "host/log", "host/log/pebble", "hydrate", "internal/procfs", "internal/test/agents", "internal/test/built", "internal/test/model", "internal/test/wire", "outcome", "runner/runfolder", "session", "thread", "thread/client"},
	"internal/test/e2e/agents":   {},
	"internal/test/e2e/bots":     {},
	"internal/test/e2e/dispatch": {},
	"internal/test/e2e/boxes":    {},
	"internal/test/e2e/docs":     {},
	"internal/test/e2e/figures":  {},
	"internal/test/e2e/launch":   {},
	"internal/test/e2e/live":     {},
	"internal/test/e2e/resume":   {},
	"internal/test/e2e/rows":     {},
	"internal/test/e2e/skew":     {},
}

// never are packages that must not be linked, not even through others, by those whose path begins with from.
var never = []struct{ from, what, why string }{
	{"outcome", "*", "a verdict is decided from values: no file, no clock, no network"},
	{"session", "net", "a session is a file: it knows no network"},
	{"", "testing", "tests are not shipped"},
	{"", "net/http/httptest", "tests are not shipped"},
	{"", module + "cmd/arbe", "nobody builds on a command"},
	{"", module + "cmd/arbe-pi-runner", "nobody builds on a command"},
	{"", module + "internal/test/", "what only tests and the demo need is not shipped"},
	{"", "github.com/chromedp/", "tests alone drive a browser"},
	{"cmd/arbe-pi-runner", "github.com/santhosh-tekuri/jsonschema/", "a box has no tools of bots"},
	{"thread", "github.com/golang-jwt/", "the client carries tokens and signs none"},
	{"thread/redact", "net", "secrets are found in texts, without a network"},
	{"host/log", "github.com/golang-jwt/", "the log is behind whoever checks tokens"},
	{"host/log/engine", "*", "what both engines share needs neither's library"},
	{"host/log/pebble", "github.com/nats-io/", "an engine needs no other engine's library"},
	{"host/log/jetstream", "github.com/cockroachdb/", "an engine needs no other engine's library"},
	{"host/httpd", "*", "what surrounds any handler needs no library"},
	{"host/control/seal", "net", "keys and secrets are sealed without a network; a KMS is its caller's"},
	{"host/proxy", "github.com/golang-jwt/", "the proxy carries tokens and verifies none"},
	{"host/proxy", "github.com/cockroachdb/", "the proxy keeps nothing"},
	{"cmd/arbe-pi-runner", module + "host/", "the box holds no code that can sign a token or start a machine"},
	{"cmd/arbe-pi-runner", "github.com/golang-jwt/", "the box holds no code that can sign a token"},
	{"cmd/arbe-pi-runner", "github.com/cockroachdb/", "the box needs no log engine"},
	{"cmd/arbe-pi-runner", "github.com/nats-io/", "the box needs no log engine"},
	{"cmd/arbe-pi-runner", "github.com/jackc/", "the box knows no database"},
	{"cmd/arbe-pi-runner", "github.com/google/go-github/", "the box talks to its thread alone"},
}

// linkedBy are packages that only those in only may link, not even through others.
var linkedBy = []struct {
	what, why string
	only      []string
}{
	{"github.com/hashicorp/vault/", "host/control/kms has the key management service to itself", []string{"host/control/kms", "cmd/arbe"}},
	{module + "host/control", "without a database all works as it did: none but cmd/arbe knows of rows", []string{"host/control", "cmd/arbe"}},
	{"github.com/tink-crypto/", "host/control/seal has the keys to itself", []string{"host/control/seal", "host/control", "cmd/arbe"}},
	{"github.com/jackc/", "host/control has the database to itself", []string{"host/control", "cmd/arbe"}},
	// anthropic-sdk-go links another version of it, in a generator of schemas that is not called
	{"go.yaml.in/yaml/", "host/recipe alone reads YAML; tests read docs/openapi.yaml", []string{"host/model/anthropic", "host/recipe", "host/launch", "host/exec", "host/provision", "cmd/arbe"}},
	{module + "host/log/pebble", "host/daemon opens the engines of the log", []string{"host/log/pebble", "host/daemon", "cmd/arbe"}},
	{module + "host/log/jetstream", "host/daemon opens the engines of the log", []string{"host/log/jetstream", "host/daemon", "cmd/arbe"}},
	{"github.com/anthropics/", "an adapter has its provider's library to itself", []string{"host/model/anthropic", "cmd/arbe"}},
	{"github.com/openai/", "an adapter has its provider's library to itself", []string{"host/model/openai", "cmd/arbe"}},
	{"github.com/goreleaser/nfpm/", "packages are made for releases, and not shipped", []string{"internal/dist"}},
	{"github.com/google/go-containerregistry/", "images are made for releases, and not shipped", []string{"internal/dist"}},
	{"golang.org/x/crypto/x509roots/", "programs trust their machine's certificates", []string{"internal/dist"}},
	{"github.com/pressly/goose/", "host/control has the schema to itself", []string{"host/control", "cmd/arbe"}},
}

// neverImported are packages that one package must not import itself.
var neverImported = []struct{ from, what, why string }{
	{"thread", "net/http", "the vocabulary knows no network: thread/client has the client"},
	{"host/model", "net/http", "the vocabulary knows no network: host/model/provider has it"},
	{"host/log", "net/http", "the log's errors are types; host/server/request gives each its status"},
}

// neverTested are packages that the tests of all packages but those in only must not compile, not even through others.
var neverTested = []struct {
	what, why string
	only      []string
}{
	{"github.com/google/go-github/", "112,000 lines to compile for three requests", []string{"host/push"}},
	{"github.com/anthropics/", "180,000 lines to compile: bots are tested with a scripted model.Model", []string{"host/model"}},
	{"github.com/openai/", "240,000 lines to compile: bots are tested with a scripted model.Model", []string{"host/model"}},
	{
		"github.com/nats-io/nats-server/", "a whole NATS server is for those who test on NATS",
		[]string{"host/dispatch", "host/log/jetstream", "host/server", "internal/test/e2e/dispatch", "internal/test/e2e/skew", "internal/test/faults", "internal/test/page", "internal/test/scripts"},
	},
	{
		"github.com/jackc/pgx/", "rows on Postgres are for those who test on them",
		[]string{"host/control", "internal/test/captures", "internal/test/e2e/bots", "internal/test/e2e/dispatch", "internal/test/e2e/figures", "internal/test/e2e/rows", "internal/test/e2e/skew", "internal/test/faults", "internal/test/page", "internal/test/postgres", "internal/test/scripts"},
	},
	{
		"github.com/chromedp/", "a browser is for the tests of the page",
		[]string{"internal/test/browser", "internal/test/page"},
	},
	{
		module + "internal/test/fakedaytona", "a double of Daytona is for those who open boxes there",
		[]string{
			"host/sandbox", "host/folder", "host/push", "internal/test/e2e/bots", "internal/test/e2e/boxes",
			"internal/test/e2e/rows", "internal/test/e2e/skew", "internal/test/fakedaytona",
		},
	},
}

// starters are the packages by which tests start processes.
var starters = regexp.MustCompile(`"(os/exec|github.com/rogpeppe/go-internal/testscript|arbe\.0sk\.ar/runner/` +
	`(runner|host/sandbox(/(local|daytona|docker))?|host/launch|host/exec|internal/test/(built|program|postgres|browser|demo/stage)))"`)

// TestSurroundings holds that tests which start processes have surroundings of their own, with which these end.
func TestSurroundings(t *testing.T) {
	starts, enters := map[string]bool{}, map[string]bool{}
	walk(t, "_test.go", func(name, text string) {
		dir := filepath.Dir(name)
		starts[dir] = starts[dir] || starters.MatchString(text)
		enters[dir] = enters[dir] || strings.Contains(text, "\tsurroundings.Enter()\n")
	})
	if !starts["runner"] {
		t.Fatal("the tests of runner start no process")
	}
	for dir := range starts {
		if starts[dir] && !enters[dir] {
			t.Errorf("the tests of %s start processes: call surroundings.Enter in a TestMain", dir)
		}
	}
}

// pkg is a package as go list describes it.
type pkg struct {
	ImportPath string
	Standard   bool
	Imports    []string
	Deps       []string
}

func list(t *testing.T, args ...string) map[string]pkg {
	t.Helper()
	cmd := exec.Command("go", append([]string{"list", "-json=ImportPath,Standard,Imports,Deps"}, args...)...)
	cmd.Dir = "../../.."
	out, err := cmd.Output()
	if err != nil {
		var ee *exec.ExitError
		if errors.As(err, &ee) {
			t.Fatalf("go list: %v\n%s", err, ee.Stderr)
		}
		t.Fatal(err)
	}
	all := map[string]pkg{}
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p pkg
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all[p.ImportPath] = p
	}
}

func TestImports(t *testing.T) {
	ours := list(t, "./...")
	if len(ours) < 10 {
		t.Fatalf("go list found only %d packages", len(ours))
	}
	for path, p := range ours {
		name := strings.Trim(strings.TrimPrefix(path+"/", module), "/")
		allowed, known := may[name]
		if !known {
			t.Errorf("%s is not in the table: add what it may import", name)
		}
		for _, imp := range p.Imports {
			if own, is := strings.CutPrefix(imp, module); is && !slices.Contains(allowed, own) {
				t.Errorf("%s imports %s, and may import %v only", name, own, allowed)
			}
		}
	}
	for _, rule := range neverImported {
		p, there := ours[module+rule.from]
		if !there || slices.Contains(p.Imports, rule.what) {
			t.Errorf("%s is not in the repository, or imports %s: %s", rule.from, rule.what, rule.why)
		}
	}
	for name := range may {
		if _, there := ours[strings.TrimSuffix(module+name, "/")]; !there {
			t.Errorf("%s is in the table and not in the repository", name)
		}
	}
}

func TestLinks(t *testing.T) {
	ours := list(t, "./...")
	standard := map[string]bool{}
	for path, p := range list(t, "-deps", "./...") {
		standard[path] = p.Standard
	}
	for path, p := range ours {
		name := strings.TrimPrefix(path, module)
		if strings.HasPrefix(name, "internal/test/") {
			continue // serves tests and the demo, and may link what it likes
		}
		for _, dep := range p.Deps {
			for _, rule := range never {
				if !strings.HasPrefix(name, rule.from) {
					continue
				}
				if dep == rule.what || strings.HasSuffix(rule.what, "/") && strings.HasPrefix(dep, rule.what) ||
					rule.what == "*" && !standard[dep] {
					t.Errorf("%s links %s: %s", name, dep, rule.why)
				}
			}
			for _, rule := range linkedBy {
				if strings.HasPrefix(dep, rule.what) && !slices.Contains(rule.only, name) {
					t.Errorf("%s links %s: %s", name, dep, rule.why)
				}
			}
		}
	}
}

func TestTestsLink(t *testing.T) {
	const suffix = ".test" // of the path of a test's program
	programs := 0
	for path, p := range list(t, "-test", "./...") {
		name, is := strings.CutSuffix(strings.TrimPrefix(path, module), suffix)
		if !is {
			continue
		}
		programs++
		for _, dep := range p.Deps {
			for _, rule := range neverTested {
				if strings.HasPrefix(dep, rule.what) && !slices.Contains(rule.only, name) {
					t.Errorf("the tests of %s compile %s: %s", name, dep, rule.why)
				}
			}
		}
	}
	if programs < 10 {
		t.Fatalf("go list found the tests of only %d packages", programs)
	}
}
