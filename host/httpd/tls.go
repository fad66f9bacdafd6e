package httpd

import (
	"bytes"
	"crypto/tls"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"
)

// certificateAge is how often the certificate's files are checked.
const certificateAge = 5 * time.Second

// LoadTLS returns a configuration with the certificate in the files cert and key, which may change. New connections get
// the new one within certificateAge. While the files do not fit together, the old one is served. It calls loaded with
// the end of each certificate that it begins to serve.
func LoadTLS(cert, key string, logger *slog.Logger, loaded func(until time.Time)) (*tls.Config, error) {
	c := &certificate{certFile: cert, keyFile: key, log: logger, loaded: loaded}
	if err := c.load(); err != nil {
		return nil, err
	}
	c.looked = time.Now()
	return &tls.Config{
		MinVersion:     tls.VersionTLS12,
		NextProtos:     []string{"h2", "http/1.1"},
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return c.fresh(time.Now()), nil },
	}, nil
}

// OwnTLS returns the configuration of a client in the process of a server with a configuration of LoadTLS. It accepts
// the certificate that the server has, and no other one: the address that the server listens on is rarely a name in it.
func OwnTLS(server *tls.Config) *tls.Config {
	return &tls.Config{
		MinVersion:         tls.VersionTLS12,
		InsecureSkipVerify: true, // of names and issuers: VerifyConnection compares the whole certificate
		VerifyConnection: func(c tls.ConnectionState) error {
			own, err := server.GetCertificate(nil)
			if err == nil && !bytes.Equal(c.PeerCertificates[0].Raw, own.Certificate[0]) {
				err = errors.New("the certificate is not this server's")
			}
			return err
		},
	}
}

// certificate is a certificate in two files.
type certificate struct {
	certFile, keyFile string
	log               *slog.Logger
	loaded            func(until time.Time)

	mu               sync.Mutex // guards the rest
	certPEM, keyPEM  []byte     // of current
	current          *tls.Certificate
	looked           time.Time
	failing, expired bool // was logged
}

// fresh returns the certificate to serve at now. Once in certificateAge it reads the files.
func (c *certificate) fresh(now time.Time) *tls.Certificate {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now.Sub(c.looked) < certificateAge {
		return c.current
	}
	c.looked = now
	before := c.current
	err := c.load()
	switch {
	case err != nil && !c.failing:
		c.log.Error("reload of the certificate failed: still serving the old one", "error", err)
	case err == nil && c.current != before:
		c.log.Info("certificate reloaded", "file", c.certFile, "until", c.current.Leaf.NotAfter)
	case err == nil && c.failing:
		c.log.Info("certificate files are valid again", "file", c.certFile)
	}
	c.failing = err != nil
	if end := c.current.Leaf.NotAfter; now.After(end) != c.expired {
		if c.expired = !c.expired; c.expired {
			c.log.Error("certificate expired: clients refuse it", "file", c.certFile, "until", end)
		}
	}
	return c.current
}

// load reads the files, and replaces the certificate where they have changed.
func (c *certificate) load() error {
	certPEM, err := readPEM(c.certFile, "CERTIFICATE", "certificate")
	if err != nil {
		return err
	}
	keyPEM, err := readPEM(c.keyFile, "PRIVATE KEY", "private key")
	if err != nil {
		return err
	}
	if c.current != nil && bytes.Equal(certPEM, c.certPEM) && bytes.Equal(keyPEM, c.keyPEM) {
		return nil
	}
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return fmt.Errorf("certificate %s with key %s: %w", c.certFile, c.keyFile, err)
	}
	c.certPEM, c.keyPEM, c.current = certPEM, keyPEM, &pair
	c.loaded(pair.Leaf.NotAfter)
	return nil
}

// readPEM reads a file with a PEM block of a kind, which errors call what.
func readPEM(file, kind, what string) ([]byte, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	for block, rest := pem.Decode(b); block != nil; block, rest = pem.Decode(rest) {
		if block.Type == kind ||
			strings.HasSuffix(block.Type, " "+kind) && !strings.HasPrefix(block.Type, "ENCRYPTED ") {
			return b, nil
		}
	}
	return nil, fmt.Errorf("%s: there is no %s in PEM form in it, or an encrypted one", file, what)
}
