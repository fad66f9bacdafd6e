package member

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/google/uuid"
)

// Issuer and audience of the login tokens that this server signs.
const (
	Issuer   = "arbe"
	Audience = "arbe-member"
)

// MaxToken is the length of the longest login token, in bytes.
const MaxToken = 8 << 10

// ErrLogin is the error of a token that is no good login token. The error that is returned has the reason.
var ErrLogin = errors.New("no good login token")

// Logins verifies login tokens.
type Logins struct {
	Secrets  [][]byte  // of this server, as package token has them: any of them verifies
	Provider *Provider // of identities; nil for none
}

// key returns the key of login tokens. It is derived from the server's secret, so that no signature for another
// purpose, as a thread's token, is one of a login.
func key(secret []byte) []byte {
	h := hmac.New(sha256.New, secret)
	h.Write([]byte("arbe member login v1")) // a hash's Write never fails
	return h.Sum(nil)
}

// SignLogin returns a login token of an agent, signed with the server's secret. The agent's id is a UUID.
func SignLogin(secret []byte, agent string, until time.Time) (string, error) {
	agent, err := agentOf(agent)
	if err != nil {
		return "", err
	}
	return jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.RegisteredClaims{
		Issuer: Issuer, Audience: jwt.ClaimStrings{Audience}, Subject: agent,
		IssuedAt: jwt.NewNumericDate(time.Now()), ExpiresAt: jwt.NewNumericDate(until),
	}).SignedString(key(secret))
}

// Verify returns the agent of a login token, and when the token expires. An HS256 token has to be this server's, an
// RS256 or ES256 one the provider's. Issuer, audience, subject and expiry are required. It returns ErrLogin, and
// ErrNoKeys where the provider's keys could not be read.
func (l Logins) Verify(ctx context.Context, token string) (agent string, until time.Time, err error) {
	c, err := l.verify(ctx, token)
	if errors.Is(err, ErrNoKeys) {
		return "", time.Time{}, ErrNoKeys
	}
	if err == nil {
		agent, err = agentOf(c.Subject)
	}
	if err != nil {
		return "", time.Time{}, fmt.Errorf("%w: %w", ErrLogin, err)
	}
	return agent, c.ExpiresAt.Time, nil
}

var (
	errTooLong = fmt.Errorf("the token has more than %d bytes", MaxToken)
	errCrit    = errors.New("the token has extensions that are not understood (crit)")
	errMethod  = errors.New("the token's signature is of a kind that is not accepted here")
)

func (l Logins) verify(ctx context.Context, token string) (*jwt.RegisteredClaims, error) {
	if len(token) > MaxToken {
		return nil, errTooLong
	}
	head, _, err := jwt.NewParser().ParseUnverified(token, &jwt.RegisteredClaims{})
	if err != nil {
		return nil, err
	}
	if _, has := head.Header["crit"]; has {
		return nil, errCrit
	}
	switch method := head.Method.Alg(); {
	case method == jwt.SigningMethodHS256.Alg():
		return parse(token, method, Issuer, Audience, func(*jwt.Token) (any, error) {
			var keys jwt.VerificationKeySet
			for _, secret := range l.Secrets {
				keys.Keys = append(keys.Keys, key(secret))
			}
			return keys, nil
		})
	case l.Provider != nil && (method == rs256 || method == es256):
		p := l.Provider
		return parse(token, method, p.Issuer, p.Audience, func(t *jwt.Token) (any, error) {
			id, _ := t.Header["kid"].(string)
			return p.key(ctx, id, method)
		})
	}
	return nil, errMethod
}

// parse returns the claims of a token that is signed by this method, for this issuer and audience.
func parse(token, method, issuer, audience string, key jwt.Keyfunc) (*jwt.RegisteredClaims, error) {
	var c jwt.RegisteredClaims
	_, err := jwt.ParseWithClaims(token, &c, key, jwt.WithValidMethods([]string{method}), jwt.WithIssuer(issuer),
		jwt.WithAudience(audience), jwt.WithExpirationRequired(), jwt.WithStrictDecoding())
	return &c, err
}

// IsLogin reports whether a token, unverified, has the form of a login token: one with an audience.
func IsLogin(token string) bool {
	if len(token) > MaxToken {
		return false
	}
	var c jwt.RegisteredClaims
	_, _, err := jwt.NewParser().ParseUnverified(token, &c)
	return err == nil && len(c.Audience) > 0
}

// agentOf returns an agent's id as the rows have it: a UUID in lower case.
func agentOf(s string) (string, error) {
	id, err := uuid.Parse(s)
	if err != nil || !strings.EqualFold(id.String(), s) {
		return "", errors.New("the subject is no agent's id: want a UUID")
	}
	return id.String(), nil
}
