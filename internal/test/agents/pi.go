package agents

// Model and KeyVar are those of pi.
const (
	Model  = "scripted/scripted-1"
	KeyVar = "SCRIPTED_API_KEY"
)

// FindPi returns the pi of this version, and a Node that can run it.
func FindPi(version string) (Agent, error) { return Find("pi", version) }

// pi's model costs a dollar per million tokens of input and two of output. A failed request is tried again three times.
var pi = Agent{
	Harness:  "pi",
	Model:    Model,
	KeyVar:   KeyVar,
	programs: []string{"pi", "node"},
	files: func(modelURL string, retry int) map[string][]byte {
		models := map[string]any{"providers": map[string]any{"scripted": map[string]any{
			"baseUrl": modelURL + "/v1", "api": "openai-completions", "apiKey": "$" + KeyVar,
			"models": []any{map[string]any{
				"id": "scripted-1", "reasoning": true, "input": []string{"text", "image"}, "contextWindow": 128000, "maxTokens": 16000,
				"cost": map[string]any{"input": 1, "output": 2, "cacheRead": 0, "cacheWrite": 0},
			}},
		}}}
		settings := map[string]any{
			"defaultProvider": "scripted", "defaultModel": "scripted-1", "retry": map[string]any{"enabled": true, "maxRetries": 3, "baseDelayMs": retry},
		}
		return map[string][]byte{
			".pi/agent/models.json":   indented(models),
			".pi/agent/settings.json": indented(settings),
		}
	},
}
