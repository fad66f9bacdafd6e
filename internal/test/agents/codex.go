package agents

import "fmt"

// codex tries a request again once, and a stream that broke off once; when, it decides itself.
var codex = Agent{
	Harness: "codex", Model: "scripted-1", KeyVar: KeyVar, programs: []string{"codex"},
	files: func(modelURL string, _ int) map[string][]byte {
		return map[string][]byte{".codex/config.toml": fmt.Appendf(nil, `model = "scripted-1"
model_provider = "scripted"

[model_providers.scripted]
name = "scripted"
base_url = %q
env_key = %q
wire_api = "responses"
request_max_retries = 1
stream_max_retries = 1
`, modelURL+"/v1", KeyVar)}
	},
}
