package scene

import (
	"encoding/json"
	"os"
	"strconv"
	"strings"

	"arbe.0sk.ar/runner/thread"
)

// Versions are the pis that this is proven with: what boxes install, and the newest that installs.
var Versions = []string{Pi078, "0.87.1"}

// Pixel is a picture of one pixel, PNG.
const Pixel = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="

// OldSession is a session as pi wrote it in version 1, of the directory that is put in.
const OldSession = `{"type":"session","id":"old-one","timestamp":"2025-11-01T00:00:00.000Z","cwd":"%s","provider":"scripted","modelId":"scripted-1","thinkingLevel":"off"}
{"type":"message","timestamp":"2025-11-01T00:00:01.000Z","message":{"role":"user","content":"before","timestamp":1761955201000}}
{"type":"message","timestamp":"2025-11-01T00:00:02.000Z","message":{"role":"assistant","content":[{"type":"text","text":"yes"}],"api":"openai-completions","provider":"scripted","model":"scripted-1","usage":{"input":1,"output":1,"cacheRead":0,"cacheWrite":0,"totalTokens":2,"cost":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"total":0}},"stopReason":"stop","timestamp":1761955202000}}
`

// PidIn is the process id in a file, 0 where there is none yet.
func PidIn(path string) int {
	b, err := os.ReadFile(path)
	if err != nil || !strings.HasSuffix(string(b), "\n") {
		return 0
	}
	pid, _ := strconv.Atoi(strings.TrimSpace(string(b))) // 0 where it is none
	return pid
}

// TextOf is all payloads, with the escapes that JSON need not have taken out.
func TextOf(entries []thread.Entry) string {
	var all []string
	for _, e := range entries {
		var v any
		if err := json.Unmarshal(e.Payload, &v); err != nil {
			panic(err) // the server has checked it
		}
		all = append(all, string(thread.Marshal(v)))
	}
	return strings.NewReplacer(`\u2028`, "\u2028", `\u2029`, "\u2029").Replace(strings.Join(all, "\n"))
}
