package resume_test

import (
	"fmt"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"arbe.0sk.ar/runner/internal/test/scene"
)

// A thread that another mirror wrote, with turns and without the session file, continues: pi loads what is made of it,
// and no line that was on the thread before is posted again.
func TestFullPiResumeForeign(t *testing.T) {
	const foreign = `{"id":"f1","ts":"2026-01-01T00:00:01.000Z","payload":{"type":"chat","text":"the first question"}}
{"id":"f2","ts":"2026-01-01T00:00:02.000Z","payload":{"type":"pi.assistant","stopReason":"toolUse","message":{"role":"assistant","content":[{"type":"text","text":"I look."},{"type":"toolCall","id":"c1","name":"bash","arguments":{"command":"ls"}}]}}}
{"id":"f3","ts":"2026-01-01T00:00:03.000Z","payload":{"type":"pi.tool_result","toolCallId":"c1","toolName":"bash","message":{"role":"toolResult","content":"a-file.txt"}}}
{"id":"f4","ts":"2026-01-01T00:00:04.000Z","authorId":"another-agent","payload":{"type":"chat","text":"and I ask, too"}}
{"id":"f5","ts":"2026-01-01T00:00:05.000Z","payload":{"type":"pi.assistant","message":{"role":"assistant","content":"There is one file."}}}
{"id":"f6","ts":"2026-01-01T00:00:06.000Z","payload":{"type":"pi.assistant","stopReason":"toolUse","message":{"role":"assistant","content":[{"type":"toolCall","id":"c2","name":"bash","arguments":{"command":"never-answered"}}]}}}
`
	for _, version := range scene.Versions {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			s := scene.New(t, version, scene.Say("I know it all."))
			post := exec.Command(filepath.Join(scene.Bin, "arbe"), "thread", "post", s.Thread)
			post.Stdin = strings.NewReader(foreign)
			if out, err := post.CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			s.Args, s.Prompt = append(s.Args, "--resume"), "the last question"
			if got := s.Status(s.Start()); got != 0 {
				t.Fatalf("exit status %d", got)
			}
			asked := s.Asked()
			for _, want := range []string{
				"the first question", "I look.", "a-file.txt", "and I ask, too",
				"There is one file.", "never-answered", "the last question",
			} {
				if strings.Count(asked, want) != 1 {
					t.Errorf("the model was told %q %d times:\n%.3000s", want, strings.Count(asked, want), asked)
				}
			}
			all := scene.TextOf(s.Entries())
			for _, once := range []string{"the first question", "I look.", "There is one file.", "I know it all."} {
				if strings.Count(all, once) != 1 {
					t.Errorf("%q is on the thread %d times", once, strings.Count(all, once))
				}
			}
			if how := s.Started("r1").Resume; how != "hydrate" {
				t.Errorf("resumed by %s", how)
			}
			// And on in another box: made lines and mirrored ones hang together.
			n := s.Next(version, "r2", scene.Bash("echo second-tool"))
			again(n, "r2", "once more")
			if asked := n.Asked(); strings.Count(asked, "the first question") != 1 ||
				strings.Count(asked, "I know it all.") != 1 {
				t.Errorf("the model was asked %.3000s", asked)
			}
		})
	}
}

// Whatever other mirrors have written, pi loads what is made of it. (A sample of threads of chance; the seed is in
// the test's name.) Each version gets two threads.
func TestFullPiResumeForeignOfChance(t *testing.T) {
	for _, version := range scene.Versions {
		for range 2 {
			seed := rand.Uint64()
			t.Run(fmt.Sprintf("%s/%d", version, seed), func(t *testing.T) {
				t.Parallel()
				r := rand.New(rand.NewPCG(seed, 0))
				pick := func(of ...string) string { return of[r.IntN(len(of))] }
				var lines strings.Builder
				for i := range 3 + r.IntN(12) {
					content := pick(
						`"a text"`,
						`[]`,
						`[{"type":"text","text":"in a block"}]`,
						`null`,
						`["bare"]`,
						`{"type":"text","text":"no list"}`,
						fmt.Sprintf(
							`[{"type":"toolCall","id":"c%d","name":"bash","arguments":{}}]`,
							r.IntN(4),
						),
						`[{"type":"thinking","thinking":"hm"}]`,
					)
					usage := pick(``, `,"usage":{}`, `,"usage":null`, `,"usage":{"input":"x"}`, `,"usage":{"input":1,"cost":{}}`)
					stop := pick(
						``,
						`,"stopReason":"stop"`,
						`,"stopReason":"toolUse"`,
						`,"stopReason":"error"`,
						`,"stopReason":"aborted"`,
					)
					payload := pick(
						`{"type":"chat","text":"said by somebody"}`,
						`{"type":"pi.assistant","text":"words"`+stop+`}`,
						`{"type":"pi.assistant"`+stop+`,"message":{"role":"assistant","content":`+content+usage+stop+`}}`,
						`{"type":"pi.assistant","message":{"content":`+content+`}`+usage+`}`,
						fmt.Sprintf(`{"type":"pi.tool_result","toolCallId":"c%d","message":{"content":%s}}`, r.IntN(4), content),
						fmt.Sprintf(
							`{"type":"pi.tool_result","toolCallId":"c%d","toolName":"bash","isError":true,"text":"no"}`,
							r.IntN(4),
						),
						`{"type":"pi.session","kind":"model_change"}`,
					)
					fmt.Fprintf(&lines, `{"id":"x%d","ts":"2026-01-01T00:00:%02d.000Z","payload":%s}`+"\n", i, i, payload)
				}
				s := scene.New(t, version, scene.Say("I am there."))
				post := exec.Command(filepath.Join(scene.Bin, "arbe"), "thread", "post", s.Thread)
				post.Stdin = strings.NewReader(lines.String())
				if out, err := post.CombinedOutput(); err != nil {
					t.Fatalf("%v\n%s\n%s", err, out, lines.String())
				}
				s.Args, s.Prompt = append(s.Args, "--resume"), "the last question"
				if got := s.Status(s.Start()); got != 0 {
					t.Fatalf("exit status %d with\n%s", got, lines.String())
				}
				if !strings.Contains(s.Asked(), "the last question") {
					t.Errorf("the model was asked %.2000s", s.Asked())
				}
			})
		}
	}
}
