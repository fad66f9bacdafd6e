package control_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"arbe.0sk.ar/runner/host/control"
	"arbe.0sk.ar/runner/host/rows"
	"arbe.0sk.ar/runner/internal/test/port"
	"arbe.0sk.ar/runner/internal/test/postgres"
)

// authority is a certificate authority.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	file string // its certificate
}

func newAuthority(t *testing.T, name string) authority {
	t.Helper()
	key := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	template := x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der := must(x509.CreateCertificate(rand.Reader, &template, &template, key.Public(), key))(t)
	a := authority{must(x509.ParseCertificate(der))(t), key, filepath.Join(t.TempDir(), "ca.pem")}
	check(t, os.WriteFile(a.file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	return a
}

// certificate returns the certificate and the key of a server on this machine.
func (a authority) certificate(t *testing.T) (cert, key []byte) {
	t.Helper()
	private := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	template := x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "postgres"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der := must(x509.CreateCertificate(rand.Reader, &template, a.cert, private.Public(), a.key))(t)
	pkcs8 := must(x509.MarshalPKCS8PrivateKey(private))(t)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8})
}

// A database is reached by TLS with the CA that the address names. Another CA, and another name of the server, are
// refused, and are no outage.
func TestDatabaseTLS(t *testing.T) {
	s := killable.Server(t)
	const name = "with_tls"
	check(t, s.Exec(t.Context(), "create database "+name+" owner "+postgres.Owner))
	t.Cleanup(func() { check(t, s.Exec(context.Background(), "drop database "+name+" with (force)")) })
	right, wrong, address := newAuthority(t, "right"), newAuthority(t, "wrong"), port.Reserve(t)
	cert, key := right.certificate(t)
	check(t, s.ListenTLS(address, cert, key))
	check(t, errors.Join(s.Halt(), s.Restart()))
	t.Cleanup(func() { check(t, errors.Join(s.ListenTLS("", nil, nil), s.Halt(), s.Restart())) })

	_, number, err := net.SplitHostPort(address)
	check(t, err)
	at := func(host, mode, ca string) string {
		u := url.URL{
			Scheme: "postgres", User: url.User(postgres.Owner), Host: net.JoinHostPort(host, number), Path: name,
		}
		u.RawQuery = url.Values{"sslmode": {mode}, "sslrootcert": {ca}}.Encode()
		return u.String()
	}
	good := at("127.0.0.1", "verify-full", right.file)
	must(control.Migrate(t.Context(), good))(t)
	db := must(control.Open(t.Context(), good, control.Config{}))(t)
	defer db.Close()
	must(db.Host().Houses(t.Context()))(t)
	var encrypted bool
	check(t, connect(t, good).QueryRow(t.Context(),
		"select ssl from pg_stat_ssl where pid = pg_backend_pid()").Scan(&encrypted))
	if !encrypted {
		t.Error("the connection has no TLS")
	}

	for what, url := range map[string]string{
		"another CA":                 at("127.0.0.1", "verify-full", wrong.file),
		"another CA, by verify-ca":   at("127.0.0.1", "verify-ca", wrong.file),
		"another name":               at("localhost", "verify-full", right.file),
		"the CAs of this machine":    at("127.0.0.1", "verify-full", "system"),
		"a file that has no CA":      at("127.0.0.1", "verify-full", os.Args[0]),
		"a file that is not there":   at("127.0.0.1", "verify-full", right.file+".old"),
		"a mode that does not exist": at("127.0.0.1", "verify", right.file),
	} {
		_, openErr := control.Open(t.Context(), url, control.Config{})
		_, migrateErr := control.Migrate(t.Context(), url)
		_, statusErr := control.ReadStatus(t.Context(), url)
		for _, err := range []error{openErr, migrateErr, statusErr} {
			if err == nil || errors.Is(err, rows.ErrAway) {
				t.Errorf("%s: %v", what, err)
			}
		}
	}
}
