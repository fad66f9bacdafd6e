package agents

// claude tries a request again once; when, it decides itself. It is pointed to its model by its settings, so that Env
// need not know the server.
var claude = Agent{
	Harness: "claude-code", Model: "claude-opus-5-5", KeyVar: "ANTHROPIC_API_KEY", programs: []string{"claude"},
	files: func(modelURL string, _ int) map[string][]byte {
		settings := map[string]any{"env": map[string]string{"ANTHROPIC_BASE_URL": modelURL, "CLAUDE_CODE_MAX_RETRIES": "1"}}
		return map[string][]byte{".claude/settings.json": indented(settings)}
	},
}
