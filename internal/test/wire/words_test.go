package wire

import (
	"fmt"
	"strings"
	"testing"

	"arbe.0sk.ar/runner/internal/test/generated"
)

// TestWordTables holds the tables of words that the schema and the description explain: ids of entries, classes of
// failures, reasons of orphaned runs, claims and scopes of tokens.
func TestWordTables(t *testing.T) {
	d, err := load()
	if err != nil {
		t.Fatal(err)
	}
	id := d.definition("stored")["properties"].(map[string]any)["id"]
	text := table("id, entry", id, "x-ids", "id", "entry")
	generated.Hold(t, root+"/docs", "ids", text, *update)
	class := d.definition("pi_failed")["properties"].(map[string]any)["errorClass"]
	reason := d.definition("pi_session_orphaned")["properties"].(map[string]any)["reason"]
	text = table("`errorClass`, cause, next step", class, "x-classes", "`class`", "cause", "next") + "\n" +
		table("reason of an orphaned run, cause, posted by", reason, "x-reasons", "`reason`", "cause", "by")
	generated.Hold(t, root+"/docs", "classes", text, *update)
	token := node{d, "", d.api}.to("components", "securitySchemes", "token").members()
	text = table("claim, required, meaning", token, "x-claims", "`claim`", "required", "meaning") + "\n" +
		table("scope, allows", token, "x-scopes", "`scope`", "allows")
	generated.Hold(t, root+"/docs", "tokens", text, *update)
}

// table returns a table of the objects in a list of v. A column in backquotes is code.
func table(head string, v any, list string, columns ...string) string {
	var out strings.Builder
	out.WriteString("| " + strings.ReplaceAll(head, ", ", " | ") + " |\n")
	out.WriteString(strings.Repeat("|---", len(columns)) + "|\n")
	for _, row := range v.(map[string]any)[list].([]any) {
		var cells []string
		for _, column := range columns {
			cell := fmt.Sprint(row.(map[string]any)[strings.Trim(column, "`")])
			if is, boolean := row.(map[string]any)[column].(bool); boolean {
				cell = map[bool]string{true: "yes"}[is]
			}
			if column[0] == '`' {
				cell = "`" + cell + "`"
			}
			cells = append(cells, cell)
		}
		out.WriteString("| " + strings.Join(cells, " | ") + " |\n")
	}
	return out.String()
}
