package access

import (
	"slices"
	"time"
)

// book is all codes and shares of a log.
type book struct {
	Logins []login `json:"logins,omitempty"`
	Shares []entry `json:"shares,omitempty"`
	Ended  []ended `json:"ended,omitempty"`
}

// login is a login code. Times are in milliseconds since 1970.
type login struct {
	ID     string `json:"id"`
	Thread string `json:"thread,omitempty"`
	Until  int64  `json:"until"`
	Spent  bool   `json:"spent,omitempty"`
}

// ended is a session that was ended before its time.
type ended struct {
	ID    string `json:"id"`
	Until int64  `json:"until"` // when it would have expired for good
}

// entry is a Share as it is kept.
type entry struct {
	ID      string `json:"id"`
	Thread  string `json:"thread"`
	Made    int64  `json:"made"`
	Until   int64  `json:"until"`
	Revoked bool   `json:"revoked,omitempty"`
}

func (e entry) share() Share {
	return Share{
		ID: e.ID, Thread: e.Thread, Made: time.UnixMilli(e.Made), Until: time.UnixMilli(e.Until), Revoked: e.Revoked,
	}
}

// Bounds of a book: it is written whole with each change.
const (
	mostLogins = 100
	mostShares = 1000
	mostEnded  = 1000

	keepLogin = 10 * time.Minute // after its expiry
	keepShare = 24 * time.Hour
)

// prune removes what has expired long ago.
func (b *book) prune(now time.Time) {
	b.Logins = slices.DeleteFunc(b.Logins, func(l login) bool {
		return now.Sub(time.UnixMilli(l.Until)) > keepLogin
	})
	b.Shares = slices.DeleteFunc(b.Shares, func(e entry) bool {
		return now.Sub(time.UnixMilli(e.Until)) > keepShare
	})
	b.Ended = slices.DeleteFunc(b.Ended, func(e ended) bool { return now.UnixMilli() >= e.Until })
}

// end ends a session.
func (b *book) end(id string, most time.Time) error {
	if b.isEnded(id) {
		return nil
	}
	if len(b.Ended) >= mostEnded {
		return ErrFull
	}
	b.Ended = append(b.Ended, ended{id, most.UnixMilli()})
	return nil
}

func (b *book) isEnded(id string) bool {
	return slices.ContainsFunc(b.Ended, func(e ended) bool { return e.ID == id })
}

// addLogin adds a login code. In a full book it takes the place of the oldest one that is spent or whose time is over.
func (b *book) addLogin(l login) error {
	if len(b.Logins) >= mostLogins {
		made := l.Until - CodeTTL.Milliseconds()
		i := slices.IndexFunc(b.Logins, func(old login) bool { return old.Spent || old.Until <= made })
		if i < 0 {
			return ErrFull
		}
		b.Logins = slices.Delete(b.Logins, i, i+1)
	}
	b.Logins = append(b.Logins, l)
	return nil
}

// spend marks a login code as spent and returns its thread.
func (b *book) spend(now time.Time, id string) (thread string, err error) {
	i := slices.IndexFunc(b.Logins, func(l login) bool { return l.ID == id })
	switch {
	case i < 0:
		return "", ErrUnknown
	case b.Logins[i].Spent:
		return "", ErrUsed
	case now.UnixMilli() >= b.Logins[i].Until:
		return "", ErrExpired
	}
	b.Logins[i].Spent = true
	return b.Logins[i].Thread, nil
}

// addShare adds a share. In a full book it takes the place of the oldest one that has ended.
func (b *book) addShare(s Share) error {
	if len(b.Shares) >= mostShares {
		i := slices.IndexFunc(b.Shares, func(old entry) bool { return old.Revoked || old.Until <= s.Made.UnixMilli() })
		if i < 0 {
			return ErrFull
		}
		b.Shares = slices.Delete(b.Shares, i, i+1)
	}
	b.Shares = append(b.Shares, entry{ID: s.ID, Thread: s.Thread, Made: s.Made.UnixMilli(), Until: s.Until.UnixMilli()})
	return nil
}

// share returns the share with this id, if it is open.
func (b *book) share(now time.Time, id string) (Share, error) {
	i := slices.IndexFunc(b.Shares, func(e entry) bool { return e.ID == id })
	switch {
	case i < 0:
		return Share{}, ErrUnknown
	case b.Shares[i].Revoked:
		return Share{}, ErrRevoked
	case now.UnixMilli() >= b.Shares[i].Until:
		return Share{}, ErrExpired
	}
	return b.Shares[i].share(), nil
}

func (b *book) sharesOf(thread string) (all []Share) {
	for _, e := range b.Shares {
		if e.Thread == thread {
			all = append(all, e.share())
		}
	}
	return all
}

// revoke ends the open shares of a thread and returns how many there were.
func (b *book) revoke(now time.Time, thread string) (n int) {
	for i, e := range b.Shares {
		if e.Thread == thread && !e.Revoked && now.UnixMilli() < e.Until {
			b.Shares[i].Revoked = true
			n++
		}
	}
	return n
}
