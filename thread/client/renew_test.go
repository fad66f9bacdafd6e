package client_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"arbe.0sk.ar/runner/thread"
	"arbe.0sk.ar/runner/thread/client"
)

// office is a thread server with a clock of its own, that gives tokens for a while and takes none that has expired by
// its clock. It is a transport: the client's time may be a bubble's.
type office struct {
	skew    time.Duration // of its clock
	ttl     time.Duration
	refuses int                  // how often the renewal fails with 503 before it works; -1: an older server has none
	hangs   bool                 // a renewal gets no answer
	date    func() time.Duration // by how much the Date of its answers is wrong; nil for not at all

	mu       sync.Mutex
	renewals int
	refused  int // posts with 401
	posts    int
	shown    map[string]bool
}

// note is what the tests post.
var note = thread.Entry{ID: "e", TS: "2026-01-01T00:00:00.000Z", Payload: []byte(`{"type":"chat","text":"x"}`)}

func (o *office) now() time.Time { return time.Now().Add(o.skew) }

// mint returns a token with its time of issue and its lifetime, by the office's clock.
func (o *office) mint(n int) string {
	now := o.now()
	claims := fmt.Sprintf(`{"n":%d,"iat":%d,"exp":%d}`, n, now.Unix(), now.Add(o.ttl).Unix())
	return "e30." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + ".sig"
}

func (o *office) RoundTrip(r *http.Request) (*http.Response, error) {
	if o.hangs && strings.HasSuffix(r.URL.Path, "/token") {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	w := httptest.NewRecorder()
	date := o.now()
	if o.date != nil {
		date = date.Add(o.date())
	}
	w.Header().Set("Date", date.UTC().Format(http.TimeFormat))
	token := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	switch {
	case strings.HasSuffix(r.URL.Path, "/token") && o.refuses < 0:
		http.Error(w, "no such page", http.StatusNotFound)
	case strings.HasSuffix(r.URL.Path, "/token") && o.refuses > 0:
		o.refuses--
		http.Error(w, "busy", http.StatusServiceUnavailable)
	case strings.HasSuffix(r.URL.Path, "/token"):
		if token != "the-renew-token" {
			http.Error(w, "no", http.StatusUnauthorized)
			break
		}
		o.renewals++
		fmt.Fprintf(w, `{"jwt":"%s","expiresAt":"x"}`, o.mint(o.renewals))
	case o.expired(token):
		o.refused++
		http.Error(w, `{"error":{"code":"invalid_token","message":"expired"}}`, http.StatusUnauthorized)
	default:
		o.posts++
		o.shown[token] = true
		_, _ = w.WriteString(`{"nextOffset":"1"}`)
	}
	return w.Result(), nil
}

func (o *office) expired(token string) bool {
	var exp int64
	b, err := base64.RawURLEncoding.DecodeString(strings.Split(token+"..", ".")[1])
	if err != nil {
		return true
	}
	_, after, _ := strings.Cut(string(b), `"exp":`)
	if _, err := fmt.Sscan(strings.TrimSuffix(after, "}"), &exp); err != nil {
		return true
	}
	return !o.now().Before(time.Unix(exp, 0))
}

// A run of three days with tokens of two hours, under a wrong clock in the box: no post is refused.
func TestRenewal(t *testing.T) {
	for _, skew := range []time.Duration{0, 24 * time.Hour, -24 * time.Hour} {
		t.Run(skew.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := &office{skew: skew, ttl: 2 * time.Hour, shown: map[string]bool{}}
				c := &client.Client{
					Base: "http://office", Thread: "t1", Token: client.StaticToken(o.mint(0)), Renew: "the-renew-token",
					HTTP: &http.Client{Transport: o},
				}
				stop := keepToken(t, c)
				defer stop()
				// the bubble's time
				for began := time.Now(); time.Since(began) < 72*time.Hour; time.Sleep(time.Minute) {
					if err := c.Heartbeat(t.Context(), note); err != nil {
						t.Fatal(err)
					}
				}
				stop()
				if o.refused != 0 || o.renewals < 71 || o.renewals > 73 {
					t.Errorf("%d posts refused, %d renewals in 72 hours", o.refused, o.renewals)
				}
			})
		})
	}
}

// keepToken runs the client's KeepToken until the returned func is called, which may be called twice.
func keepToken(t *testing.T, c *client.Client) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.KeepToken(ctx) }()
	synctest.Wait()
	return sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("KeepToken returned %v for an order to stop", err)
		}
	})
}

// Under any Date in an answer, even a proxy's, tokens are not renewed faster than they age.
func TestRenewalWithAWrongDate(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, tt := range []struct {
		name string
		date func() time.Duration
		most int
	}{
		{"three hours ahead", func() time.Duration { return 3 * time.Hour }, 1},
		{"three hours behind", func() time.Duration { return -3 * time.Hour }, 0},
		{"another one each time", func() time.Duration {
			return time.Duration(random.Int64N(48*3600)-24*3600) * time.Second
		}, 1},
		{"a year ahead", func() time.Duration { return 365 * 24 * time.Hour }, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := &office{ttl: 2 * time.Hour, shown: map[string]bool{}, date: tt.date}
				c := &client.Client{
					Base: "http://office", Thread: "t1", Token: client.StaticToken(o.mint(0)), Renew: "the-renew-token",
					HTTP: &http.Client{Transport: o},
				}
				stop := keepToken(t, c)
				defer stop()
				for range 300 {
					if err := c.Heartbeat(t.Context(), note); err != nil {
						t.Fatal(err)
					}
					time.Sleep(time.Second) // the bubble's time
				}
				stop()
				if o.renewals > tt.most {
					t.Errorf("%d renewals in 300 requests", o.renewals)
				}
			})
		})
	}
}

// A server that refuses each fresh token, too, is asked for new ones once a minute in the end.
func TestRenewalInVain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := &office{ttl: 2 * time.Hour, shown: map[string]bool{}}
		refuse := trip(func(r *http.Request) (*http.Response, error) {
			if strings.HasSuffix(r.URL.Path, "/token") {
				return o.RoundTrip(r)
			}
			return answer(401), nil
		})
		c := &client.Client{
			Base: "http://office", Thread: "t1", Token: client.StaticToken("x"), Renew: "the-renew-token",
			HTTP: &http.Client{Transport: refuse},
		}
		stop := keepToken(t, c)
		defer stop()
		for began := time.Now(); time.Since(began) < time.Hour; time.Sleep(time.Second) { // the bubble's time
			if err := c.Heartbeat(t.Context(), note); !client.Refused(err) {
				t.Fatalf("got %v", err)
			}
		}
		stop()
		if o.renewals < 30 || o.renewals > 70 {
			t.Errorf("%d renewals in an hour", o.renewals)
		}
	})
}

// A renewal that gets no answer holds nobody up: neither while the token is good, nor for long when it is not.
func TestRenewalHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := &office{ttl: 2 * time.Hour, shown: map[string]bool{}, hangs: true}
		c := &client.Client{
			Base: "http://office", Thread: "t1", Token: client.StaticToken(o.mint(0)), Renew: "the-renew-token",
			HTTP: &http.Client{Transport: o},
		}
		defer keepToken(t, c)()
		var slowest time.Duration
		post := func() error {
			began := time.Now()
			err := c.Heartbeat(t.Context(), note)
			slowest = max(slowest, time.Since(began))
			return err
		}
		for began := time.Now(); time.Since(began) < 119*time.Minute; time.Sleep(time.Second) { // the bubble's time
			if err := post(); err != nil {
				t.Fatal(err)
			}
		}
		if slowest > 0 {
			t.Errorf("a post took %v, while the token was good", slowest)
		}
		time.Sleep(2 * time.Minute) // the bubble's time
		if err := post(); !client.Refused(err) || slowest > 4*time.Second {
			t.Errorf("a post with the expired token took %v: %v", slowest, err)
		}
	})
}

// A token that expired while no renewal was possible is renewed when the server refuses it, and the refused post
// succeeds.
func TestRenewalAfterPartition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := &office{ttl: 2 * time.Hour, shown: map[string]bool{}, refuses: 2} // one failed renewal: two tries
		var log strings.Builder
		c := &client.Client{
			Base: "http://office", Thread: "t1", Token: client.StaticToken(o.mint(0)), Renew: "the-renew-token",
			HTTP: &http.Client{Transport: o},
			Log:  slog.New(slog.NewTextHandler(&log, nil)),
		}
		post := func() error {
			_, err := c.Append(t.Context(), []thread.Entry{note})
			return err
		}
		if err := post(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Hour) // the bubble's time
		if err := post(); !client.Refused(err) {
			t.Errorf("the renewal fails, and the post returns %v", err)
		}
		time.Sleep(2 * time.Second) // the bubble's time
		if err := post(); err != nil {
			t.Errorf("the renewal works, and the post returns %v", err)
		}
		for _, want := range []string{
			"refuses the token", "could not be renewed", "was renewed",
			"takes the token again",
		} {
			if strings.Count(log.String(), want) != 1 {
				t.Errorf("not logged once: %s in\n%s", want, log.String())
			}
		}
	})
}

// An older server that renews no tokens is asked once, and a token in a file that somebody renews is taken as soon as
// it is needed.
func TestTokenFileRenewed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	o := &office{ttl: time.Hour, shown: map[string]bool{}, refuses: -1}
	write := func(token string) {
		if err := os.WriteFile(path, []byte(token+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(o.mint(0))
	c := &client.Client{
		Base:   "http://office",
		Thread: "t1",
		Token:  client.FileToken(path),
		Renew:  "the-renew-token",
		HTTP:   &http.Client{Transport: o},
	}
	post := func() error {
		_, err := c.Append(t.Context(), []thread.Entry{note})
		return err
	}
	if err := post(); err != nil {
		t.Fatal(err)
	}
	o.skew = 2 * time.Hour
	if err := post(); !client.Refused(err) {
		t.Errorf("got %v", err)
	}
	if err := post(); !client.Refused(err) {
		t.Errorf("got %v", err)
	}
	write(o.mint(1))
	if err := post(); err != nil {
		t.Errorf("the file has a new token, and the post returns %v", err)
	}
	if o.refused != 2 || o.posts != 2 {
		t.Errorf("%d refused, %d taken", o.refused, o.posts)
	}
}

// A call that is cancelled while it waits for a fresh token does not report a refused token: a fresh one may still
// come.
func TestStoppedWhileRenewing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := &office{ttl: 2 * time.Hour, shown: map[string]bool{}, hangs: true}
		c := &client.Client{
			Base: "http://office", Thread: "t1", Token: client.StaticToken("x"), Renew: "the-renew-token",
			HTTP: &http.Client{Transport: o},
		}
		defer keepToken(t, c)()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := c.Append(ctx, []thread.Entry{note}); err == nil || client.Refused(err) {
			t.Errorf("got %v", err)
		}
	})
}
