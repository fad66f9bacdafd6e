// Package token signs and verifies tokens: JSON Web Tokens (HS256) that allow their holder something on one stream. To
// this package a stream is a name.
package token

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// Scopes of a token.
const (
	ScopeRead  = "stream:read"
	ScopeWrite = "stream:write" // includes reading
	ScopeRenew = "stream:renew" // to get a fresh write token, and nothing else

	// ScopeDelete deletes a stream. No writer has it: a run in a box must not be able to delete its own record.
	ScopeDelete = "stream:delete"

	// ScopeThreads reads the list of threads and their summaries. Its token's subject is SubjectThreads.
	ScopeThreads = "threads:read"

	// ScopePage opens the page: it makes login codes, and makes, lists and revokes share links. So its holder may see
	// all threads and act on them. Its token's subject is SubjectPage.
	ScopePage = "page:open"

	// ScopeBackup copies the whole log. Its token's subject is SubjectAdmin.
	ScopeBackup = "server:backup"
)

// SubjectAdmin is the subject of tokens for the server itself. It is the name of no stream.
const SubjectAdmin = "arbe-admin"

// SubjectThreads is the subject of tokens for the list of threads.
const SubjectThreads = "threads"

// SubjectPage is the subject of tokens for the page.
const SubjectPage = "page"

// Lifetimes and limits of tokens.
const (
	WriteTTL  = 2 * time.Hour // of a write token that a renew token gets
	MinSecret = 32            // bytes
)

// Grant has the rights of a token.
type Grant struct {
	Stream  string // name of its stream; of a thread as thread.StreamName returns it
	Scope   []string
	Run     string // it may post what this run's runner posts; "" for any
	Command bool   // Run is a command's id: it may post what the command's supervisor posts
	House   string // its threads are of this house; "" for any
	Author  string // it may post entries of this author or of none; "" for any
	Until   time.Time

	holder string // what Holder returns, for a token that was verified
}

// Allows reports whether the grant covers a scope.
func (g Grant) Allows(scope string) bool {
	return slices.Contains(g.Scope, scope) || scope == ScopeRead && slices.Contains(g.Scope, ScopeWrite)
}

// Holder identifies who has the grant's token: a renewed token has the same holder. It is "" without a stream.
func (g Grant) Holder() string {
	if g.holder != "" || g.Stream == "" {
		return g.holder
	}
	return strings.Join([]string{g.Stream, strings.Join(g.Scope, " "), g.Run, g.House, g.Author}, "\x00")
}

// By returns the grant of another holder, as for a member of a house who has no token of the stream.
func (g Grant) By(holder string) Grant {
	g.holder = holder
	return g
}

// claims is a token's payload.
type claims struct {
	jwt.RegisteredClaims
	Scope   string `json:"scope"`
	House   string `json:"house,omitempty"`
	Run     string `json:"run,omitempty"`
	Command bool   `json:"command,omitempty"`
	Author  string `json:"author,omitempty"`
}

// ErrSubject is the error of a token whose subject is not the name of a stream.
var ErrSubject = errors.New("token has no stream as its subject")

// ErrSecret is the error of a token with another secret's signature.
var ErrSecret = errors.New("the token's secret is not this server's secret: sign it with the data folder (--data) or " +
	"the DURABLE_STREAMS_SECRET of the server that runs")

// ErrShortSecret is the error of a secret that can be guessed.
var ErrShortSecret = fmt.Errorf("the secret has less than %d bytes", MinSecret)

// Sign returns a token for the grant, signed with secret.
func Sign(secret []byte, g Grant) (string, error) {
	if len(secret) < MinSecret {
		return "", ErrShortSecret
	}
	c := claims{
		RegisteredClaims: jwt.RegisteredClaims{
			Subject: g.Stream, IssuedAt: jwt.NewNumericDate(time.Now()), ExpiresAt: jwt.NewNumericDate(g.Until),
		},
		Scope: strings.Join(g.Scope, " "), House: g.House, Run: g.Run, Command: g.Command, Author: g.Author,
	}
	return jwt.NewWithClaims(jwt.SigningMethodHS256, c).SignedString(secret)
}

// Verifier verifies tokens with its secrets. It caches those that are good, because a writer sends its token with each
// request. Its methods may be called at the same time.
type Verifier struct {
	secrets [][]byte

	mu   sync.Mutex
	good map[string]Grant // by the whole token, signature included
}

// NewVerifier returns a verifier of tokens that are signed with any of the secrets.
func NewVerifier(secrets [][]byte) *Verifier { return &Verifier{secrets: secrets} }

// maxGood bounds the tokens in the cache.
const maxGood = 10_000

// Verify returns what a token allows. It accepts HS256 alone, with a good signature, a subject, a scope and an expiry
// that has not passed. For a token in the cache it takes a fraction of the time.
func (v *Verifier) Verify(token string) (Grant, error) {
	v.mu.Lock()
	g, ok := v.good[token]
	v.mu.Unlock()
	if ok && time.Now().Before(g.Until) {
		return g, nil
	}
	g, err := verify(v.secrets, token)
	if err != nil {
		return g, err
	}
	g.holder = g.Holder()
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.good == nil || len(v.good) >= maxGood {
		v.good = map[string]Grant{}
	}
	v.good[token] = g
	return g, nil
}

// verify is Verify without the cache.
func verify(secrets [][]byte, token string) (Grant, error) {
	var c claims
	keys := jwt.VerificationKeySet{}
	for _, secret := range secrets {
		keys.Keys = append(keys.Keys, secret)
	}
	_, err := jwt.ParseWithClaims(token, &c, func(*jwt.Token) (any, error) { return keys, nil },
		jwt.WithValidMethods([]string{jwt.SigningMethodHS256.Alg()}), jwt.WithExpirationRequired(),
		jwt.WithStrictDecoding()) // the last character of a signature has unused bits
	switch {
	case errors.Is(err, jwt.ErrSignatureInvalid):
		return Grant{}, ErrSecret
	case err != nil:
		return Grant{}, err
	}
	if c.Scope == "" {
		return Grant{}, errors.New("token has no scope")
	}
	if c.Subject == "" {
		return Grant{}, ErrSubject
	}
	return Grant{
		Stream:  c.Subject,
		Scope:   strings.Fields(c.Scope),
		Run:     c.Run,
		Command: c.Command,
		House:   c.House,
		Author:  c.Author,
		Until:   c.ExpiresAt.Time,
	}, nil
}

// Peek returns the subject and the expiry of a token, unverified: "" where it can't be parsed, and the zero time where
// it has no expiry.
func Peek(token string) (subject string, until time.Time) {
	_, rest, _ := strings.Cut(token, ".")
	part, _, _ := strings.Cut(rest, ".")
	var c struct {
		Sub string
		Exp float64
	}
	b, err := base64.RawURLEncoding.DecodeString(part)
	if err != nil || json.Unmarshal(b, &c) != nil {
		return "", until
	}
	if c.Exp > 0 {
		until = time.Unix(int64(c.Exp), 0)
	}
	return c.Sub, until
}

// ParseSecrets reads secrets with commas between them. The first one signs and all verify, so that a secret can be
// replaced while its tokens are in use.
func ParseSecrets(s string) ([][]byte, error) {
	var secrets [][]byte
	for part := range strings.SplitSeq(s, ",") {
		part = strings.TrimSpace(part)
		if len(part) < MinSecret {
			return nil, ErrShortSecret
		}
		secrets = append(secrets, []byte(part))
	}
	return secrets, nil
}
