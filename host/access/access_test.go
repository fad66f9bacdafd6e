package access_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"arbe.0sk.ar/runner/host/access"
	"arbe.0sk.ar/runner/host/log"
	"arbe.0sk.ar/runner/host/log/pebble"
)

var (
	began  = time.UnixMilli(1_800_000_000_000)
	secret = []byte(strings.Repeat("s", 32))
)

func open(t *testing.T) access.Store {
	t.Helper()
	e, err := pebble.Open(t.TempDir(), slog.New(slog.NewTextHandler(io.Discard, nil)))
	if err != nil {
		t.Fatal(err)
	}
	l := log.New(e)
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return access.Store{Log: l}
}

func TestLogin(t *testing.T) {
	s, ctx := open(t), t.Context()
	code, until, err := s.NewLogin(ctx, began, "t1")
	if err != nil || until != began.Add(access.CodeTTL) || len(code) < 26 {
		t.Fatalf("%q until %v, %v", code, until, err)
	}
	late, _, err := s.NewLogin(ctx, began, "")
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		after time.Duration
		code  string
		want  error
	}{
		{0, "nonsense", access.ErrUnknown},
		{0, strings.ToLower(code), access.ErrUnknown},
		{access.CodeTTL - 1, code, nil},
		{access.CodeTTL - 1, code, access.ErrUsed},
		{access.CodeTTL, code, access.ErrUsed},
		{access.CodeTTL, late, access.ErrExpired},
		{time.Hour, late, access.ErrUnknown}, // it was removed
	} {
		thread, err := s.Login(ctx, began.Add(step.after), step.code)
		if !errors.Is(err, step.want) || err == nil && thread != "t1" {
			t.Errorf("%s after %v: %q, %v, want %v", step.code, step.after, thread, err, step.want)
		}
	}
}

// Of several trades of a code at the same time one succeeds.
func TestLoginOnce(t *testing.T) {
	s := open(t)
	code, _, err := s.NewLogin(t.Context(), began, "")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	results := make(chan error, 20)
	for range cap(results) {
		all.Go(func() {
			_, err := s.Login(context.Background(), began, code)
			results <- err
		})
	}
	all.Wait()
	close(results)
	good := 0
	for err := range results {
		if err == nil {
			good++
		} else if !errors.Is(err, access.ErrUsed) {
			t.Error(err)
		}
	}
	if good != 1 {
		t.Errorf("%d logins", good)
	}
}

func TestShare(t *testing.T) {
	s, ctx := open(t), t.Context()
	one, code, err := s.NewShare(ctx, began, "t1", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	other, _, err := s.NewShare(ctx, began, "t2", 1000*24*time.Hour)
	if err != nil || other.Until != began.Add(access.MostShareTTL) {
		t.Fatalf("until %v, %v", other.Until, err)
	}
	for range 2 { // a share's code may be traded again
		if got, err := s.ShareOf(ctx, began, code); err != nil || got != one {
			t.Errorf("got %+v, %v", got, err)
		}
	}
	if _, err := s.Share(ctx, began.Add(time.Hour), one.ID); !errors.Is(err, access.ErrExpired) {
		t.Errorf("after its time: %v", err)
	}
	if n, err := s.Revoke(ctx, began, "t1"); n != 1 || err != nil {
		t.Errorf("revoked %d, %v", n, err)
	}
	if n, err := s.Revoke(ctx, began, "t1"); n != 0 || err != nil {
		t.Errorf("revoked %d again, %v", n, err)
	}
	if _, err := s.ShareOf(ctx, began, code); !errors.Is(err, access.ErrRevoked) {
		t.Errorf("revoked: %v", err)
	}
	if _, err := s.Share(ctx, began, other.ID); err != nil {
		t.Errorf("another thread's: %v", err)
	}
	if all, err := s.Shares(ctx, "t1"); err != nil || len(all) != 1 || !all[0].Revoked {
		t.Errorf("listed %+v, %v", all, err)
	}
	if _, _, err := s.NewLogin(ctx, began.Add(3*24*time.Hour), ""); err != nil { // each change removes what is over
		t.Fatal(err)
	}
	if _, err := s.ShareOf(ctx, began, code); !errors.Is(err, access.ErrUnknown) {
		t.Errorf("removed: %v", err)
	}
}

// The number of codes is bounded, and codes that are over make room.
func TestMostCodes(t *testing.T) {
	s, ctx := open(t), t.Context()
	var first string
	for n := 0; ; n++ {
		code, _, err := s.NewLogin(ctx, began, fmt.Sprint("t", n))
		if errors.Is(err, access.ErrFull) {
			if n < 50 || n > 1000 {
				t.Errorf("%d codes", n)
			}
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			first = code
		}
	}
	if _, err := s.Login(ctx, began, first); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.NewLogin(ctx, began, ""); err != nil {
		t.Errorf("after one was spent: %v", err)
	}
	if _, _, err := s.NewLogin(ctx, began.Add(access.CodeTTL), ""); err != nil {
		t.Errorf("after all have expired: %v", err)
	}
}

// A session lasts while it is used, and not beyond its bound.
func TestSession(t *testing.T) {
	at := func(d time.Duration) time.Time { return began.Add(d) }
	s := access.NewSession(began)
	if _, renewed := s.Renewed(at(access.IdleTTL / 3)); renewed {
		t.Error("renewed early")
	}
	for now := began; now.Before(s.Until); now = now.Add(access.IdleTTL * 2 / 3) {
		s, _ = s.Renewed(now)
		if s.Until.After(at(access.MostTTL)) {
			t.Fatalf("until %v", s.Until.Sub(began))
		}
	}
	if s.Until != at(access.MostTTL) {
		t.Errorf("a session in use ended after %v", s.Until.Sub(began))
	}
	share := access.Share{ID: "x", Thread: "t1", Until: at(90 * time.Minute)}
	s = share.NewSession(began)
	if s, _ = s.Renewed(at(50 * time.Minute)); s.Until != share.Until || s.Thread != "t1" || s.Share != "x" {
		t.Errorf("a share's: %+v", s)
	}
}

// An ended session is refused until it would have expired, others are not.
func TestEnd(t *testing.T) {
	s, ctx := open(t), t.Context()
	one, other := access.NewSession(began), access.NewSession(began)
	if one.ID == other.ID {
		t.Error("two sessions have one id")
	}
	for range 2 {
		if err := s.End(ctx, began, one); err != nil {
			t.Fatal(err)
		}
	}
	renewed, _ := one.Renewed(began.Add(access.IdleTTL - 1))
	for _, ended := range []access.Session{one, renewed} {
		if err := s.Check(ctx, began, ended); !errors.Is(err, access.ErrOut) {
			t.Errorf("%+v: %v", ended, err)
		}
	}
	if err := s.Check(ctx, began, other); err != nil {
		t.Error(err)
	}
	var err error
	for range 2000 {
		if err = s.End(ctx, began, access.NewSession(began)); err != nil {
			break
		}
	}
	if !errors.Is(err, access.ErrFull) {
		t.Errorf("the number of ended sessions is not bounded: %v", err)
	}
	if err := s.End(ctx, began.Add(access.MostTTL), other); err != nil { // the others have expired
		t.Error(err)
	}
}

func TestSeal(t *testing.T) {
	other := []byte(strings.Repeat("o", 32))
	s := access.Session{ID: "a", Thread: "t1", Share: "x", Until: began.Add(time.Hour), Most: began.Add(2 * time.Hour)}
	text := access.Seal(secret, s)
	if got, err := access.Open([][]byte{other, secret}, text, began); err != nil || got != s {
		t.Errorf("got %+v, %v", got, err)
	}
	if _, err := access.Open([][]byte{secret}, text, s.Until); !errors.Is(err, access.ErrEnded) {
		t.Errorf("when it has expired: %v", err)
	}
	if _, err := access.Open([][]byte{other}, text, began); !errors.Is(err, access.ErrForeign) {
		t.Errorf("with another secret: %v", err)
	}
	if _, err := access.Open(nil, text, began); !errors.Is(err, access.ErrForeign) {
		t.Errorf("without a secret: %v", err)
	}
	for i := range text { // no other text is a session
		changed := text[:i] + string(text[i]^1) + text[i+1:]
		for _, bad := range []string{changed, text[:i], text[:i] + "." + text[i:]} {
			if _, err := access.Open([][]byte{secret}, bad, began); !errors.Is(err, access.ErrForeign) {
				t.Fatalf("%q: %v", bad, err)
			}
		}
	}
}

// TestSealMember seals a member's session with another key than a login's: neither can be made into the other.
func TestSealMember(t *testing.T) {
	s := access.NewMember(began, "a1", began.Add(10*time.Minute))
	if s.Until != began.Add(10*time.Minute) || s.Most != s.Until {
		t.Errorf("the session outlasts the token: %+v", s)
	}
	if _, longer := s.Renewed(began.Add(9 * time.Minute)); longer {
		t.Error("the session was renewed beyond the token")
	}
	text := access.Seal(secret, s)
	if got, err := access.Open([][]byte{secret}, text, began); err != nil || got != s {
		t.Errorf("got %+v, %v", got, err)
	}
	body, mac, _ := strings.Cut(text, ".")
	b, err := base64.RawURLEncoding.DecodeString(body)
	if err != nil {
		t.Fatal(err)
	}
	for _, other := range []string{
		strings.Replace(string(b), `"agent":"a1",`, "", 1), strings.Replace(string(b), "a1", "a2", 1),
	} {
		text := base64.RawURLEncoding.EncodeToString([]byte(other)) + "." + mac
		_, err := access.Open([][]byte{secret}, text, began)
		if other == string(b) || !errors.Is(err, access.ErrForeign) {
			t.Errorf("%s: %v", other, err)
		}
	}
}
