package faults_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"arbe.0sk.ar/runner/internal/test/natsserver"
	"arbe.0sk.ar/runner/thread"
)

// A reader of a thread, forwards or backwards, and one of the list of threads, whose server is killed and started again
// between two pages and within one, gets each entry once and in order.
func TestServerRestartsBetweenPages(t *testing.T) {
	t.Parallel()
	newService(t).restartBetweenPages(t)
}

// The same in front of a NATS server that runs on.
func TestFullServerRestartsBetweenPages(t *testing.T) {
	s, err := natsserver.Start(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { natsserver.Stop(s) })
	v := newService(t)
	v.args = []string{"--engine", "nats", "--nats-url", s.ClientURL(), "--nats-allow-unsafe", "--nats-replicas", "1"}
	v.restartBetweenPages(t)
}

func (v *service) restartBetweenPages(t *testing.T) {
	v.start(t)
	const n = 2500 // pieces have 1000
	want := make([]string, n)
	for i := 0; i < n; i += 500 {
		var batch []thread.Entry
		for k := i; k < i+500; k++ {
			want[k] = fmt.Sprint("e", k)
			batch = append(batch, thread.Entry{
				ID: want[k], TS: thread.Stamp(time.Now()), Payload: fmt.Appendf(nil, `{"type":"chat","text":"%d"}`, k),
			})
		}
		if _, err := v.client(t, "t1").Append(t.Context(), batch); err != nil {
			t.Fatal(err)
		}
	}
	t.Run("forwards", func(t *testing.T) {
		v.readThrough(t, want, func(f func(thread.Entry) error) error {
			_, err := v.client(t, "t1").Read(t.Context(), "0", false, f)
			return err
		})
	})
	t.Run("backwards", func(t *testing.T) {
		back := make([]string, n)
		for i, id := range want {
			back[n-1-i] = id
		}
		v.readThrough(t, back, func(f func(thread.Entry) error) error {
			_, err := v.client(t, "t1").ReadBack(t.Context(), "now", f)
			return err
		})
	})
	t.Run("list", func(t *testing.T) { v.listThrough(t) })
}

// readThrough reads a thread, and restarts the server behind the first entry of a piece, in its middle, and behind its
// last one, forwards and backwards: at once, and while the client tries.
func (v *service) readThrough(t *testing.T, want []string, read func(f func(thread.Entry) error) error) {
	restarts := map[int]bool{0: true, 15: true, 79: true, 335: false, 500: true, 999: false, 1335: true, 1999: true}
	var starting sync.WaitGroup
	defer starting.Wait()
	i := 0
	err := read(func(e thread.Entry) error {
		if i >= len(want) || e.ID != want[i] {
			return fmt.Errorf("entry %d is %s", i, e.ID)
		}
		if atOnce, is := restarts[i]; is {
			starting.Wait()
			v.kill(t)
			if starting.Go(func() { v.start(t) }); atOnce {
				starting.Wait()
			}
		}
		i++
		return nil
	})
	if err != nil || i != len(want) {
		t.Errorf("%d entries of %d, %v\n%s", i, len(want), err, v.log.String())
	}
}

// listThrough reads the list of threads page by page, and restarts the server behind each.
func (v *service) listThrough(t *testing.T) {
	for i := range 4 {
		e := thread.Entry{ID: "a", TS: thread.Stamp(time.Now()), Payload: []byte(`{"type":"chat","text":"x"}`)}
		if _, err := v.client(t, fmt.Sprint("listed", i)).Append(t.Context(), []thread.Entry{e}); err != nil {
			t.Fatal(err)
		}
	}
	out, err := v.arbe("token", "mint", "--scope", "threads").Output()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for cursor := ""; ; {
		req, err := http.NewRequestWithContext(t.Context(), "GET",
			"http://"+v.addr+"/api/threads?limit=2&cursor="+cursor, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(out)))
		resp, err := http.DefaultClient.Do(req)
		if err != nil { // of a connection to the server before
			continue
		}
		b, err := io.ReadAll(resp.Body)
		if err := resp.Body.Close(); err != nil {
			t.Fatal(err)
		}
		if resp.StatusCode == http.StatusServiceUnavailable { // the index is compared with the log
			continue
		}
		var page thread.SummaryPage
		if err != nil || json.Unmarshal(b, &page) != nil || resp.StatusCode != 200 {
			t.Fatalf("%d %s %v", resp.StatusCode, b, err)
		}
		for _, v := range page.Threads {
			got = append(got, v.ID)
		}
		if cursor = page.Cursor; cursor == "" {
			break
		}
		v.kill(t)
		v.start(t)
	}
	if s := strings.Join(got, " "); s != "listed3 listed2 listed1 listed0 t1" {
		t.Errorf("the list has %s", s)
	}
}
