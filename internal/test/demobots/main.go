// Command demobots shows bots that work: a person asks Piet on one thread. Piet runs a command there, delegates a task
// to a run of the real pi on a thread of its own, and posts to Alma on another thread, who answers and posts back.
// Models are scripted, all else is real: rows on a Postgres of its own, boxes on this machine. "make demo-bots" calls
// it with both binaries built, and pi and Postgres installed. It leaves nothing behind.
package main

import (
	"fmt"

	"arbe.0sk.ar/runner/internal/test/agents"
	"arbe.0sk.ar/runner/internal/test/demo/stage"
	"arbe.0sk.ar/runner/internal/test/model"
)

func main() { stage.PlayHouse("demobots", play) }

const question = "@Piet run the tests, have a haiku about silence written, and tell Alma in Planning."

// play has the owner ask Piet, waits for all that follows, and shows both threads.
func play(sh *stage.Shell, owner string) (url string) {
	for _, name := range []string{"Piet", "Alma"} {
		sh.Bot(name)
		sh.Show("", "member", "set", name, "--tool", "post_to_thread")
	}
	sh.Show("", "env", "create", "base", "--runtime", "local", "--secret", agents.KeyVar)
	sh.Show("", "env", "default", "base")
	url = sh.Dispatch("--local-boxes")
	sh.Start([]string{"provision", "--local-boxes"}, sh.PiFiles()...)
	tests := sh.Show("", "thread", "new", "--name", "Tests")
	planning := sh.Show("", "thread", "new", "--name", "Planning")
	sh.Script.Drop()
	sh.Script.More(script(tests, planning)...)
	sh.Run([]string{"say", "--wait", "--author", owner, tests, question})
	sh.Await(tests, "child_finished", "Thank you")
	for _, id := range []string{tests, planning} {
		fmt.Println()
		sh.Run([]string{"thread", "tail", "--no-wait", id})
	}
	return url
}

// script has the replies of Piet, of Alma, and of the agent that Piet's task runs.
func script(tests, planning string) []model.Reply {
	call := func(when, text, tool string, arguments map[string]any) model.Reply {
		return model.Reply{When: when, Text: text, Tools: []model.Tool{{Name: tool, Arguments: arguments}}}
	}
	const piet, alma = "You are Piet, a bot", "You are Alma, a bot"
	return []model.Reply{
		call(piet, "I run the tests.", "run_command", map[string]any{"command": "echo '12 tests passed'"}),
		call(piet, "Now the haiku.", "delegate_task", map[string]any{"task": stage.Task}),
		call(piet, "And Alma.", "post_to_thread", map[string]any{
			"thread": planning, "text": "@Alma 12 tests pass on Tests.",
		}),
		{When: piet, Text: "12 tests pass, the haiku is being written, and Alma knows."},
		call(alma, "I tell them.", "post_to_thread", map[string]any{
			"thread": tests, "text": "Thank you: I have noted the 12 tests in Planning.",
		}),
		{When: alma, Text: "Noted: 12 tests pass."},
		call("", "I will write the haiku into a file.", "bash", map[string]any{
			"command": `printf 'The box is silent.\nIs it dead, or is it thinking?\nA heartbeat answers.\n' > haiku.txt`,
		}),
		{Text: "Done: haiku.txt has three lines."},
	}
}
