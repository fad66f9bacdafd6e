package wire

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Ways in which the source names an error's status and code.
var errorForms = []*regexp.Regexp{
	regexp.MustCompile(`(?:[rR]efuse|say)\(\s*(?:w,\s*)?http\.Status(\w+),\s*"([a-z_]+)"`),
	regexp.MustCompile(`\{\s*(?:[\w.()*\[\]]+, )?http\.Status(\w+), "([a-z_]+)"`), // rows of tables
	regexp.MustCompile(`p\.status, p\.code = http\.Status(\w+), "([a-z_]+)"`),
}

// statuses are those of errors, by their names in net/http.
var statuses = map[string]int{
	"BadRequest": 400, "Unauthorized": 401, "Forbidden": 403, "NotFound": 404, "MethodNotAllowed": 405, "Conflict": 409,
	"Gone": 410, "RequestEntityTooLarge": 413, "UnsupportedMediaType": 415, "TooManyRequests": 429,
	"InternalServerError": 500, "NotImplemented": 501, "BadGateway": 502, "ServiceUnavailable": 503,
	"GatewayTimeout": 504, "InsufficientStorage": 507,
}

// TestCodes holds that docs/openapi.yaml has each status and code with which host/server, host/proxy and
// host/httpd answer.
func TestCodes(t *testing.T) {
	want := map[string]bool{}
	for _, dir := range []string{"host/server", "host/server/*", "host/proxy", "host/httpd"} {
		names, err := filepath.Glob(filepath.Join(root, dir, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			b, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			if strings.Contains(string(b), `const panicAnswer = `+"`"+`{"error":{"code":"internal"`) {
				want["500 internal"] = true
			}
			for _, form := range errorForms {
				for _, m := range form.FindAllStringSubmatch(string(b), -1) {
					if statuses[m[1]] == 0 {
						t.Errorf("%s: unknown status %s", name, m[1])
					}
					want[fmt.Sprint(statuses[m[1]], " ", m[2])] = true
				}
			}
		}
	}
	d, err := load()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]bool{}
	for _, row := range d.codes() {
		for _, code := range row.Codes {
			got[fmt.Sprint(row.Status, " ", code)] = true
		}
	}
	if diff := cmp.Diff(sorted(want), sorted(got)); diff != "" {
		t.Errorf("errors of the source (-), and of docs/openapi.yaml (+):\n%s", diff)
	}
}
