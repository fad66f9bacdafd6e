package token_test

import (
	"bytes"
	"encoding/base64"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"arbe.0sk.ar/runner/host/token"
)

var (
	first  = bytes.Repeat([]byte("1"), token.MinSecret)
	second = bytes.Repeat([]byte("2"), token.MinSecret)
)

func TestSignAndVerify(t *testing.T) {
	want := token.Grant{
		Stream: "arbe-thread-t1", Scope: []string{token.ScopeWrite, token.ScopeDelete}, Run: "r1", House: "h",
		Until: time.Now().Add(time.Hour).Truncate(time.Second),
	}
	for name, secret := range map[string][]byte{"the first": first, "the second": second} {
		signed, err := token.Sign(secret, want)
		if err != nil {
			t.Fatal(err)
		}
		v := token.NewVerifier([][]byte{first, second})
		for range 2 { // the second one from the cache
			got, err := v.Verify(signed)
			if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(want)); diff != "" || err != nil {
				t.Errorf("%s secret: %v\n%s", name, err, diff)
			}
			if got.Holder() != want.Holder() || got.Holder() == "" {
				t.Errorf("holder %q, want %q", got.Holder(), want.Holder())
			}
		}
	}
	if _, err := token.Sign(first[1:], want); !errors.Is(err, token.ErrShortSecret) {
		t.Errorf("a short secret: %v", err)
	}
}

func TestVerifyRefuses(t *testing.T) {
	later := jwt.NewNumericDate(time.Now().Add(time.Hour))
	good := jwt.MapClaims{"sub": "s", "scope": "stream:read", "exp": later}
	with := func(name string, value any) jwt.MapClaims {
		c := jwt.MapClaims{name: value}
		for k, v := range good {
			if _, there := c[k]; !there {
				c[k] = v
			}
		}
		if value == nil {
			delete(c, name)
		}
		return c
	}
	sign := func(method jwt.SigningMethod, key any, claims jwt.Claims) string {
		signed, err := jwt.NewWithClaims(method, claims).SignedString(key)
		if err != nil {
			t.Fatal(err)
		}
		return signed
	}
	whole := sign(jwt.SigningMethodHS256, first, good)
	v := token.NewVerifier([][]byte{first})
	if _, err := v.Verify(whole); err != nil {
		t.Fatal(err)
	}
	for name, signed := range map[string]string{
		"nothing":             "",
		"no token":            "x",
		"another secret":      sign(jwt.SigningMethodHS256, second, good),
		"another method":      sign(jwt.SigningMethodHS512, first, good),
		"no signature":        sign(jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, good),
		"a signature cut off": whole[:strings.LastIndexByte(whole, '.')+1],
		"expired": sign(jwt.SigningMethodHS256, first,
			with("exp", jwt.NewNumericDate(time.Now().Add(-time.Minute)))),
		"without an expiry": sign(jwt.SigningMethodHS256, first, with("exp", nil)),
		"without a subject": sign(jwt.SigningMethodHS256, first, with("sub", nil)),
		"without a scope":   sign(jwt.SigningMethodHS256, first, with("scope", nil)),
		"not yet good":      sign(jwt.SigningMethodHS256, first, with("nbf", later)),
	} {
		if g, err := v.Verify(signed); err == nil {
			t.Errorf("%s: got %+v", name, g)
		}
	}
}

func TestAllows(t *testing.T) {
	for scope, want := range map[string]string{
		token.ScopeRead:   "r",
		token.ScopeWrite:  "rw",
		token.ScopeRenew:  "n",
		token.ScopeDelete: "d",
	} {
		got, g := "", token.Grant{Scope: []string{scope}}
		for _, s := range []struct{ scope, letter string }{
			{token.ScopeRead, "r"}, {token.ScopeWrite, "w"}, {token.ScopeRenew, "n"}, {token.ScopeDelete, "d"},
		} {
			if g.Allows(s.scope) {
				got += s.letter
			}
		}
		if got != want {
			t.Errorf("%s allows %q, want %q", scope, got, want)
		}
	}
}

func TestParseSecrets(t *testing.T) {
	got, err := token.ParseSecrets(string(first) + ", " + string(second) + "\n")
	if diff := cmp.Diff([][]byte{first, second}, got); diff != "" || err != nil {
		t.Errorf("%v\n%s", err, diff)
	}
	for _, s := range []string{"", "short", string(first) + ",", string(first) + ",short"} {
		if _, err := token.ParseSecrets(s); !errors.Is(err, token.ErrShortSecret) {
			t.Errorf("%q: %v", s, err)
		}
	}
}

func TestPeek(t *testing.T) {
	until := time.Now().Add(-time.Hour).Truncate(time.Second)
	signed, err := token.Sign(first, token.Grant{Stream: "arbe-thread-t1", Scope: []string{"read"}, Until: until})
	if err != nil {
		t.Fatal(err)
	}
	claiming := func(claims string) string {
		return "e30." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + ".x"
	}
	for _, tt := range []struct {
		token, subject string
		until          time.Time
	}{
		{signed, "arbe-thread-t1", until}, // also one that has expired
		{claiming(`{"sub":"threads","exp":1500000000.5}`), "threads", time.Unix(1500000000, 0)},
		{claiming(`{"sub":"threads"}`), "threads", time.Time{}},
		{claiming(`{"sub":7}`), "", time.Time{}},
		{claiming(`{`), "", time.Time{}},
		{"a.!.c", "", time.Time{}},
		{"secret", "", time.Time{}},
		{"", "", time.Time{}},
	} {
		if subject, until := token.Peek(tt.token); subject != tt.subject || !until.Equal(tt.until) {
			t.Errorf("%.40s: %q until %v, want %q until %v", tt.token, subject, until, tt.subject, tt.until)
		}
	}
}
