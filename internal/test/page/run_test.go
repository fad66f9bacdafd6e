package page_test

import (
	"bytes"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"arbe.0sk.ar/runner/internal/test/agents"
	"arbe.0sk.ar/runner/internal/test/model"
)

// A run of the real pi is shown as it goes: its prompt, its call while it runs, the result in it, its thoughts, the
// verdict. Nothing is loaded again meanwhile.
func TestFullPageRun(t *testing.T) {
	engines(t, func(t *testing.T, h *host) {
		pi, err := agents.FindPi("0.87.1")
		if err != nil {
			t.Fatal(err)
		}
		command := "until [ -e go ]; do sleep 0.05; done; echo by-the-agent"
		srv := httptest.NewServer(&model.Server{Script: model.Script{Replies: []model.Reply{
			{
				Thinking: "First I look.", Text: "I will **call** a tool.",
				Tools: []model.Tool{{Name: "bash", Arguments: map[string]any{"command": command}}},
			},
			{Text: "All is done."},
		}}})
		defer srv.Close()
		home := t.TempDir()
		if err := pi.Home(home, srv.URL, 50); err != nil {
			t.Fatal(err)
		}
		work := filepath.Join(home, "work")
		if err := os.Mkdir(work, 0o700); err != nil {
			t.Fatal(err)
		}
		id := h.run("", "thread", "new")
		b := h.login(t, id)
		b.Run("window.loaded = 'once'")

		runner := filepath.Join(filepath.Dir(arbe), "arbe-pi-runner")
		cmd := exec.Command(runner, "run", "--cwd", work, "--", "do the work")
		cmd.Env = append(pi.Env(home), "PI_OFFLINE=1", "ARBE_THREAD_ID="+id, "ARBE_STREAM_URL="+h.url(),
			"ARBE_STREAM_TOKEN="+h.run("", "token", "mint", "--thread", id), "ARBE_RUN_ID=r1")
		var log bytes.Buffer
		cmd.Stdout, cmd.Stderr = &log, &log
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		t.Cleanup(func() {
			_ = os.WriteFile(filepath.Join(work, "go"), nil, 0o600) // the run ends where the test failed
			if err := <-ended; err != nil || t.Failed() {
				t.Errorf("arbe-pi-runner run: %v\n%s", err, log.String())
			}
		})
		b.Wait(shows("#items .chat", "do the work"))
		b.Wait("document.querySelector('#items .tool.running')")
		b.Wait(shows("#pulse", "bash until"))
		b.Wait("document.title.startsWith('working')")
		b.Wait("document.querySelector('#items .text strong').innerText === 'call'")
		b.Run("document.querySelectorAll('#items details').forEach(d => d.open = true)")
		b.Wait(shows("#items .thinking", "First I look."))
		if err := os.WriteFile(filepath.Join(work, "go"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		b.Wait(shows("#items .tool.done[open] .output", "by-the-agent")) // it stays unfolded
		b.Wait(shows("#items .text", "All is done."))
		b.Wait(shows("#items .verdict", "completed"))
		b.Wait("document.title.startsWith('done') && document.getElementById('pulse').innerText === ''")
		b.Wait("window.loaded === 'once'")
	})
}
