package page_test

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"strings"
	"testing"
	"time"

	"arbe.0sk.ar/runner/thread"
)

// richReply is a reply with each form of markdown.
const richReply = `I change ~list()~ so that it stops at a bracket:

## What changes

- after a comma
- at the *start*

- [x] the parser
- [ ] the printer

> A list may end in a comma.

| case | before | after |
|---|---|---|
| ~[1,]~ | error | ok |
| ~[,]~ | error | error |

~~~go
for p.peek() != ']' {
	p.next()
}
~~~

See [the grammar](https://example.com/grammar) and ![a diagram](https://example.com/d.png).`

const richPatch = `--- a/parse/list.go
+++ b/parse/list.go
@@ -41,5 +41,7 @@
 func (p *parser) list() (all []node) {
-	for {
+	for p.peek() != ']' {
 		all = append(all, p.value())
-		p.expect(',')
+		if !p.accept(',') {
+			break
+		}
 	}
`

// Outputs of commands; ^ stands for an escape.
const (
	richFailure = "^[31m--- FAIL^[0m: TestList (0.00s)\n    list_test.go:12: ^[1munexpected ]^[0m\n^[41mFAIL^[0m\n"
	richSuccess = "^[32mok^[0m  \tparse\t0.412s\n^[2mok  \tprint\t(cached)^[0m\n"
)

// rich posts a thread with each kind of item: the page has to show all of them well.
func (h *host) rich(id string) {
	h.t.Helper()
	n := 0
	line := func(kind, format string, args ...any) string {
		n++
		return fmt.Sprintf(`{"id":"pi:s:%d","ts":%q,"payload":{"type":"pi.%s","model":"scripted-1","session":`+
			`{"id":"s","entry":"e%[1]d","index":%[1]d},%[4]s}}`,
			n, thread.Stamp(time.Now()), kind, fmt.Sprintf(format, args...))
	}
	reply := func(blocks ...string) string {
		return line("assistant", `"message":{"role":"assistant","content":[%s]}`, strings.Join(blocks, ","))
	}
	text := func(text string) string { return fmt.Sprintf(`{"type":"text","text":%s}`, thread.Marshal(text)) }
	call := func(id, name, args string) string {
		return fmt.Sprintf(`{"type":"toolCall","id":%q,"name":%q,"arguments":%s}`, id, name, args)
	}
	result := func(id, name string, failed bool, ms int, output, patch string) string {
		return line("tool_result", `"toolCallId":%q,"toolName":%q,"isError":%v,"message":{"role":"toolResult",`+
			`"toolCallId":%[1]q,"durationMs":%[4]d,"content":[%[5]s],"details":{"patch":%[6]s}}`,
			id, name, failed, ms, text(strings.ReplaceAll(output, "^", "\x1b")), thread.Marshal(patch))
	}
	all := append(begin("r1", "Make the parser accept trailing commas", ""),
		signal("r1", "started", thread.TypeStarted, `,"agentVersion":"0.87.1","cwd":"/src/parser","resume":"none"`),
		reply(`{"type":"thinking","thinking":"The loop in list has no end but an error. I look at **accept**."}`,
			text(strings.ReplaceAll(richReply, "~", "`")), call("c1", "bash", `{"command":"go test ./parse"}`)),
		result("c1", "bash", true, 4200, richFailure, ""),
		reply(call("c2", "edit", `{"path":"parse/list.go","edits":[]}`)),
		result("c2", "edit", false, 120, "Successfully replaced 1 block in parse/list.go", richPatch),
		reply(call("c3", "bash", `{"command":"go test ./...","timeout":60}`)),
		result("c3", "bash", false, 14200, richSuccess, ""),
		line("session", `"kind":"compaction","line":{"type":"compaction","summary":%q,"tokensBefore":19500}`,
			"The parser takes a comma at the end."),
		reply(fmt.Sprintf(`{"type":"image","data":%q,"mimeType":"image/png"}`, picture(h.t))),
		reply(text("All tests pass. I look at the printer, too."), call("c4", "read", `{"path":"print.go"}`)),
	)
	h.post(id, all...)
}

// picture returns a picture of four bars as base64.
func picture(t testing.TB) string {
	t.Helper()
	img := image.NewPaletted(image.Rect(0, 0, 320, 120), color.Palette{
		color.RGBA{240, 243, 246, 255}, color.RGBA{17, 99, 41, 255}, color.RGBA{10, 88, 202, 255},
	})
	for i, n := range []int{40, 70, 55, 95} {
		bar := image.Rect(30+70*i, 110-n, 80+70*i, 110)
		draw.Draw(img, bar, image.NewUniform(img.Palette[1+i%2]), image.Point{}, draw.Src)
	}
	var b bytes.Buffer
	if err := png.Encode(&b, img); err != nil {
		t.Fatal(err)
	}
	return base64.StdEncoding.EncodeToString(b.Bytes())
}
