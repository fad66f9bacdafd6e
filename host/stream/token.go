package stream

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"arbe.0sk.ar/runner/thread"
)

// Scopes of a token.
const (
	ScopeRead  = "stream:read"
	ScopeWrite = "stream:write" // includes reading
	ScopeRenew = "stream:renew" // to get a fresh write token, and nothing else

	// ScopeDelete deletes a stream. No writer has it: what runs in a box must not be able to take away what it has said.
	ScopeDelete = "stream:delete"
)

// Lifetimes and limits of tokens.
const (
	WriteTTL   = 2 * time.Hour
	MinSecret  = 32        // bytes
	renewAfter = time.Hour // so long after its run's end a renew token is still good
)

// Grant is what a token allows.
type Grant struct {
	Thread string
	Stream string // the name of a stream that is no thread's, where Thread is ""
	Scope  []string
	Run    string // "" for any; else only this run's signals may be posted
	House  string
	Until  time.Time

	who, stream string // what holder and name return, for a token that was verified
}

// Allows reports whether the grant covers a scope.
func (g Grant) Allows(scope string) bool {
	return slices.Contains(g.Scope, scope) || scope == ScopeRead && slices.Contains(g.Scope, ScopeWrite)
}

// holder names who has the grant's token: a token that is renewed stays the same holder. It is "" for no token.
func (g Grant) holder() string {
	if g.who != "" || g.name() == "" {
		return g.who
	}
	return strings.Join([]string{g.name(), strings.Join(g.Scope, " "), g.Run, g.House}, "\x00")
}

// name is the stream that the grant is for.
func (g Grant) name() string {
	if g.stream != "" {
		return g.stream
	}
	if g.Thread == "" {
		return g.Stream
	}
	return thread.StreamName(g.Thread)
}

// claims are a token's content.
type claims struct {
	jwt.RegisteredClaims
	Scope string `json:"scope"`
	House string `json:"house,omitempty"`
	Run   string `json:"run,omitempty"`
}

// ErrShortSecret says that a secret can be guessed.
var ErrShortSecret = fmt.Errorf("the secret has less than %d bytes", MinSecret)

// Mint signs a token with secret.
func Mint(secret []byte, g Grant) (string, error) {
	if len(secret) < MinSecret {
		return "", ErrShortSecret
	}
	c := claims{
		RegisteredClaims: jwt.RegisteredClaims{
			Subject: g.name(), IssuedAt: jwt.NewNumericDate(time.Now()), ExpiresAt: jwt.NewNumericDate(g.Until),
		},
		Scope: strings.Join(g.Scope, " "), House: g.House, Run: g.Run,
	}
	return jwt.NewWithClaims(jwt.SigningMethodHS256, c).SignedString(secret)
}

// verifier checks tokens with the secrets. It keeps in mind those that it has found good, for a writer shows his with each entry.
type verifier struct {
	secrets [][]byte

	mu   sync.Mutex
	good map[string]Grant // by the whole token, signature included
}

// maxGood is how many tokens are kept in mind.
const maxGood = 10_000

// check is verify, at a fraction of its cost for a token that was checked before.
func (v *verifier) check(token string) (Grant, error) {
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
	g.who, g.stream = g.holder(), g.name()
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.good == nil || len(v.good) >= maxGood {
		v.good = map[string]Grant{}
	}
	v.good[token] = g
	return g, nil
}

// verify is the one place where a token is checked: HS256 and nothing else, a good signature, not expired, and subject, scope and expiry all there.
func verify(secrets [][]byte, token string) (Grant, error) {
	var c claims
	keys := jwt.VerificationKeySet{}
	for _, secret := range secrets {
		keys.Keys = append(keys.Keys, secret)
	}
	_, err := jwt.ParseWithClaims(token, &c, func(*jwt.Token) (any, error) { return keys, nil },
		jwt.WithValidMethods([]string{jwt.SigningMethodHS256.Alg()}), jwt.WithExpirationRequired(),
		jwt.WithStrictDecoding()) // or four texts would be one token
	if err != nil {
		return Grant{}, err
	}
	if c.Scope == "" {
		return Grant{}, errors.New("token has no scope")
	}
	id, ok := threadOf(c.Subject)
	if c.Subject == "" || !ok && strings.HasPrefix(c.Subject, thread.StreamName("")) {
		return Grant{}, errors.New("token has no stream as its subject")
	}
	stream := ""
	if !ok {
		id, stream = "", c.Subject
	}
	return Grant{Thread: id, Stream: stream, Scope: strings.Fields(c.Scope), Run: c.Run, House: c.House, Until: c.ExpiresAt.Time}, nil
}
