package stream

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Data is a server's folder: its log, the secret that it made for itself, and its address, so that the other commands on this machine find it.
type Data string

func (d Data) secretFile() string  { return filepath.Join(string(d), "secret") }
func (d Data) addressFile() string { return filepath.Join(string(d), "address") }

// Secret is the secret that a server made for itself here; fs.ErrNotExist where none did.
func (d Data) Secret() ([]byte, error) {
	b, err := os.ReadFile(d.secretFile())
	if err != nil {
		return nil, err
	}
	secret := []byte(strings.TrimSpace(string(b)))
	if len(secret) < MinSecret {
		return nil, fmt.Errorf("%s: %w", d.secretFile(), ErrShortSecret)
	}
	return secret, nil
}

// makeSecret is Secret, and makes one where there is none.
func (d Data) makeSecret() ([]byte, error) {
	secret, err := d.Secret()
	if !errors.Is(err, fs.ErrNotExist) {
		return secret, err
	}
	random := make([]byte, 32)
	_, _ = rand.Read(random) // it never fails
	f, err := os.OpenFile(d.secretFile(), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return d.Secret() // another server was faster
	}
	if err != nil {
		return nil, err
	}
	secret = []byte(hex.EncodeToString(random))
	_, err = f.Write(append(secret, '\n'))
	return secret, errors.Join(err, f.Sync(), f.Close())
}

// Address is the base URL of the server that has this folder; fs.ErrNotExist where none runs.
func (d Data) Address() (string, error) {
	b, err := os.ReadFile(d.addressFile())
	return strings.TrimSpace(string(b)), err
}

// ErrNoSecret says that a server that others can reach has no secret.
var ErrNoSecret = errors.New("a secret is required on any address but a loopback one: set DURABLE_STREAMS_SECRET to 32 bytes or more")

// Config is what Serve needs to know.
type Config struct {
	Addr     string // to listen on, "127.0.0.1:8787"
	Data     Data
	Secret   []byte // nil for one of the server's own, on a loopback address
	LongPoll time.Duration
	Logger   *slog.Logger

	// Beside, where there is one, runs while the server serves: it is told the base URL, the log and the secret, and ends when ctx does.
	Beside func(ctx context.Context, url string, log *Log, secret []byte) error
}

// Serve runs a server until ctx is done, and then ends it in order: no new requests, the waiting readers answered, the log closed. ready is told of
// the base URL once it can be used.
func Serve(ctx context.Context, cfg Config, ready func(url string)) (err error) {
	secret := cfg.Secret
	if secret != nil && len(secret) < MinSecret {
		return fmt.Errorf("DURABLE_STREAMS_SECRET: %w", ErrShortSecret)
	}
	if secret == nil && !loopback(cfg.Addr) {
		return ErrNoSecret
	}
	if err := os.MkdirAll(string(cfg.Data), 0o700); err != nil {
		return err
	}
	log, err := OpenLog(filepath.Join(string(cfg.Data), "log"), cfg.Logger)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, log.Close()) }()
	if secret == nil {
		if secret, err = cfg.Data.makeSecret(); err != nil {
			return err
		}
	}
	ln, err := net.Listen("tcp", cfg.Addr)
	if err != nil {
		return err
	}
	url := "http://" + ln.Addr().String()
	if err := os.WriteFile(cfg.Data.addressFile(), []byte(url+"\n"), 0o600); err != nil {
		return errors.Join(err, ln.Close())
	}
	defer func() { err = errors.Join(err, os.Remove(cfg.Data.addressFile())) }()

	s := &Server{Log: log, Secret: secret, LongPoll: cfg.LongPoll, Closing: ctx, Logger: cfg.Logger}
	srv := &http.Server{
		Handler: s.Handler(), ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute,
		ErrorLog: slog.NewLogLogger(cfg.Logger.Handler(), slog.LevelDebug),
	}
	ready(url)
	if cfg.Beside != nil {
		beside, end := context.WithCancel(ctx)
		done := make(chan error, 1)
		go func() { done <- cfg.Beside(beside, url, log, secret) }()
		defer func() {
			end()
			err = errors.Join(err, <-done)
		}()
	}
	return serveUntil(ctx, srv, ln)
}

// loopback reports whether only this machine can reach addr.
func loopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return false
	}
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}
