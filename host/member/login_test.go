package member_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"log/slog"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"arbe.0sk.ar/runner/host/member"
	"arbe.0sk.ar/runner/host/token"
	"arbe.0sk.ar/runner/thread"
)

const (
	agent    = "5d3c1a52-6b5e-4c6e-9c1a-0f1e2d3c4b5a"
	issuer   = "https://id.example/auth"
	audience = "authenticated"
)

var (
	secret = []byte(strings.Repeat("s", token.MinSecret))
	old    = []byte(strings.Repeat("o", token.MinSecret))

	rsaKey   = sync.OnceValue(func() *rsa.PrivateKey { return must(rsa.GenerateKey(rand.Reader, 2048)) })
	ecKey    = must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	otherKey = must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
)

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func b64(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

// jwkOf returns a public key as a JSON Web Key, with other members changed or added.
func jwkOf(id string, key crypto.PublicKey, with map[string]string) map[string]string {
	k := map[string]string{"kid": id, "use": "sig"}
	switch key := key.(type) {
	case *rsa.PublicKey:
		k["kty"], k["n"], k["e"] = "RSA", b64(key.N.Bytes()), b64(big.NewInt(int64(key.E)).Bytes())
	case *ecdsa.PublicKey:
		point := must(key.Bytes()) // 4, x, y
		half := len(point) / 2
		k["kty"], k["crv"], k["x"], k["y"] = "EC", "P-256", b64(point[1:1+half]), b64(point[1+half:])
	}
	for name, value := range with {
		k[name] = value
	}
	return k
}

func setOf(keys ...map[string]string) []byte {
	return must(json.Marshal(map[string]any{"keys": keys}))
}

// symmetric is a symmetric key that a provider has published by mistake.
var symmetric = []byte(strings.Repeat("k", 32))

// providerOf returns a provider whose keys stand in a file.
func providerOf(t *testing.T, set []byte) *member.Provider {
	t.Helper()
	path := filepath.Join(t.TempDir(), "jwks.json")
	if err := os.WriteFile(path, set, 0o600); err != nil {
		t.Fatal(err)
	}
	p, err := member.NewProvider(path, issuer, audience, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// signed returns a provider's token with some claims and members of its header changed; nil removes one.
func signed(method jwt.SigningMethod, key any, head, claims map[string]any) string {
	c := jwt.MapClaims{
		"iss": issuer, "aud": audience, "sub": agent, "exp": time.Now().Add(time.Hour).Unix(), "role": "authenticated",
	}
	tok := jwt.NewWithClaims(method, c)
	tok.Header["kid"] = "ec"
	for to, from := range map[*map[string]any]map[string]any{(*map[string]any)(&c): claims, &tok.Header: head} {
		for name, value := range from {
			(*to)[name] = value
			if value == nil {
				delete(*to, name)
			}
		}
	}
	return must(tok.SignedString(key))
}

func TestVerify(t *testing.T) {
	type m = map[string]any
	hour := time.Hour
	now := time.Now()
	publicDER := must(x509.MarshalPKIXPublicKey(&rsaKey().PublicKey))
	publicPEM := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: publicDER})
	provider := providerOf(t, setOf(
		jwkOf("rsa", &rsaKey().PublicKey, nil), jwkOf("ec", &ecKey.PublicKey, map[string]string{"alg": "ES256"}),
		map[string]string{"kty": "oct", "kid": "oct", "k": b64(symmetric)},
		map[string]string{"kty": "OKP", "crv": "Ed25519", "kid": "okp", "x": b64(symmetric)},
		jwkOf("enc", &otherKey.PublicKey, map[string]string{"use": "enc"}),
		jwkOf("private", &otherKey.PublicKey, map[string]string{"d": b64(symmetric)}),
	))
	es := func(head, claims m) string { return signed(jwt.SigningMethodES256, ecKey, head, claims) }
	hs := func(key []byte, head m) string { return signed(jwt.SigningMethodHS256, key, head, nil) }
	ours := must(member.SignLogin(secret, agent, now.Add(hour)))
	parts := strings.Split(es(nil, nil), ".")
	thread := must(token.Sign(secret, token.Grant{
		Stream: thread.StreamName("t1"), Scope: []string{token.ScopeWrite}, Author: agent, Until: now.Add(hour),
	}))
	for _, row := range []struct {
		name, token string
		good        bool
	}{
		{"ours", ours, true},
		{"ours, of the older secret", must(member.SignLogin(old, agent, now.Add(hour))), true},
		{"ours, agent in upper case", must(member.SignLogin(secret, strings.ToUpper(agent), now.Add(hour))), true},
		{"ours, of another secret", must(member.SignLogin(symmetric, agent, now.Add(hour))), false},
		{"ours, expired", must(member.SignLogin(secret, agent, now.Add(-time.Second))), false},
		{"ES256", es(nil, nil), true},
		{"RS256", signed(jwt.SigningMethodRS256, rsaKey(), m{"kid": "rsa"}, nil), true},
		{"several audiences", es(nil, m{"aud": []string{"x", audience}}), true},
		{"begun", es(nil, m{"nbf": now.Add(-hour).Unix()}), true},

		{"nothing", "", false},
		{"no token", "a.b.c", false},
		{"too long", strings.Repeat("a", member.MaxToken+1), false},
		{"a thread's token", thread, false},
		{"signed with the server's secret itself", hs(secret, nil), false},
		{"alg none", signed(jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, nil, nil), false},
		{"no signature", parts[0] + "." + parts[1] + ".", false},
		{"HS256 with the provider's public key (DER)", hs(publicDER, m{"kid": "rsa"}), false},
		{"HS256 with the provider's public key (PEM)", hs(publicPEM, m{"kid": "rsa"}), false},
		{"HS256 with a symmetric key of the set", hs(symmetric, m{"kid": "oct"}), false},
		{"HS512", signed(jwt.SigningMethodHS512, secret, nil, nil), false},
		{"PS256", signed(jwt.SigningMethodPS256, rsaKey(), m{"kid": "rsa"}, nil), false},
		{"RS512", signed(jwt.SigningMethodRS512, rsaKey(), m{"kid": "rsa"}, nil), false},
		{"ES256 with the kid of the RSA key", es(m{"kid": "rsa"}, nil), false},
		{"RS256 with the kid of the EC key", signed(jwt.SigningMethodRS256, rsaKey(), nil, nil), false},
		{"kid missing", es(m{"kid": nil}, nil), false},
		{"kid no string", es(m{"kid": 1}, nil), false},
		{"kid unknown", es(m{"kid": "x"}, nil), false},
		{"a path as kid", es(m{"kid": "../../dev/null"}, nil), false},
		{"another key", signed(jwt.SigningMethodES256, otherKey, nil, nil), false},
		{"a key of its own (jwk)", signed(jwt.SigningMethodES256, otherKey, m{
			"jwk": jwkOf("ec", &otherKey.PublicKey, nil), "jku": "https://evil.example",
		}, nil), false},
		{"a key that is for encryption", signed(jwt.SigningMethodES256, otherKey, m{"kid": "enc"}, nil), false},
		{"a key that is published whole", signed(jwt.SigningMethodES256, otherKey, m{"kid": "private"}, nil), false},
		{"extensions", es(m{"crit": []string{"b64"}, "b64": false}, nil), false},
		{"expired", es(nil, m{"exp": now.Add(-time.Second).Unix()}), false},
		{"no expiry", es(nil, m{"exp": nil}), false},
		{"not yet", es(nil, m{"nbf": now.Add(hour).Unix()}), false},
		{"another audience", es(nil, m{"aud": "anon"}), false},
		{"no audience", es(nil, m{"aud": nil}), false},
		{"our audience", es(nil, m{"aud": member.Audience}), false},
		{"another issuer", es(nil, m{"iss": "https://id.example/other"}), false},
		{"no issuer", es(nil, m{"iss": nil}), false},
		{"our issuer", es(nil, m{"iss": member.Issuer, "aud": member.Audience}), false},
		{"no subject", es(nil, m{"sub": nil}), false},
		{"a name as subject", es(nil, m{"sub": "ann"}), false},
		{"a subject in braces", es(nil, m{"sub": "{" + agent + "}"}), false},
		{"a changed claim", parts[0] + "." + b64([]byte(`{"sub":"`+agent+`"}`)) + "." + parts[2], false},
		{"another spelling of the signature", parts[0] + "." + parts[1] + "." + respelled(parts[2]), false},
	} {
		t.Run(row.name, func(t *testing.T) {
			l := member.Logins{Secrets: [][]byte{secret, old}, Provider: provider}
			got, until, err := l.Verify(t.Context(), row.token)
			switch {
			case row.good:
				if got != agent || err != nil || until.Before(now) {
					t.Errorf("%q until %v, %v", got, until, err)
				}
			case !errors.Is(err, member.ErrLogin) || got != "" || !until.IsZero():
				t.Errorf("%q until %v, %v: want an ErrLogin", got, until, err)
			}
			_, err = token.NewVerifier([][]byte{secret, old}).Verify(row.token)
			if (err == nil) != (row.token == thread) {
				t.Errorf("as a thread's token: %v", err)
			}
			if head, _, _ := strings.Cut(row.token, "."); row.good && !strings.Contains(unb64(head), "HS256") {
				l.Provider = nil
				if _, _, err := l.Verify(t.Context(), row.token); !errors.Is(err, member.ErrLogin) {
					t.Errorf("without a provider: %v", err)
				}
			}
		})
	}
}

func unb64(s string) string {
	b, _ := base64.RawURLEncoding.DecodeString(s) // the caller looks for a word in it
	return string(b)
}

// respelled changes bits of the last character that base64 does not use.
func respelled(s string) string {
	last := strings.IndexByte("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_", s[len(s)-1])
	return s[:len(s)-1] + string("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"[last^1])
}

// TestSignLogin signs for agents alone.
func TestSignLogin(t *testing.T) {
	for _, bad := range []string{"", "ann", "urn:uuid:" + agent, agent + "\n"} {
		if _, err := member.SignLogin(secret, bad, time.Now().Add(time.Hour)); err == nil {
			t.Errorf("%q has a login token", bad)
		}
	}
}
