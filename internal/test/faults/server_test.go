package faults_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"arbe.0sk.ar/runner/internal/test/port"
	"arbe.0sk.ar/runner/thread"
	"arbe.0sk.ar/runner/thread/client"
)

// service is arbe serve, which can be killed.
type service struct {
	dir   string
	addr  string // the same for all its lives
	token string // for the thread t1
	cmd   *exec.Cmd
	log   bytes.Buffer

	args  []string        // of serve, besides the address
	env   []string        // of all its commands, besides the secret
	wrap  func(*exec.Cmd) // changes how it is started; nil for nothing
	acked map[string]int  // by thread: entries that were acknowledged
}

// secret is the variable with the secret that signs its tokens.
const secret = "DURABLE_STREAMS_SECRET=a-secret-of-thirty-two-bytes-and-more"

func newService(t *testing.T) *service {
	v := &service{dir: t.TempDir(), addr: port.Reserve(t), acked: map[string]int{}}
	v.token = v.mint(t, "t1")
	t.Cleanup(func() {
		if v.cmd != nil {
			v.kill(t)
		}
	})
	return v
}

func (v *service) arbe(args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(bin, "arbe"), args...)
	cmd.Env = append([]string{"ARBE_DATA=" + v.dir, secret, "HOME=" + v.dir}, v.env...)
	return cmd
}

func (v *service) mint(t *testing.T, id string) string {
	out, err := v.arbe("token", "mint", "--thread", id).Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

// start starts it, and waits until it is there.
func (v *service) start(t *testing.T) {
	t.Helper()
	address := filepath.Join(v.dir, "address")
	if err := os.Remove(address); err != nil && !os.IsNotExist(err) {
		t.Error(err)
		return
	}
	v.cmd = v.arbe(append([]string{"serve", "--addr", v.addr, "--reconcile=false"}, v.args...)...)
	if v.wrap != nil {
		v.wrap(v.cmd)
	}
	v.cmd.Stderr = &v.log
	if err := v.cmd.Start(); err != nil {
		t.Error(err)
		return
	}
	for began := time.Now(); ; time.Sleep(2 * time.Millisecond) { // until it prints its address
		if b, err := os.ReadFile(address); err == nil && len(b) > 0 {
			return
		}
		if time.Since(began) > patience {
			t.Errorf("arbe serve does not begin:\n%s", v.log.String())
			return
		}
	}
}

func (v *service) kill(t *testing.T) {
	if err := v.cmd.Process.Kill(); err != nil {
		t.Error(err)
	}
	_ = v.cmd.Wait() // it was killed
	v.cmd = nil
}

// client is a client of one of its threads.
func (v *service) client(t *testing.T, id string) *client.Client {
	return &client.Client{
		Base: thread.BaseURL("http://" + v.addr), Thread: id,
		Token: client.StaticToken(v.mint(t, id)),
	}
}

// entries are those that a thread has.
func (v *service) entries(t *testing.T, id string) (all []thread.Entry) {
	t.Helper()
	_, err := v.client(t, id).Read(t.Context(), "0", false, func(e thread.Entry) error {
		all = append(all, e)
		return nil
	})
	if err != nil && !client.NotFound(err) {
		t.Fatal(err)
	}
	return all
}

// The server keeps every entry that it has acknowledged, once and in order, through KILL at random moments.
func TestServerKeepsWhatItAcknowledged(t *testing.T) {
	t.Parallel()
	rounds, err := strconv.Atoi(os.Getenv("ARBE_SERVER_KILLS"))
	if err != nil {
		rounds = 10
	}
	const writers = 4
	v := newService(t)
	v.start(t)
	acked := make([]int, writers) // how many entries of each writer are acknowledged
	down := make([]time.Duration, 0, rounds)
	for range rounds {
		ctx, stop := t.Context(), make(chan struct{})
		var wg sync.WaitGroup
		for w := range writers {
			cl := v.client(t, fmt.Sprintf("w%d", w))
			wg.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
					}
					batch := make([]thread.Entry, 1+rand.N(3))
					for i := range batch {
						n := acked[w] + i
						batch[i] = thread.Entry{
							ID:      fmt.Sprintf("e%d", n),
							TS:      thread.Stamp(time.Now()),
							Payload: fmt.Appendf(nil, `{"type":"chat","text":"%d"}`, n),
						}
					}
					if _, err := cl.Append(ctx, batch); err == nil {
						acked[w] += len(batch)
					}
				}
			})
		}
		time.Sleep(rand.N(150 * time.Millisecond)) // the random moment
		if err := v.cmd.Process.Signal(syscall.SIGKILL); err != nil {
			t.Error(err)
		}
		close(stop)
		began := time.Now()
		_ = v.cmd.Wait() // it was killed
		v.start(t)
		down = append(down, time.Since(began))
		wg.Wait() // each writer's last try has been answered, by one server or the next
	}
	total := 0
	for w := range writers {
		entries := v.entries(t, fmt.Sprintf("w%d", w))
		for i, e := range entries {
			var p thread.Chat
			if err := json.Unmarshal(e.Payload, &p); err != nil || e.ID != fmt.Sprintf("e%d", i) ||
				p.Text != strconv.Itoa(i) {
				t.Fatalf("entry %d of writer %d is %s %s", i, w, e.ID, e.Payload)
			}
		}
		if len(entries) < acked[w] {
			t.Errorf("writer %d: %d entries were acknowledged, %d are there", w, acked[w], len(entries))
		}
		total += len(entries)
		v.summarized(t, fmt.Sprintf("w%d", w), len(entries))
	}
	t.Logf("%d kills, %d entries, none lost; the longest restart took %v", rounds, total, maxOf(down))
}

// summarized compares the summary of a thread of so many chats with the thread: the server was killed while it folded
// the entries.
func (v *service) summarized(t *testing.T, id string, entries int) {
	t.Helper()
	got, _, err := v.client(t, id).Summary(t.Context())
	if entries == 0 && client.NotFound(err) {
		return
	}
	all := v.entries(t, id)
	if err != nil || len(all) == 0 || got.LastEntryAt != all[len(all)-1].At || got.StartedAt != all[0].At ||
		got.Title != "0" || got.Status != thread.StatusIdle {
		t.Errorf("the summary of %d entries of %s is %+v, %v", entries, id, got, err)
	}
}

func maxOf(all []time.Duration) (most time.Duration) {
	for _, d := range all {
		most = max(most, d)
	}
	return most
}
