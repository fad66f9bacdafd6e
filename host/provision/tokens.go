package provision

import (
	"cmp"
	"errors"
	"time"

	"arbe.0sk.ar/runner/host/token"
	"arbe.0sk.ar/runner/thread"
	"arbe.0sk.ar/runner/thread/client"
)

// guard is the runner's own time limit for an agent that hangs. margin is the time beyond it for the run's last
// entries.
const (
	guard  = 72 * time.Hour
	margin = 6 * time.Hour
)

// hostTTL is how long a token of the host's own clients lasts.
const hostTTL = 10 * time.Minute

// Client returns a client of a thread, like another one, whose tokens are signed with a key.
func Client(key []byte, like *client.Client, id string) *client.Client {
	sign := func() (string, error) {
		return token.Sign(key, token.Grant{
			Stream: thread.StreamName(id), Scope: []string{token.ScopeWrite}, Until: time.Now().Add(hostTTL),
		})
	}
	return &client.Client{Base: like.Base, Thread: id, Token: sign, Log: like.Log, HTTP: like.HTTP}
}

// runTokens returns what signs the tokens of a run on a thread of a house; "" for a thread of none.
func runTokens(key []byte, house string) func(threadID, runID, author string) (write, renew string, err error) {
	return func(threadID, runID, author string) (write, renew string, err error) {
		return boxTokens(key, token.Grant{Run: runID, House: house, Author: author}, threadID, guard+margin)
	}
}

// execTokens returns what signs the tokens of a command in the box of a thread of a house; "" for a thread of none.
func execTokens(
	key []byte, house string,
) func(threadID, execID, author string, life time.Duration) (write, renew string, err error) {
	return func(threadID, execID, author string, life time.Duration) (write, renew string, err error) {
		return boxTokens(key, token.Grant{Run: execID, Command: true, House: house, Author: author}, threadID, life)
	}
}

// boxTokens signs what a box gets: a token to write, and one that renews it for a time. Both are bound to an author. A
// run or a command that has none gets its own id for one, which it does not use: its entries have no author, and can
// have none of a member.
func boxTokens(
	key []byte, g token.Grant, threadID string, life time.Duration,
) (write, renew string, err error) {
	g.Stream, g.Author = thread.StreamName(threadID), cmp.Or(g.Author, g.Run)
	sign := func(scope string, ttl time.Duration) string {
		g.Scope, g.Until = []string{scope}, time.Now().Add(ttl)
		signed, serr := token.Sign(key, g)
		err = errors.Join(err, serr)
		return signed
	}
	write, renew = sign(token.ScopeWrite, token.WriteTTL), sign(token.ScopeRenew, life)
	return write, renew, err // which sign sets
}
