package access

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"strings"
	"time"
)

// Session holds the rights of a browser, and when they end.
type Session struct {
	ID     string    // of a login's session, by which Store.End ends it; "" for a share's
	Thread string    // one thread, to read; "" for all threads, and to act on them
	Share  string    // id of the share that it comes from; "" for a login
	Agent  string    // a member of houses, who may see their threads alone; "" for a login to all threads
	Until  time.Time // when it expires, unless it is renewed
	Most   time.Time // when it expires for good
}

// NewSession returns the session of a login.
func NewSession(now time.Time) Session {
	return Session{ID: rand.Text(), Until: now.Add(IdleTTL), Most: now.Add(MostTTL)}
}

// NewMember returns the session of a member of houses, whose login token expires at until.
func NewMember(now time.Time, agent string, until time.Time) Session {
	most := earlier(now.Add(MostTTL), until)
	return Session{ID: rand.Text(), Agent: agent, Until: earlier(now.Add(IdleTTL), most), Most: most}
}

// NewSession returns the session of the share's reader.
func (s Share) NewSession(now time.Time) Session {
	most := earlier(now.Add(MostTTL), s.Until)
	return Session{Thread: s.Thread, Share: s.ID, Until: earlier(now.Add(IdleTTL), most), Most: most}
}

// Renewed returns the session with a later expiry, and true where half of its time is over and it may last longer.
func (s Session) Renewed(now time.Time) (Session, bool) {
	until := earlier(now.Add(IdleTTL), s.Most)
	if s.Until.Sub(now) > IdleTTL/2 || !until.After(s.Until) {
		return s, false
	}
	s.Until = until
	return s, true
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// Errors of Open.
var (
	ErrForeign = errors.New("the session is not of this server")
	ErrEnded   = errors.New("the login has expired")
)

// sealed is the form of a session that is sealed. Times are in milliseconds since 1970.
type sealed struct {
	ID     string `json:"id,omitempty"`
	Thread string `json:"thread,omitempty"`
	Share  string `json:"share,omitempty"`
	Agent  string `json:"agent,omitempty"`
	Until  int64  `json:"until"`
	Most   int64  `json:"most"`
}

// Seal returns a session as a text that Open takes, and that nobody else can make or change. It has only characters
// that a cookie may have.
func Seal(secret []byte, s Session) string {
	b, err := json.Marshal(sealed{s.ID, s.Thread, s.Share, s.Agent, s.Until.UnixMilli(), s.Most.UnixMilli()})
	if err != nil {
		panic(err) // strings and numbers marshal
	}
	mac := sign(secret, b, s.Agent)
	return base64.RawURLEncoding.EncodeToString(b) + "." + base64.RawURLEncoding.EncodeToString(mac)
}

// mostSealed bounds a sealed session, in bytes.
const mostSealed = 1024

// Open returns a session that was sealed with any of the secrets. It returns ErrForeign, or ErrEnded for one that has
// expired.
func Open(secrets [][]byte, text string, now time.Time) (Session, error) {
	body, mac, ok := strings.Cut(text, ".")
	if !ok || len(text) > mostSealed {
		return Session{}, ErrForeign
	}
	coding := base64.RawURLEncoding.Strict()
	b, err := coding.DecodeString(body)
	if err != nil {
		return Session{}, ErrForeign
	}
	got, err := coding.DecodeString(mac)
	if err != nil {
		return Session{}, ErrForeign
	}
	var in sealed
	if err := json.Unmarshal(b, &in); err != nil {
		return Session{}, ErrForeign
	}
	for _, secret := range secrets {
		if !hmac.Equal(got, sign(secret, b, in.Agent)) {
			continue
		}
		s := Session{in.ID, in.Thread, in.Share, in.Agent, time.UnixMilli(in.Until), time.UnixMilli(in.Most)}
		if !now.Before(s.Until) {
			return s, ErrEnded
		}
		return s, nil
	}
	return Session{}, ErrForeign
}

// sign authenticates a session. Its key is derived from the secret, so that no signature for another purpose, as a
// token's, is one of a session. A member's has another key: a server that knows no members refuses it, and does not
// take it for a login to all threads.
func sign(secret, b []byte, agent string) []byte {
	purpose := "arbe page session v1"
	if agent != "" {
		purpose = "arbe page member session v1"
	}
	derive := hmac.New(sha256.New, secret)
	derive.Write([]byte(purpose)) // a hash's Write never fails
	mac := hmac.New(sha256.New, derive.Sum(nil))
	mac.Write(b)
	return mac.Sum(nil)
}
