// Command demohouse shows a house: rows on a Postgres of its own, an owner, a bot that runs on pi, an environment with
// a secret, one run of the real pi in a box on this machine, which gets the key of the scripted model as that
// secret, and a thread on which the bot answers a person. "make demo-house" calls it with both binaries built, and pi
// and Postgres installed. It leaves nothing behind.
package main

import (
	"arbe.0sk.ar/runner/internal/test/agents"
	"arbe.0sk.ar/runner/internal/test/demo/stage"
)

func main() {
	stage.PlayHouse("demohouse", func(sh *stage.Shell, owner string) (url string) {
		sh.Bot("Piet")
		url = sh.Dispatch()
		run(sh)
		ask(sh, owner)
		return url
	})
}

// run runs the bot once, and shows the rows of the house.
func run(sh *stage.Shell) {
	sh.Show("", "env", "create", "base", "--runtime", "local", "--secret", agents.KeyVar)
	sh.Show("", "env", "default", "base")
	thread := sh.Show("", "thread", "new", "--agent", "Piet", "--name", "Haiku", "--tag", "demo")
	sh.Run([]string{"run", "--thread", thread, "--", stage.Task}, sh.PiFiles()...)
	sh.Show("", "house", "show", "Workshop")
	sh.Show("", "member", "list")
	sh.Show("", "env", "list")
	sh.Show("", "secret", "list")
	sh.Show("", "ls")
}

// ask has the owner ask the bot, which answers.
func ask(sh *stage.Shell, owner string) {
	thread := sh.Show("", "thread", "new", "--name", "Tests")
	sh.Run([]string{"say", "--wait", "--author", owner, thread, "@Piet how long do the tests take?"})
}
