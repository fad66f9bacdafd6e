// Package hostile has texts that attack a page, and entries with such a text in every field that an agent,
// a tool or another writer can choose.
package hostile

import (
	"bytes"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"arbe.0sk.ar/runner/thread"
)

// Texts are the texts: those of OWASP's and other collections, and those that exports of other programs fell for. What
// would run calls alert; what would leak asks evil.invalid. Elements stand first, then ends of what stands around a
// text, addresses, images and blocks in markdown, characters that nobody sees, and escape sequences.
var Texts = readTexts()

//go:embed texts.ndjson
var texts []byte

func readTexts() (all []string) {
	for line := range bytes.Lines(texts) {
		var text string
		if err := json.Unmarshal(line, &text); err != nil {
			panic(err) // it is in the program
		}
		all = append(all, text)
	}
	return all
}

// PNG is an image of one pixel.
const PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="

// Images are the data of images, base64, of which the first Shown may be shown.
var Images = []string{
	PNG,
	encode(
		"GIF89a\x01\x00\x01\x00\x80\x00\x00\x00\x00\x00\xff\xff\xff!\xf9\x04\x00\x00\x00\x00\x00,\x00\x00\x00\x00" +
			"\x01\x00\x01\x00\x00\x02\x02D\x01\x00;<script>alert(1)</script>",
	),
	encode("GIF89a/*\x00\x00*/=alert(1)//<svg onload=alert(1)>"),

	encode(`<svg xmlns="http://www.w3.org/2000/svg" onload="alert(1)"><script>alert(1)</script></svg>`),
	encode("<?xml version=\"1.0\"?><svg xmlns=\"http://www.w3.org/2000/svg\" onload=\"alert(1)\"/>"),
	encode(
		"<html><script>alert(1)</script></html>",
	), encode("%PDF-1.4 <script>alert(1)</script>"), encode("alert(1)"),
	encode("BM<script>alert(1)</script>"), `" onerror="alert(1)`, "https://evil.invalid/x.png", "",
}

// Shown is the number of Images, from the first on, that may be shown.
const Shown = 3

func encode(data string) string { return base64.StdEncoding.EncodeToString([]byte(data)) }

// quote returns a text as JSON.
func quote(text string) string { return string(thread.Marshal(text)) }

// Author returns what of a text an entry's author can have.
func Author(text string) string {
	text = strings.Map(func(r rune) rune {
		if r < ' ' || r >= 0x7f && r < 0xa0 {
			return -1
		}
		return r
	}, text)
	return strings.ToValidUTF8(text[:min(len(text), thread.MaxAuthor)], "")
}

// Entries returns the entries of a run, whose id begins with run, with the text in every field. They are valid
// entries. n is a number of their own among those of a thread.
func Entries(run string, n int, text string) []thread.Entry {
	q := quote(text)
	stamp := thread.Stamp(time.UnixMilli(1_800_000_000_000 + int64(n)*1000))
	var all []thread.Entry
	add := func(id, payload string) {
		all = append(all, thread.Entry{ID: id, TS: stamp, AuthorID: Author(text), Payload: []byte(payload)})
	}
	signal := func(id, kind, more string) {
		add(run+"."+id, fmt.Sprintf(`{"type":%q,"runId":%q,"harness":%q%s}`, kind, run, "pi", more))
	}
	lines := 0
	line := func(prefix, kind, more string) {
		lines++
		add(fmt.Sprintf("%s:%s:%d.%d", prefix, run, n, lines), fmt.Sprintf(
			`{"type":"%s.%s","session":{"id":%q,"entry":"e%d","index":%d},"model":%s,"provider":%s,"stopReason":"toolUse"%s}`,
			prefix, kind, run, lines, lines, q, q, more))
	}
	at := func(format string) string { return strings.ReplaceAll(format, "§", q) }

	add(fmt.Sprint(run, "-c"), at(`{"type":"chat","text":§}`))
	signal("running", thread.TypeStatus, at(`,"status":"running","parent":{"threadId":"up","authorId":§}`))
	signal("sandbox", thread.TypeSandbox, at(`,"sandbox":{"provider":§,"ref":§}`))
	signal(
		"started",
		thread.TypeStarted,
		at(`,"agentVersion":§,"cwd":§,"resume":"continue","sandbox":{"provider":§,"ref":§}`),
	)
	signal("setup.1", thread.SetupType("clone"), at(`,"name":§,"durationMs":1,"error":§`))
	signal("beat.1", thread.TypeHeartbeat, at(`,"nextMs":1000,"agent":{"pid":1}`))
	signal("refused.1", "signal.dispatch.chat_refused", at(`,"chat":§,"reason":§`))
	signal("cancel", thread.TypeCancel, at(`,"reason":§`))
	signal("resumed", "signal.thread.sandbox_resumed", at(`,"sandbox":{"provider":§,"ref":§}`))
	signal("spawn", "signal.thread.agent_spawn", at(`,"childThreadId":§`))
	signal("waits", thread.TypeTaskWaits, at(`,"reason":§`))
	signal("child", thread.TypeChildFinished, at(`,"childThreadId":§,"status":§`))
	signal("exec1", "signal.exec.started", at(`,"execId":"x","id":§,"command":§,"cmd":§`))
	signal("exec2", "signal.exec.output", at(`,"execId":"x","id":§,"text":§,"output":§,"data":§`))
	signal("exec3", "signal.exec.finished", at(`,"execId":"x","id":§,"exitCode":1,"error":§`))
	for _, prefix := range []string{"pi", "codex", "claude"} {
		call := prefix + run
		line(prefix, "assistant", at(`,"message":{"role":"assistant","model":§,"errorMessage":§,"content":[`+
			`{"type":"text","text":§},{"type":"thinking","thinking":§},{"type":"image","data":§,"mimeType":§},`+
			`{"type":§,"text":§},`+
			`{"type":"toolCall","id":"`+call+`","name":§,"arguments":{"command":§,"path":§,§:§}},`+
			`{"type":"toolCall","id":"e`+call+`","name":"edit","arguments":{"path":§,"oldText":§,"newText":"x"}},`+
			`{"type":"toolCall","id":"w`+call+`","name":"Write","arguments":{"file_path":§,"content":§}},`+
			`{"type":"toolCall","id":§,"name":"apply_patch","arguments":{"input":`+
			quote(
				"*** Begin Patch\n*** Update File: "+text+"\n*** Move to: "+text+
					"\n@@ "+text+"\n-"+text+"\n+"+text+"\n*** End Patch",
			)+`}}]}`))
		line(
			prefix,
			"tool_result",
			at(`,"toolCallId":"`+call+`","toolName":§,"isError":true,"message":{"role":"toolResult",`+
				`"toolCallId":"`+call+`","toolName":§,"content":[{"type":"text","text":§},`+
				`{"type":"image","data":`+quote(Images[n%len(Images)])+`,"mimeType":§}]}`),
		)
		line(
			prefix,
			"tool_result",
			at(`,"toolCallId":"e`+call+`","toolName":"edit","message":{"role":"toolResult","content":`+
				`[{"type":"text","text":§}],"details":{"patch":`+
				quote("--- "+text+"\n+++ "+text+"\n@@ -1 +1 @@ "+text+"\n-"+text+"\n+"+text+"\n")+`,"diff":§}},`+
				`"line":{"toolUseResult":{"filePath":§,"structuredPatch":[{"oldStart":1,"newStart":1,"lines":[§]}]}}`),
		)
		line(prefix, "tool_result", at(`,"toolCallId":"none`+call+`","toolName":§,"message":{"role":"toolResult",`+
			`"content":[{"type":"text","text":§}]}`))
		add(fmt.Sprintf("%s:%s:%d.sub", prefix, run, n), at(`{"type":"`+prefix+`.assistant","subagentOf":§,`+
			`"session":{"id":§,"entry":§,"index":1},"line":{"agentId":§},`+
			`"message":{"role":"assistant","content":[{"type":"text","text":§}]}}`))
		add(
			fmt.Sprintf("%s:%s:%d.stub", prefix, run, n),
			at(`{"type":"`+prefix+`.stub","kind":"stub","reason":§,"bytes":1}`),
		)
	}
	reactions(run, at, add)
	line("pi", "compaction", at(`,"kind":"compaction","line":{"summary":§,"tokensBefore":1}`))
	add(fmt.Sprintf("pi:%s:%d.err", run, n), at(`{"type":"pi.assistant","stopReason":"error","model":§,`+
		`"message":{"role":"assistant","errorMessage":§,"content":[]}}`))
	signal("push.1", thread.TypePush, at(`,"pushed":true,"branch":§,"commit":§,"prUrl":§`))
	signal("push.2", thread.TypePush, at(`,"pushed":false,"branch":§,"error":§`))
	signal("sync.1", thread.TypeSync, at(`,"copied":1,"conflicts":[§],"skipped":[§],"error":§`))
	signal("kept.1", thread.TypeSandboxKept, at(`,"until":§,"reason":§`))
	signal("released.1", thread.TypeSandboxReleased, at(`,"sandbox":{"provider":§,"ref":§},"reason":§`))
	signal("orphan.0", thread.TypeOrphaned, at(`,"reason":§`))
	signal("end.0", thread.TypeFailed, at(`,"errorClass":§,"message":§,"stderrTail":`+quote("stderr: "+text+" end")))
	signal(
		"end.1",
		thread.TypeStatus,
		at(`,"status":"failed","totals":{"durationMs":1,"lines":1,"exitSignal":§,"reason":§}`),
	)
	return all
}
