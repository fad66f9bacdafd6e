package member

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"time"
)

// Provider is an identity provider, whose login tokens have a fixed issuer and audience and are signed with keys that
// it publishes as a JSON Web Key Set (RFC 7517). The set is read when the first token comes, again every 15 minutes,
// and for a key that is not in it, but once a minute at most. Where it can't be read, the last one serves for a day.
//
// One request at a time reads the set, for at most 10 s. Those that need it wait for that read, and start none of their
// own when it fails: until the next read is due, each is answered at once. Make one with NewProvider.
type Provider struct {
	Source           string // of the keys: an https URL, or the path of a file
	Issuer, Audience string
	// HTTP gets the keys; nil for a client that gives up after 10 s and follows no redirect.
	HTTP   *http.Client
	Logger *slog.Logger

	set     atomic.Pointer[keySet] // nil before the first one
	reading chan struct{}          // has one while the set is read; guards the fields below
	next    time.Time              // no read begins before; zero: none was made
	failed  int                    // reads in a row before the first good one
}

// keySet is a set of keys as it was read.
type keySet struct {
	keys map[keyName]any
	read time.Time
}

// keyName names a key by the id and the method of signatures that it is for.
type keyName struct{ id, method string }

// Times of a key set.
const (
	setFresh   = 15 * time.Minute // it is read again after
	setLife    = 24 * time.Hour   // it serves, where it can't be read again
	setEvery   = time.Minute      // from the end of a read to the next one
	setFirst   = 5 * time.Second  // the same after the first failure before any good read; twice as long after each
	setTimeout = 10 * time.Second // of a read
	setBytes   = 1 << 20
)

// ErrNoKeys is the error of a token whose provider's keys could not be read yet.
var ErrNoKeys = errors.New("the keys of the identity provider can't be read now")

// NewProvider returns a provider with these fields. It reads no keys yet, but a file with keys has to be readable.
func NewProvider(source, issuer, audience string, logger *slog.Logger) (*Provider, error) {
	if source == "" || issuer == "" || audience == "" {
		return nil, errors.New("an identity provider has keys (a file or an https URL), an issuer and an audience")
	}
	if strings.Contains(source, "://") {
		u, err := url.Parse(source)
		if err != nil || u.Host == "" || u.Scheme != "https" && !(u.Scheme == "http" && isLoopback(u.Hostname())) {
			return nil, fmt.Errorf("the identity provider's keys at %q: want an https URL or a file's path", source)
		}
	} else if f, err := os.Open(source); err != nil {
		return nil, fmt.Errorf("keys of the identity provider: %w", err)
	} else {
		_ = f.Close() // nothing was read
	}
	return &Provider{
		Source: source, Issuer: issuer, Audience: audience, Logger: logger, reading: make(chan struct{}, 1),
	}, nil
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// key returns the key with an id, for signatures by a method. It returns ErrNoKeys.
func (p *Provider) key(ctx context.Context, id, method string) (any, error) {
	if id == "" {
		return nil, errors.New("the token does not name its key (kid)")
	}
	name := keyName{id, method}
	if key, fresh := p.known(name); fresh {
		return key, nil
	}
	select {
	case p.reading <- struct{}{}:
	default:
		if key, _ := p.known(name); key != nil {
			return key, nil // another request reads the set
		}
		select {
		case p.reading <- struct{}{}:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	defer func() { <-p.reading }()
	if key, fresh := p.known(name); fresh {
		return key, nil // another request has read the set
	}
	if !time.Now().Before(p.next) {
		p.read(ctx)
		every := setEvery
		if p.set.Load() == nil {
			every = min(setFirst<<min(p.failed, 10), setEvery)
			p.failed++
		}
		p.next = time.Now().Add(every) // by the end of the read: those that waited for it start no other one
	}
	key, _ := p.known(name)
	switch {
	case key != nil:
		return key, nil
	case p.set.Load() == nil || time.Since(p.set.Load().read) >= setLife:
		return nil, ErrNoKeys
	}
	return nil, fmt.Errorf("the identity provider has no key %.40q for %s", id, method)
}

// known returns a key of the set; nil for none. Fresh reports that it may serve without a read.
func (p *Provider) known(name keyName) (key any, fresh bool) {
	set := p.set.Load()
	if set == nil {
		return nil, false
	}
	age := time.Since(set.read)
	if age >= setLife {
		return nil, false
	}
	key = set.keys[name]
	return key, key != nil && age < setFresh
}

// read reads the set. A client that goes away does not end it: others wait for it.
func (p *Provider) read(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), setTimeout)
	defer cancel()
	b, err := p.load(ctx)
	var keys map[keyName]any
	var skipped []string
	if err == nil {
		keys, skipped, err = parseKeys(b)
	}
	if err != nil {
		p.Logger.Warn("keys of the identity provider not read", "source", p.Source, "error", err)
		return
	}
	if len(skipped) > 0 {
		p.Logger.Warn("keys of the identity provider skipped", "source", p.Source, "reasons", skipped)
	}
	p.set.Store(&keySet{keys, time.Now()})
}

// load returns the bytes of the set.
func (p *Provider) load(ctx context.Context) ([]byte, error) {
	if !strings.Contains(p.Source, "://") {
		f, err := os.Open(p.Source)
		if err != nil {
			return nil, err
		}
		defer func() { _ = f.Close() }() // nothing was written to it
		return readAll(f)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.Source, nil)
	if err != nil {
		return nil, err
	}
	res, err := cmp.Or(p.HTTP, plain).Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = res.Body.Close() }() // it was read
	if res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the answer is %s", res.Status)
	}
	return readAll(res.Body)
}

// plain is the client of providers without one.
var plain = &http.Client{
	Timeout:       setTimeout,
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

func readAll(r io.Reader) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(r, setBytes+1))
	if err == nil && len(b) > setBytes {
		err = fmt.Errorf("it has more than %d bytes", setBytes)
	}
	return b, err
}
