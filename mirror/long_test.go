package mirror_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"arbe.0sk.ar/runner/mirror"
	"arbe.0sk.ar/runner/session"
	"arbe.0sk.ar/runner/thread/redact"
)

// A line that is cut as it is read keeps what it is, its ids and its short strings; each cut is marked; and no half
// of a secret is left at one.
func TestLargeLineIsCut(t *testing.T) {
	const secret = "secret-value-0123456789"
	for _, tt := range []struct {
		name, head string // the long string's first bytes, up to where it is cut
	}{
		{"a secret before the cut", "a " + secret + " b"},
		{"at the cut", strings.Repeat("x", 1<<20-7) + secret},
		{"right before it", strings.Repeat("x", 1<<20-len(secret)) + secret},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "s.jsonl")
			long := tt.head + strings.Repeat("0123456789abcde ", 3<<20)
			line := `{"type":"message","id":"m1","parentId":"s1","timestamp":"2026-01-01T00:00:00.000Z",` +
				`"message":{"role":"toolResult","toolCallId":"c1",` +
				`"toolName":"bash","content":[{"type":"text","text":"` + long +
				`"},{"type":"text","text":"short"}],"isError":false}}`
			if err := os.WriteFile(path, []byte(line+"\n"+line), 0o600); err != nil {
				t.Fatal(err)
			}
			r := session.NewReader(path, session.Position{})
			defer r.Close()
			enc := mirror.Encoder{
				Namer:  mirror.Namer{Dialect: session.Pi, Session: "s1"},
				Redact: redact.New([]string{"A_KEY=" + secret}, nil),
			}
			for n := range 2 { // the second one is torn
				l, err := r.Rest()
				if err != nil {
					t.Fatal(err)
				}
				if l.Long != int64(len(line)) || !l.Cut || len(l.Data) > 4<<20 || l.Torn != (n == 1) {
					t.Errorf("line %d: %d bytes, cut %v, torn %v, of %d", n, len(l.Data), l.Cut, l.Torn, l.Long)
				}
				e, _ := enc.Encode(l)
				if want := "pi:s1:m1"; !strings.HasPrefix(e.ID, want) || (e.ID == want) != (n == 0) {
					t.Errorf("line %d is %s", n, e.ID)
				}
				var p struct {
					Type, ToolCallID string
					Truncated        bool
					Bytes            int64
					Message          struct{ Content []struct{ Text string } }
				}
				if err := json.Unmarshal(e.Payload, &p); err != nil {
					t.Fatal(err)
				}
				if p.Type != "pi.tool_result" || p.ToolCallID != "c1" || !p.Truncated || p.Bytes != l.Long ||
					len(p.Message.Content) != 2 || p.Message.Content[1].Text != "short" {
					t.Fatalf("the entry is %.300s", e.Payload)
				}
				text := p.Message.Content[0].Text
				if head, mark := session.Uncut([]byte(text)); mark == nil || len(head) < 1000 {
					t.Errorf("%d bytes, cut as %q", len(head), mark)
				}
				if strings.Contains(text, "secret") {
					t.Error("a part of the secret is left")
				}
			}
		})
	}
}
