package member_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"arbe.0sk.ar/runner/host/member"
)

// published is a provider's key set: an http.RoundTripper that counts requests.
type published struct {
	mu    sync.Mutex
	set   []byte
	err   error
	takes time.Duration
	asked atomic.Int64
}

func (p *published) change(set []byte, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.set, p.err = set, err
}

func (p *published) RoundTrip(r *http.Request) (*http.Response, error) {
	p.asked.Add(1)
	p.mu.Lock()
	set, err, takes := p.set, p.err, p.takes
	p.mu.Unlock()
	select {
	case <-time.After(takes):
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
	if err != nil {
		return nil, err
	}
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(bytes.NewReader(set))}, nil
}

// by returns a token with this key id.
func by(id string, key *ecdsa.PrivateKey) string {
	return signed(jwt.SigningMethodES256, key, map[string]any{"kid": id}, map[string]any{
		"exp": time.Now().Add(100 * time.Hour).Unix(),
	})
}

// TestKeysAreRead follows a provider's key set over a day: when it is read, and what is accepted then.
func TestKeysAreRead(t *testing.T) {
	first, both := setOf(jwkOf("1", &ecKey.PublicKey, nil)), setOf(
		jwkOf("1", &ecKey.PublicKey, nil), jwkOf("2", &otherKey.PublicKey, nil))
	second := setOf(jwkOf("2", &otherKey.PublicKey, nil))
	away := errors.New("away")
	synctest.Test(t, func(t *testing.T) {
		at := &published{err: away}
		p, err := member.NewProvider("https://id.example/jwks", issuer, audience, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		p.HTTP = &http.Client{Transport: at}
		l := member.Logins{Provider: p}
		for i, step := range []struct {
			wait   time.Duration
			change func()
			token  string
			want   error
			asked  int64
		}{
			{0, nil, by("1", ecKey), member.ErrNoKeys, 1},
			{time.Second, nil, by("1", ecKey), member.ErrNoKeys, 1},
			{5 * time.Second, func() { at.change(first, nil) }, by("1", ecKey), nil, 2},
			{0, nil, by("1", ecKey), nil, 2},
			{0, nil, by("2", otherKey), member.ErrLogin, 2},
			{59 * time.Second, nil, by("2", otherKey), member.ErrLogin, 2},
			{time.Second, nil, by("2", otherKey), member.ErrLogin, 3}, // the bound is a minute
			{0, func() { at.change(both, nil) }, by("2", otherKey), member.ErrLogin, 3},
			{time.Minute, nil, by("2", otherKey), nil, 4},
			{0, nil, by("1", ecKey), nil, 4},
			{14 * time.Minute, nil, by("1", ecKey), nil, 4},
			{time.Minute, func() { at.change(second, nil) }, by("1", ecKey), member.ErrLogin, 5}, // it was withdrawn
			{0, nil, by("2", otherKey), nil, 5},
			{16 * time.Minute, func() { at.change(nil, away) }, by("2", otherKey), nil, 6}, // the last set serves
			{time.Second, nil, by("2", otherKey), nil, 6},
			{time.Second, nil, by("3", otherKey), member.ErrLogin, 6},
			{23 * time.Hour, nil, by("2", otherKey), nil, 7},
			{time.Hour, nil, by("2", otherKey), member.ErrNoKeys, 8}, // for a day
			{time.Minute, func() { at.change([]byte("<html>"), nil) }, by("2", otherKey), member.ErrNoKeys, 9},
			{time.Minute, func() { at.change(second, nil) }, by("2", otherKey), nil, 10},
		} {
			time.Sleep(step.wait)
			if step.change != nil {
				step.change()
			}
			_, _, err := l.Verify(t.Context(), step.token)
			if !errors.Is(err, step.want) || step.want == nil && err != nil {
				t.Errorf("step %d: %v, want %v", i, err, step.want)
			}
			if n := at.asked.Load(); n != step.asked {
				t.Fatalf("step %d: %d requests, want %d", i, n, step.asked)
			}
		}
	})
}

// TestKeysAtOnce sends a hundred tokens while the set is read slowly: there is one request, and it does not end with
// the client that caused it.
func TestKeysAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		at := &published{set: setOf(jwkOf("1", &ecKey.PublicKey, nil)), takes: 5 * time.Second}
		p, err := member.NewProvider("https://id.example/jwks", issuer, audience, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		p.HTTP = &http.Client{Transport: at}
		l, token := member.Logins{Provider: p}, by("1", ecKey)
		gone, leave := context.WithCancel(t.Context())
		var all sync.WaitGroup
		all.Go(func() { _, _, _ = l.Verify(gone, token) })
		synctest.Wait()
		leave()
		for range 100 {
			all.Go(func() {
				if _, _, err := l.Verify(t.Context(), token); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if n := at.asked.Load(); n != 1 {
			t.Errorf("%d requests", n)
		}
		at.takes = time.Hour // the next read hangs
		time.Sleep(20 * time.Minute)
		began := time.Now()
		all.Go(func() {
			if _, _, err := l.Verify(t.Context(), token); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		if _, _, err := l.Verify(t.Context(), token); err != nil || time.Since(began) != 0 {
			t.Errorf("%v after %v: a known key waits for no read", err, time.Since(began))
		}
		all.Wait()
		if waited := time.Since(began); waited > 10*time.Second {
			t.Errorf("a read took %v", waited)
		}
	})
}

// TestKeysHang sends tokens to a server whose provider accepts connections and never answers, from the server's start
// on: all that wait are answered when one read has failed, the next ones at once, and reads become rarer.
func TestKeysHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		at := &published{takes: time.Hour}
		p, err := member.NewProvider("https://id.example/jwks", issuer, audience, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		p.HTTP = &http.Client{Transport: at}
		l, token := member.Logins{Provider: p}, by("1", ecKey)
		began := time.Now()
		var all sync.WaitGroup
		send := func() {
			all.Go(func() {
				if _, _, err := l.Verify(t.Context(), token); !errors.Is(err, member.ErrNoKeys) {
					t.Error(err)
				}
			})
		}
		for range 50 {
			send()
		}
		all.Wait()
		if took, n := time.Since(began), at.asked.Load(); took > 10*time.Second || n != 1 {
			t.Errorf("50 requests were answered after %v and %d reads, want 10s and one", took, n)
		}
		failed := time.Now()
		for range 50 {
			send()
		}
		all.Wait()
		if took, n := time.Since(failed), at.asked.Load(); took != 0 || n != 1 {
			t.Errorf("after the failure requests took %v and %d reads, want none", took, n-1)
		}
		for time.Since(began) < time.Hour { // a request each second, as from a page that comes again
			send()
			time.Sleep(time.Second)
		}
		all.Wait()
		if n := at.asked.Load(); n < 30 || n > 65 {
			t.Errorf("%d reads in an hour, want one in a minute", n)
		}
		at.change(setOf(jwkOf("1", &ecKey.PublicKey, nil)), nil)
		at.mu.Lock()
		at.takes = 0
		at.mu.Unlock()
		time.Sleep(time.Minute)
		if _, _, err := l.Verify(t.Context(), token); err != nil {
			t.Errorf("once the provider answers: %v", err)
		}
	})
}

// TestKeySets has sets that are refused whole, and what they are refused for.
func TestKeySets(t *testing.T) {
	small := must(rsa.GenerateKey(rand.Reader, 1024))
	p384 := must(ecdsa.GenerateKey(elliptic.P384(), rand.Reader))
	good := jwkOf("ec", &ecKey.PublicKey, nil)
	for name, row := range map[string]struct {
		set  []byte
		want string // "" for a good one
	}{
		"good":            {setOf(good), ""},
		"one id, 2 types": {setOf(jwkOf("ec", &rsaKey().PublicKey, nil), good), ""},
		"no JSON":         {[]byte("<html>"), "no JSON Web Key Set"},
		"one key":         {setOf(good)[9:], "no JSON Web Key Set"},
		"empty":           {setOf(), "no JSON Web Key Set"},
		"large":           {bytes.Repeat([]byte(" "), 1<<20+1), "more than 1048576 bytes"},
		"many":            {setOf(make([]map[string]string, 101)...), "more than 100 keys"},
		"twice":           {setOf(good, good), "two keys"},
		"symmetric":       {setOf(map[string]string{"kty": "oct", "kid": "ec", "k": b64(symmetric)}), "symmetric"},
		"no kid":          {setOf(jwkOf("", &ecKey.PublicKey, nil)), "no kid"},
		"small":           {setOf(jwkOf("ec", &small.PublicKey, nil)), "1024 bits"},
		"exponent 1":      {setOf(jwkOf("ec", &rsaKey().PublicKey, map[string]string{"e": "AQ"})), "exponent"},
		"P-384":           {setOf(jwkOf("ec", &p384.PublicKey, map[string]string{"crv": "P-384"})), "P-384"},
		"not on P-256":    {setOf(jwkOf("ec", &ecKey.PublicKey, map[string]string{"y": b64(symmetric)})), "curve"},
		"another alg":     {setOf(jwkOf("ec", &ecKey.PublicKey, map[string]string{"alg": "HS256"})), "want ES256"},
	} {
		var log bytes.Buffer
		p := providerOf(t, row.set)
		p.Logger = slog.New(slog.NewTextHandler(&log, nil))
		_, _, err := member.Logins{Provider: p}.Verify(t.Context(), signed(jwt.SigningMethodES256, ecKey, nil, nil))
		switch {
		case row.want == "":
			if err != nil || log.Len() > 0 {
				t.Errorf("%s: %v\n%s", name, err, &log)
			}
		case !errors.Is(err, member.ErrNoKeys) || !strings.Contains(log.String(), row.want):
			t.Errorf("%s: %v, want %q in the log:\n%s", name, err, row.want, &log)
		}
	}
}

// TestSources has the places that keys come from.
func TestSources(t *testing.T) {
	file := filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for source, good := range map[string]bool{
		"https://id.example/jwks": true, "http://127.0.0.1:1/jwks": true, "http://localhost:54321/jwks": true,
		file: true, file + ".missing": false,
		"http://id.example/jwks": false, "ftp://id.example/jwks": false, "https://": false, "": false,
		"file:///etc/keys": false,
	} {
		if _, err := member.NewProvider(source, issuer, audience, nil); (err == nil) != good {
			t.Errorf("%s: %v", source, err)
		}
	}
	for _, row := range [][2]string{{"", audience}, {issuer, ""}} {
		if _, err := member.NewProvider(file, row[0], row[1], nil); err == nil {
			t.Errorf("issuer %q, audience %q", row[0], row[1])
		}
	}
	// A redirect is not followed, not even to good keys.
	mux := http.NewServeMux()
	mux.HandleFunc("/good", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write(setOf(jwkOf("ec", &ecKey.PublicKey, nil))) // the test fails without it
	})
	mux.Handle("/moved", http.RedirectHandler("/good", http.StatusFound))
	srv := httptest.NewServer(mux)
	defer srv.Close()
	for path, want := range map[string]error{"/good": nil, "/moved": member.ErrNoKeys, "/absent": member.ErrNoKeys} {
		p, err := member.NewProvider(srv.URL+path, issuer, audience, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		_, _, err = member.Logins{Provider: p}.Verify(t.Context(), signed(jwt.SigningMethodES256, ecKey, nil, nil))
		if !errors.Is(err, want) || want == nil && err != nil {
			t.Errorf("%s: %v, want %v", path, err, want)
		}
	}
}

// rows are the rows of a test.
type rows struct {
	houses map[string][]string // by agent
	of     map[string]string   // by thread
	away   error
	asked  int
}

func (r *rows) Houses(_ context.Context, agent string) ([]string, error) {
	return r.houses[agent], r.away
}

func (r *rows) Closed(context.Context, string) (bool, error) { return false, r.away }

func (r *rows) HousesOf(_ context.Context, threads []string) (map[string]string, error) {
	r.asked++
	all := map[string]string{}
	for _, id := range threads {
		if of, ok := r.of[id]; ok {
			all[id] = of
		}
	}
	return all, r.away
}

func TestOpen(t *testing.T) {
	r := &rows{
		houses: map[string][]string{agent: {"h1", "h2"}},
		of:     map[string]string{"t1": "h1", "t2": "h2", "t3": "h3", "odd": ""},
	}
	d := &member.Doors{Logins: member.Logins{Secrets: [][]byte{secret}}, Rows: r}
	m, err := d.Member(t.Context(), must(member.SignLogin(secret, agent, time.Now().Add(time.Hour))))
	if err != nil || m.Agent != agent || len(m.Houses) != 2 || m.Until.IsZero() {
		t.Fatalf("%+v, %v", m, err)
	}
	nobody, err := d.Agent(t.Context(), "6d3c1a52-6b5e-4c6e-9c1a-0f1e2d3c4b5a")
	if err != nil {
		t.Fatal(err)
	}
	for id, want := range map[string]bool{
		"t1": true, "t2": true, "t3": false, "odd": false, "absent": false, "": false,
	} {
		if may, err := d.MayOpen(t.Context(), m, id); may != want || err != nil {
			t.Errorf("%s: %v, %v", id, may, err)
		}
		if may, err := d.MayOpen(t.Context(), nobody, id); may || err != nil {
			t.Errorf("%s by an agent of no house: %v, %v", id, may, err)
		}
		if may, err := d.MayOpen(t.Context(), member.Member{Houses: []string{""}}, id); may || err != nil {
			t.Errorf("%s by an agent of the house without a name: %v, %v", id, may, err)
		}
	}
	r.away = errors.New("away")
	if may, err := d.MayOpen(t.Context(), m, "t1"); may || !errors.Is(err, member.ErrRows) {
		t.Errorf("without rows: %v, %v", may, err)
	}
	if _, err := d.Agent(t.Context(), agent); !errors.Is(err, member.ErrRows) {
		t.Errorf("without rows: %v", err)
	}
}

// TestHouseOf reads a thread's house once a minute, and keeps it while the rows are away.
func TestHouseOf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &rows{of: map[string]string{"t1": "h1"}}
		d := &member.Doors{Rows: r}
		check := func(id, want string, asked int, wantErr error) {
			t.Helper()
			if h, err := d.HouseOf(t.Context(), id); h != want || !errors.Is(err, wantErr) || r.asked != asked {
				t.Errorf("%s: %q, %v, asked %d times; want %q, %v, %d", id, h, err, r.asked, want, wantErr, asked)
			}
		}
		check("t1", "h1", 1, nil)
		check("t1", "h1", 1, nil)
		check("t2", "", 2, nil)
		r.of["t2"] = "h2"
		time.Sleep(time.Minute)
		check("t2", "h2", 3, nil)
		r.away = errors.New("away")
		time.Sleep(time.Hour)
		check("t1", "h1", 4, nil)
		check("t3", "", 5, member.ErrRows)
		r.away = nil
		for i := range 10_100 { // the cache is bounded
			if _, err := d.HouseOf(t.Context(), fmt.Sprint("x", i)); err != nil {
				t.Fatal(err)
			}
		}
		check("t1", "h1", 10_106, nil)
	})
}
