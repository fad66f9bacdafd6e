package skew_test

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"arbe.0sk.ar/runner/internal/test/botchaos"
	"arbe.0sk.ar/runner/internal/test/model"
)

// machine is a host with all programs of a version: a provisioner and a dispatcher, which may stand beside a server.
type machine struct {
	*host
	v       version
	model   *model.Server // that its bots ask: each machine has its own
	url     string
	serves  bool
	nats    []string // flags of a server
	workers []*process
}

// fleet is two machines that share a database, and a log: that of the first one's server, or of both in NATS.
type fleet struct {
	t           *testing.T
	lab         *house
	gate        string // a folder with files that agents, commands and setups wait for
	now, next   version
	first, then *machine
	record      *record
}

// newFleet starts the first machine, with the version that is to be replaced. The second one is not started yet. flags
// are those of servers.
func newFleet(t *testing.T, next version, flags ...string) *fleet {
	t.Helper()
	f := &fleet{
		t: t, now: version{name: "this", bin: ours}, next: next, gate: t.TempDir(), record: newRecord(),
	}
	f.first = f.machine(f.now, nil, flags)
	f.first.serves = true
	f.lab = newHouse(t, f.first.site, f.now)
	f.first.boxOfPi(f.lab)
	keys := filepath.Join(f.first.dir, "keys")
	f.first.env = append(f.first.env, "ARBE_SECRET_KEYS="+keys)
	f.first.arbe(f.now, "secret", "key", "new", keys)
	cmd := f.first.command(f.now, "secret", "set", "--house", "h1", "ANTHROPIC_API_KEY")
	cmd.Stdin = strings.NewReader("sk-scripted-5e4d3c2b1a")
	if out, status := result(cmd); status != 0 {
		t.Fatalf("secret set: %s", out)
	}
	f.lab.sql(`update agents set config = '{"model": "anthropic/scripted"}' where kind = 'bot'`,
		`insert into environments (id, house_id, name, runtime, config) select 'e2', house_id, 'slow', runtime,
			config || '{"setup": [{"run": "`+f.waits("setup")+`"}]}' from environments`)
	f.then = f.machine(next, f.first.env, flags)
	f.then.serves = len(flags) > 0
	if !f.then.serves {
		f.then.addr = f.first.addr
		f.then.env = append(f.then.env, "ARBE_STREAM_URL=http://"+f.first.addr)
	}
	return f
}

// machine returns a machine that is not started, with the variables of the database of another one.
func (f *fleet) machine(v version, like, flags []string) *machine {
	f.t.Helper()
	m := &machine{host: &host{site: newSite(f.t)}, v: v, nats: flags}
	m.plan = filepath.Join(m.dir, "plan")
	write(f.t, m.plan, "prompt\nsay done")
	for _, kv := range like {
		if strings.HasPrefix(kv, "ARBE_DATABASE=") || strings.HasPrefix(kv, "ARBE_SECRET_KEYS=") {
			m.env = append(m.env, kv)
		}
	}
	m.model = &model.Server{Answer: f.answer}
	provider := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.think(r)
		m.model.ServeHTTP(w, r)
	}))
	f.t.Cleanup(func() {
		provider.CloseClientConnections()
		provider.Close()
	})
	m.url = provider.URL
	return m
}

// start starts the programs of a machine.
func (m *machine) start() {
	m.t.Helper()
	dispatching := []string{"--local-boxes", "--model-url", "anthropic=" + m.url}
	if m.serves {
		m.serve(m.v, append([]string{"--provision", "--reconcile"}, m.flags(dispatching)...)...)
	}
	m.workers = []*process{
		lasting(m.t, m.command(m.v, "provision", "--local-boxes")),
		lasting(m.t, m.command(m.v, append([]string{"dispatch"}, dispatching...)...)),
	}
}

// flags returns the flags of a server. One on NATS has bots answer; the only one of two machines would be ahead of the
// other machine's dispatcher each time.
func (m *machine) flags(dispatching []string) []string {
	if len(m.nats) == 0 {
		return []string{"--local-boxes"}
	}
	return slices.Concat([]string{"--dispatch"}, dispatching, m.nats)
}

// upgrade ends the programs of a machine and starts those of another version.
func (m *machine) upgrade(v version) {
	m.t.Helper()
	for _, p := range m.workers {
		p.end()
	}
	if m.serves {
		m.server.end()
	}
	m.v = v
	m.start()
}

// workerLogs returns the logs of a machine's provisioner and dispatcher.
func (m *machine) workerLogs() (all string) {
	for _, p := range m.workers {
		all += p.log.String()
	}
	return all
}

// logs returns the logs of all programs of a machine.
func (m *machine) logs() string {
	if m.server == nil {
		return m.workerLogs()
	}
	return m.server.log.String() + m.workerLogs()
}

// waits returns a shell command that begins, which begun reports, and waits for open.
func (f *fleet) waits(name string) string {
	path := filepath.Join(f.gate, name)
	return "touch " + path + ".begun; until [ -e " + path + ".open ]; do sleep 0.05; done"
}

// begun waits until something waits for a gate.
func (f *fleet) begun(name string) {
	f.t.Helper()
	until(f.t, name, func() bool { return exists(filepath.Join(f.gate, name+".begun")) })
}

// open opens a gate.
func (f *fleet) open(name string) {
	f.t.Helper()
	write(f.t, filepath.Join(f.gate, name+".open"), "")
}

// answer is the model's reply. A question about a command gets a call of the tool, which waits for its gate.
func (f *fleet) answer(r model.Request) model.Reply {
	if strings.Contains(string(r.Body), "run the command") && botchaos.Parse(r.Body).Round == 0 {
		return model.Reply{Tools: []model.Tool{{
			Name: "run_command", Arguments: map[string]any{"command": f.waits(longCommand)},
		}}}
	}
	return model.Reply{Text: "This is the answer.", Pace: model.Duration(20 * time.Millisecond)}
}

// think lets a question that asks for it wait for its gate.
func (f *fleet) think(r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the host has ended
	}
	if r.Body = io.NopCloser(bytes.NewReader(body)); !bytes.Contains(body, []byte("think about it")) {
		return
	}
	if err := os.WriteFile(filepath.Join(f.gate, longModel+".begun"), nil, 0o600); err != nil {
		f.t.Error(err)
	}
	for !exists(filepath.Join(f.gate, longModel+".open")) && r.Context().Err() == nil {
		time.Sleep(20 * time.Millisecond) // between two looks
	}
}
