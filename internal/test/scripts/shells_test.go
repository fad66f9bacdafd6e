package scripts

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/creack/pty"
)

// shells are the shells with a completion script. Each returns the words that completion offers at the end of a line.
var shells = map[string]func(t *testing.T, s shell, line string) []string{
	"bash": bashOffers, "zsh": zshOffers, "fish": fishOffers,
}

// shell is where a completion happens.
type shell struct {
	dir string
	env []string
}

// Completion in the real shells: commands, flags, values and threads, files where they are wanted and nowhere else.
func TestFullCompletion(t *testing.T) {
	s := shell{dir: t.TempDir(), env: []string{
		"HOME=" + t.TempDir(), "PATH=" + filepath.Dir(arbe) + ":" + os.Getenv("PATH"), "TERM=dumb", "TZ=UTC",
		"ARBE_DATA=" + filepath.Join(t.TempDir(), "data"), "LC_ALL=C.UTF-8",
	}}
	for _, name := range []string{"pebbles.txt", "thread.txt", "t-file"} {
		if err := os.WriteFile(filepath.Join(s.dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(s.dir, "folder"), 0o700); err != nil {
		t.Fatal(err)
	}
	away := s
	away.env = append(slices.Clone(s.env), "ARBE_DATA="+t.TempDir())
	s.serve(t)
	for _, id := range []string{"t-one", "t-two", "u"} {
		cmd := exec.Command(arbe, "thread", "post", id, "first: \"$(words)\"\tof", id)
		cmd.Env = s.env
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	none := []string{}
	for name, offers := range shells {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, err := exec.LookPath(name); err != nil {
				t.Skipf("no %s: make shells installs it", name)
			}
			for _, tt := range []struct {
				line string
				want []string
			}{
				{"arbe thr", []string{"thread"}},
				{"arbe thread ta", []string{"tail"}},
				{"arbe --data x thread ta", []string{"tail"}},
				{"arbe run --harness ", []string{"claude-code", "codex", "pi"}},
				{"arbe run --harness=co", []string{"--harness=codex"}},
				{"arbe launch --sandbox ", []string{"daytona", "local"}},
				{"arbe token mint --scope r", []string{"read", "renew"}},
				{"arbe token mint --scope=threa", []string{"--scope=threads"}},
				{"arbe serve --engine ", []string{"nats", "pebble"}},
				{"arbe serve --engine p", []string{"pebble"}},
				{"arbe serve --nats-cr", []string{"--nats-creds"}},
				{"arbe thread tail --no", []string{"--no-wait"}},
				{"arbe-pi-runner run --sta", []string{"--stall-timeout", "--state-dir"}},
				{"arbe-pi-runner de", []string{"decide"}},
				{"arbe completion ", []string{"bash", "fish", "zsh"}},
				// threads
				{"arbe thread tail t-", []string{"t-one", "t-two"}},
				{"arbe thread status --json t-o", []string{"t-one"}},
				{"arbe launch --thread t-t", []string{"t-two"}},
				{"arbe thread status t-one ", none},
				// files and folders
				{"arbe serve --tls-cert peb", []string{"pebbles.txt"}},
				{"arbe serve --tls-cert=peb", []string{"--tls-cert=pebbles.txt"}},
				{"arbe thread import u peb", []string{"pebbles.txt"}},
				{"arbe launch --dir f", []string{"folder"}},
				{"arbe launch --dir p", none},
				{"arbe thread new t", none},
				{"arbe thread read peb", none},
				{"arbe run -- peb", none},
				{"arbe run --model peb", none},
				{"arbe nonsense t", none},
			} {
				got := offers(t, s, tt.line)
				for i := range got {
					got[i] = strings.TrimSuffix(got[i], "/") // of folders, where the shell shows it
				}
				if !slices.Equal(got, tt.want) {
					t.Errorf("%q: got %q, want %q", tt.line, got, tt.want)
				}
			}
			if got := offers(t, away, "arbe thread tail t-"); len(got) > 0 {
				t.Errorf("without a server: got %q", got)
			}
		})
	}
}

// serve starts a thread server for the test.
func (s shell) serve(t *testing.T) {
	t.Helper()
	cmd := exec.Command(arbe, "serve", "--addr", "127.0.0.1:0")
	cmd.Env = s.env
	log, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(log)
	for lines.Scan() && !strings.Contains(lines.Text(), "serving threads") {
	}
	rest := make(chan error, 1)
	go func() {
		_, err := io.Copy(io.Discard, log)
		rest <- err
	}()
	t.Cleanup(func() {
		if err := errors.Join(cmd.Process.Signal(os.Interrupt), <-rest, cmd.Wait()); err != nil {
			t.Error(err)
		}
	})
}

// fishOffers asks fish itself.
func fishOffers(t *testing.T, s shell, line string) []string {
	t.Helper()
	cmd := exec.Command("fish", "--no-config", "-c",
		`arbe completion fish | source; arbe-pi-runner completion fish | source; complete -C $argv[1]`, line)
	cmd.Dir, cmd.Env = s.dir, s.env
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("fish: %v", err)
	}
	words := []string{}
	for l := range strings.Lines(string(out)) {
		word, _, _ := strings.Cut(strings.TrimSuffix(l, "\n"), "\t")
		words = append(words, word)
	}
	slices.Sort(words)
	return words
}

// bashOffers types the line into an interactive bash, lets readline insert all that completion offers (M-*), and has
// the words of the line printed in place of run.
func bashOffers(t *testing.T, s shell, line string) []string {
	t.Helper()
	result := filepath.Join(t.TempDir(), "words")
	rc := filepath.Join(t.TempDir(), "rc")
	text := fmt.Sprintf("source <(arbe completion bash)\nsource <(arbe-pi-runner completion bash)\n"+
		"words() { printf '%%s\\n' \"$@\" >%q; exit; }\nbind 'set enable-bracketed-paste off'\n", result)
	if err := os.WriteFile(rc, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("bash", "--noprofile", "--rcfile", rc, "-i")
	s.play(t, cmd, line+"\x1b*\x01words \r")
	b, err := os.ReadFile(result)
	if err != nil {
		t.Fatal(err)
	}
	return added(line, strings.Split(strings.TrimSuffix(string(b), "\n"), "\n"))
}

// added returns the words at the place of the last word of the line; none if completion has left it as it was.
func added(line string, words []string) []string {
	fields := strings.Split(line, " ")
	last := fields[len(fields)-1]
	words = words[min(len(fields)-1, len(words)):]
	if len(words) == 0 || len(words) == 1 && words[0] == last {
		return []string{}
	}
	slices.Sort(words)
	return words
}

// zshOffers types the line into an interactive zsh and collects what its completion adds as matches.
func zshOffers(t *testing.T, s shell, line string) []string {
	t.Helper()
	result := filepath.Join(t.TempDir(), "words")
	rc := t.TempDir()
	text := fmt.Sprintf(`
autoload -Uz compinit && compinit -u -d ~/dump
source <(arbe completion zsh)
source <(arbe-pi-runner completion zsh)
compadd() {
  if [[ ${@[1,(i)(-|--)]} == *-(O|A|D)\ * ]]; then builtin compadd "$@"; return; fi
  local -a hits
  builtin compadd -O hits "$@"
  print -rl -- $IPREFIX${^hits} >>%[1]q
  builtin compadd "$@"
}
offers() { : >>%[1]q; zle list-choices; exit 0 }
zle -N offers
bindkey '^T' offers
`, result)
	if err := os.WriteFile(filepath.Join(rc, ".zshrc"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("zsh", "-i")
	s.env = append(slices.Clone(s.env), "ZDOTDIR="+rc)
	s.play(t, cmd, line+"\x14")
	b, err := os.ReadFile(result)
	if err != nil {
		t.Fatal(err)
	}
	words := strings.Fields(string(b))
	if words == nil {
		words = []string{}
	}
	slices.Sort(words)
	return slices.Compact(words)
}

// play types keys into a shell on a terminal and waits for its end.
func (s shell) play(t *testing.T, cmd *exec.Cmd, keys string) {
	t.Helper()
	cmd.Dir, cmd.Env = s.dir, s.env
	tty, err := pty.Start(cmd)
	if err != nil {
		t.Fatal(err)
	}
	defer tty.Close()
	shown := make(chan string, 1)
	go func() {
		b, _ := io.ReadAll(tty) // the terminal's end is an error
		shown <- string(b)
	}()
	if _, err := io.WriteString(tty, keys); err != nil {
		t.Fatal(err)
	}
	err = cmd.Wait()
	if text := <-shown; err != nil {
		t.Fatalf("%s: %v\n%s", cmd.Path, err, text)
	}
}
