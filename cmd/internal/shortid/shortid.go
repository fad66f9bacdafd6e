// Package shortid abbreviates the ids of threads and runs for people, and reads what people type of them.
package shortid

import (
	"strconv"
	"strings"
	"time"
)

// UUIDLength is the length of a UUID as text.
const UUIDLength = 36

// UUIDPrefix reports whether a text is a UUID as these programs write it, or the beginning of one.
func UUIDPrefix(s string) bool {
	for i := range len(s) {
		dash := i == 8 || i == 13 || i == 18 || i == 23
		if dash != (s[i] == '-') || !dash && !strings.ContainsRune("0123456789abcdef", rune(s[i])) {
			return false
		}
	}
	return s != "" && len(s) <= UUIDLength
}

// clockSkew is how far the clock of a machine that makes ids may be ahead of the server's.
const clockSkew = 48 * time.Hour

// firstUUID is a time before any UUID of version 7.
var firstUUID = time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)

// BornAfter returns a time before any thread whose id begins with this prefix of a UUID of version 7 was written; the
// zero time where the prefix is too short, or is another text: a UUID of another version has no plausible time.
func BornAfter(prefix string, now time.Time) time.Time {
	digits := strings.ReplaceAll(prefix, "-", "")
	if !UUIDPrefix(prefix) || len(digits) < 8 || len(digits) > 12 && digits[12] != '7' {
		return time.Time{}
	}
	digits = (digits + "0000")[:12] // the first 48 bits are milliseconds
	ms, err := strconv.ParseInt(digits, 16, 64)
	born := time.UnixMilli(ms)
	if err != nil || born.Before(firstUUID) || born.After(now.Add(clockSkew)) {
		return time.Time{}
	}
	return born.Add(-clockSkew)
}

// shortUUID is the number of characters of a UUID of version 7 that are its time in milliseconds.
const shortUUID = 13

// Shorten returns an abbreviation of each id: of a UUID the beginning that no other of them has, at least to its
// milliseconds. Any other id stays whole.
func Shorten(ids []string) map[string]string {
	short := make(map[string]string, len(ids))
	taken := map[string]string{} // ids by their abbreviations
	var add func(id string, n int)
	add = func(id string, n int) {
		if !UUIDPrefix(id) || n >= len(id) {
			short[id] = id
			return
		}
		if id[n-1] == '-' {
			n++
		}
		key := id[:n]
		other, is := taken[key]
		switch {
		case !is:
			taken[key], short[id] = id, key
		case other == id:
		default: // the shorter text stays taken, so that a third id finds it so
			taken[key] = ""
			if other != "" {
				add(other, n+1)
			}
			add(id, n+1)
		}
	}
	for _, id := range ids {
		if _, is := short[id]; !is {
			add(id, shortUUID)
		}
	}
	return short
}
