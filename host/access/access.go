// Package access decides who may see the page of `arbe serve`: login codes, share links and the sessions that both are
// traded for.
//
//	code      made with a token of the scope page:open (or by who has the secret), good for CodeTTL and for one trade.
//	          It stands in the fragment of a link, which browsers send to no server
//	share     made likewise, for reading one thread, good until its expiry or until it is revoked. Its code may be
//	          traded by everyone who has the link
//	session   what a code is traded for: sealed with the server's secret and kept by the browser as a cookie. It lasts
//	          IdleTTL, is renewed while it is used, and ends for good MostTTL after its beginning; a share's session
//	          also ends with its share
//
// Codes and shares stand in a note of the log (log.Note), by the SHA-256 of their code: a reader of the log, or of a
// backup, can trade none of them. Each trade of a login code is a compare-and-append, so of several servers on one log
// one accepts it. What was spent, has expired or is revoked stays there for a while, so that a refusal has its reason.
//
// A logout ends a session: its id stands in the note until it would have expired. Each request reads the note, so a
// logout and a revocation hold at once on all servers. A session that an older version sealed has no id: it lasts until
// it expires.
//
// Functions take the time as an argument. Nothing here knows HTTP.
package access

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"arbe.0sk.ar/runner/host/log"
)

// Lifetimes.
const (
	CodeTTL      = time.Minute         // of a login code
	IdleTTL      = time.Hour           // of a session that is not used
	MostTTL      = 24 * time.Hour      // of any session
	ShareTTL     = 24 * time.Hour      // of a share, by default
	MostShareTTL = 90 * 24 * time.Hour // of any share
)

// Reasons to refuse.
var (
	ErrUnknown = errors.New("this link is not of this server, or has expired long ago")
	ErrUsed    = errors.New("this link was used already: it is good for one login")
	ErrExpired = errors.New("this link has expired")
	ErrRevoked = errors.New("this link was revoked")
	ErrOut     = errors.New("the login was ended by a logout")
	ErrFull    = errors.New("too many links are open: wait until some expire, or revoke some")
)

// Share is a link by which everyone who has it may read one thread.
type Share struct {
	ID      string // of the code, which is not kept
	Thread  string
	Made    time.Time
	Until   time.Time
	Revoked bool
}

// Store keeps codes and shares in a log. Its methods may be called at the same time, also by several servers.
type Store struct{ Log *log.Log }

// note is the name of the note with the book.
const note = "access"

// NewLogin makes a login code, whose holder is sent to a thread; "" for the list. It returns ErrFull.
func (s Store) NewLogin(ctx context.Context, now time.Time, thread string) (code string, until time.Time, err error) {
	code, until = rand.Text(), now.Add(CodeTTL)
	err = s.change(ctx, now, func(b *book) error {
		return b.addLogin(login{ID: idOf(code), Thread: thread, Until: until.UnixMilli()})
	})
	return code, until, err
}

// Login spends a login code and returns the thread that it names. It returns ErrUnknown, ErrUsed or ErrExpired.
func (s Store) Login(ctx context.Context, now time.Time, code string) (thread string, err error) {
	err = s.change(ctx, now, func(b *book) (err error) {
		thread, err = b.spend(now, idOf(code))
		return err
	})
	return thread, err
}

// NewShare shares a thread for a while, and returns the share with its code. It returns ErrFull.
func (s Store) NewShare(ctx context.Context, now time.Time, thread string, ttl time.Duration) (Share, string, error) {
	code := rand.Text()
	made := Share{ID: idOf(code), Thread: thread, Made: now, Until: now.Add(min(ttl, MostShareTTL))}
	err := s.change(ctx, now, func(b *book) error { return b.addShare(made) })
	return made, code, err
}

// Share returns the share with this id. It returns ErrUnknown, ErrExpired or ErrRevoked.
func (s Store) Share(ctx context.Context, now time.Time, id string) (Share, error) {
	b, err := s.read(ctx)
	if err != nil {
		return Share{}, err
	}
	return b.share(now, id)
}

// ShareOf is Share for a code.
func (s Store) ShareOf(ctx context.Context, now time.Time, code string) (Share, error) {
	return s.Share(ctx, now, idOf(code))
}

// Shares returns the shares of a thread, the newest last, with those that have ended within a day.
func (s Store) Shares(ctx context.Context, thread string) ([]Share, error) {
	b, err := s.read(ctx)
	if err != nil {
		return nil, err
	}
	return b.sharesOf(thread), nil
}

// Revoke ends all open shares of a thread, and returns how many there were.
func (s Store) Revoke(ctx context.Context, now time.Time, thread string) (n int, err error) {
	err = s.change(ctx, now, func(b *book) error {
		n = b.revoke(now, thread)
		return nil
	})
	return n, err
}

// End ends a login's session, and so all copies of its cookie. It returns ErrFull.
func (s Store) End(ctx context.Context, now time.Time, ending Session) error {
	if ending.ID == "" {
		return nil
	}
	return s.change(ctx, now, func(b *book) error { return b.end(ending.ID, ending.Most) })
}

// Check returns an error for a session that has ended before its time: ErrOut after a logout; for a share's ErrUnknown,
// ErrExpired or ErrRevoked.
func (s Store) Check(ctx context.Context, now time.Time, of Session) error {
	if of.Share == "" && of.ID == "" {
		return nil
	}
	b, err := s.read(ctx)
	switch {
	case err != nil:
		return err
	case of.Share != "":
		_, err = b.share(now, of.Share)
		return err
	case b.isEnded(of.ID):
		return ErrOut
	}
	return nil
}

// idOf returns the id that a code is kept by.
func idOf(code string) string {
	sum := sha256.Sum256([]byte("arbe code " + code))
	return hex.EncodeToString(sum[:16])
}

func (s Store) read(ctx context.Context) (book, error) {
	raw, err := s.Log.Note(ctx, note)
	if err != nil {
		return book{}, err
	}
	return parseBook(raw)
}

// change removes records that expired long ago from the book, and applies a change to it.
func (s Store) change(ctx context.Context, now time.Time, f func(*book) error) error {
	return s.Log.SetNote(ctx, note, func(raw json.RawMessage) (json.RawMessage, error) {
		b, err := parseBook(raw)
		if err != nil {
			return nil, err
		}
		b.prune(now)
		if err := f(&b); err != nil {
			return nil, err
		}
		return json.Marshal(b)
	})
}

func parseBook(raw json.RawMessage) (b book, err error) {
	if len(raw) == 0 {
		return b, nil
	}
	if err := json.Unmarshal(raw, &b); err != nil {
		return b, fmt.Errorf("the codes in the log: %w", err)
	}
	return b, nil
}
