package httpd

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"arbe.0sk.ar/runner/internal/test/output"
)

// issue returns a certificate and its key, in PEM form.
func issue(t *testing.T, name string, until time.Time) (cert, key []byte) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore:   time.Now().Add(-48 * time.Hour), NotAfter: until,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, k.Public(), k)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8})
}

func put(t *testing.T, file string, b []byte) {
	t.Helper()
	if err := os.WriteFile(file, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestTLSRefuses(t *testing.T) {
	cert, key := issue(t, "a", time.Now().Add(time.Hour))
	_, other := issue(t, "b", time.Now().Add(time.Hour))
	encrypted := bytes.ReplaceAll(key, []byte("PRIVATE KEY"), []byte("ENCRYPTED PRIVATE KEY"))
	for _, tt := range []struct {
		name      string
		cert, key []byte // nil: no such file
		want      string // file in the error
	}{
		{"no certificate", nil, key, "cert.pem"},
		{"no key", cert, nil, "key.pem"},
		{"an empty certificate", []byte{}, key, "cert.pem"},
		{"the files the wrong way round", key, cert, "cert.pem"},
		{"no PEM", []byte("x"), key, "cert.pem"},
		{"a key that is none", cert, cert, "key.pem"},
		{"an encrypted key", cert, encrypted, "key.pem"},
		{"another certificate's key", cert, other, "key.pem"},
		{"a broken certificate", bytes.Replace(cert, []byte("\nM"), []byte("\nN"), 1), key, "cert.pem"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			files := map[string][]byte{filepath.Join(dir, "cert.pem"): tt.cert, filepath.Join(dir, "key.pem"): tt.key}
			for file, b := range files {
				if b != nil {
					put(t, file, b)
				}
			}
			_, err := LoadTLS(filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem"),
				slog.New(slog.DiscardHandler), func(time.Time) { t.Error("served") })
			if err == nil || !strings.Contains(err.Error(), filepath.Join(dir, tt.want)) {
				t.Errorf("got %v", err)
			}
			if err != nil && strings.Contains(err.Error(), "-----") {
				t.Errorf("the key is in the error: %v", err)
			}
		})
	}
}

// A server serves the new certificate when the files change, and the old one while they do not fit together.
func TestTLSReload(t *testing.T) {
	dir := t.TempDir()
	certFile, keyFile := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	certA, keyA := issue(t, "a", time.Now().Add(time.Hour))
	certB, keyB := issue(t, "b", time.Now().Add(2*time.Hour))
	certOld, keyOld := issue(t, "old", time.Now().Add(-time.Hour))
	put(t, certFile, certA)
	put(t, keyFile, keyA)
	log := make(output.Lines, 10)
	var until time.Time
	c := &certificate{
		certFile: certFile, keyFile: keyFile, log: slog.New(slog.NewJSONHandler(log, nil)),
		loaded: func(end time.Time) { until = end },
	}
	if err := c.load(); err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	for _, tt := range []struct {
		name      string
		cert, key []byte // nil: as it was; empty: there is none
		after     time.Duration
		want      string // name in the certificate
		level     string // of the logged line; "" for none
	}{
		{"nothing changes", nil, nil, time.Minute, "a", ""},
		{"a new certificate without its key yet", certB, nil, time.Minute, "a", "ERROR"},
		{"still without", nil, nil, time.Minute, "a", ""},
		{"its key, a moment ago", nil, keyB, time.Second, "a", ""},
		{"its key", nil, nil, time.Minute, "b", "INFO"},
		{"the key is taken away", nil, []byte{}, time.Minute, "b", "ERROR"},
		{"the key is back", nil, keyB, time.Minute, "b", "INFO"},
		{"an old one", certOld, keyOld, time.Second, "b", ""},
		{"both at once", certA, keyA, time.Minute, "a", "INFO"},
	} {
		for file, b := range map[string][]byte{certFile: tt.cert, keyFile: tt.key} {
			if b != nil {
				put(t, file, b)
			}
			if b != nil && len(b) == 0 {
				if err := os.Remove(file); err != nil {
					t.Fatal(err)
				}
			}
		}
		now = now.Add(tt.after)
		if got := c.fresh(now).Leaf.Subject.CommonName; got != tt.want {
			t.Errorf("%s: %s is served, want %s", tt.name, got, tt.want)
		}
		level := ""
		if len(log) > 0 {
			level = log.Next(t)["level"].(string)
		}
		if level != tt.level || len(log) > 0 {
			t.Errorf("%s: logged %q, want %q", tt.name, level, tt.level)
		}
	}
	put(t, certFile, certOld)
	put(t, keyFile, keyOld)
	if got := c.fresh(now.Add(time.Minute)).Leaf.Subject.CommonName; got != "old" {
		t.Errorf("%s is served", got)
	}
	log.Next(t) // another one is served
	if got := log.Next(t); got["level"] != "ERROR" || !strings.Contains(got["msg"].(string), "expired") {
		t.Errorf("logged %v", got)
	}
	if end := c.current.Leaf.NotAfter; !until.Equal(end) {
		t.Errorf("loaded a certificate until %v, want %v", until, end)
	}
}

// Clients connect with TLS 1.2 and up, and with HTTP/2 where they support it.
func TestTLSVersions(t *testing.T) {
	dir := t.TempDir()
	certFile, keyFile := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	cert, key := issue(t, "a", time.Now().Add(time.Hour))
	put(t, certFile, cert)
	put(t, keyFile, key)
	config, err := LoadTLS(certFile, keyFile, slog.New(slog.DiscardHandler), func(time.Time) {})
	if err != nil {
		t.Fatal(err)
	}
	log := make(output.Lines, 10)
	srv := httptest.NewUnstartedServer(nil)
	ln := tls.NewListener(NewLimit(100, uncounted{}).Of(srv.Listener), config)
	server := &http.Server{
		Handler:  Logged(http.NotFoundHandler(), log, nothingAsked),
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo),
	}
	done := make(chan error, 1)
	go func() { done <- server.Serve(ln) }()
	defer func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
		<-done
	}()
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(cert)
	for _, tt := range []struct {
		version uint16
		http2   bool
		want    string // "" for a connection that does not come about
	}{
		{tls.VersionTLS11, false, ""},
		{tls.VersionTLS12, false, "HTTP/1.1"},
		{tls.VersionTLS13, false, "HTTP/1.1"},
		{tls.VersionTLS13, true, "HTTP/2.0"},
	} {
		transport := &http.Transport{
			TLSClientConfig: &tls.Config{
				RootCAs:    roots,
				MinVersion: tls.VersionTLS10,
				MaxVersion: tt.version,
			}, ForceAttemptHTTP2: tt.http2,
		}
		client := &http.Client{Transport: transport}
		got := ""
		resp, err := client.Get("https://" + srv.Listener.Addr().String())
		if err == nil {
			got = resp.Proto
			if err := resp.Body.Close(); err != nil {
				t.Error(err)
			}
			log.Next(t)
		}
		if got != tt.want {
			t.Errorf("%s: got %q, %v, want %q", tls.VersionName(tt.version), got, err, tt.want)
		}
		transport.CloseIdleConnections()
	}
}
