package kms_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"arbe.0sk.ar/runner/host/control/kms"
	"arbe.0sk.ar/runner/host/control/seal"
	"arbe.0sk.ar/runner/internal/test/fakevault"
)

// vault starts a double and names it in the environment.
func vault(t *testing.T) *fakevault.Server {
	t.Helper()
	v := fakevault.New()
	s := httptest.NewServer(v)
	t.Cleanup(s.Close)
	t.Setenv("VAULT_ADDR", s.URL)
	t.Setenv("VAULT_TOKEN", fakevault.Token)
	t.Setenv("VAULT_MAX_RETRIES", "0")
	return v
}

func open(t *testing.T) *kms.Key {
	t.Helper()
	k, err := kms.Open(fakevault.Key)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// What a key encrypts it decrypts, with the same associated data.
func TestKey(t *testing.T) {
	vault(t)
	k := open(t)
	for _, plain := range []string{"keyset", "\x00\xff", strings.Repeat("k", 1<<16)} {
		sealed, err := k.EncryptWithContext(t.Context(), []byte(plain), []byte("data"))
		if err != nil || bytes.Contains(sealed, []byte(plain)) {
			t.Fatalf("%v", err)
		}
		if got, err := k.DecryptWithContext(t.Context(), sealed, []byte("data")); err != nil || string(got) != plain {
			t.Errorf("%.20q, %v", got, err)
		}
		for what, ask := range map[string]func() ([]byte, error){
			"other data": func() ([]byte, error) { return k.DecryptWithContext(t.Context(), sealed, []byte("other")) },
			"no ciphertext": func() ([]byte, error) {
				return k.DecryptWithContext(t.Context(), []byte(plain), []byte("data"))
			},
			"another key": func() ([]byte, error) {
				_, err := open(t).DecryptWithContext(t.Context(), sealed[:len(sealed)-8], []byte("data"))
				return nil, err
			},
		} {
			if got, err := ask(); err == nil || got != nil {
				t.Errorf("%s: %v", what, err)
			}
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := k.EncryptWithContext(ended, []byte("keyset"), nil); !errors.Is(err, context.Canceled) {
		t.Errorf("after its context: %v", err)
	}
}

// The keyset of the secrets is encrypted by the service: without it no secret is read.
func TestKeyset(t *testing.T) {
	v := vault(t)
	f := seal.File{Path: filepath.Join(t.TempDir(), "keys"), KMS: open(t)}
	if err := f.Create(t.Context()); err != nil {
		t.Fatal(err)
	}
	s, err := seal.New(t.Context(), f)
	if err != nil {
		t.Fatal(err)
	}
	at := seal.Place{House: "h", ID: "i", Name: "N"}
	sealed, err := s.Seal(at, []byte("value"))
	if err != nil {
		t.Fatal(err)
	}
	calls := v.Calls()
	if value, err := s.Open(t.Context(), at, sealed); err != nil || value.Reveal() != "value" || v.Calls() != calls {
		t.Errorf("%v, %d calls", err, v.Calls()-calls)
	}
	v.Answer(func(w http.ResponseWriter, _ *http.Request) {
		fakevault.Refuse(w, http.StatusServiceUnavailable, "Vault is sealed")
	})
	if _, err := seal.New(t.Context(), f); err == nil || !strings.Contains(err.Error(), "503: Vault is sealed") ||
		!strings.Contains(err.Error(), fakevault.Key) || !strings.Contains(err.Error(), f.Path) {
		t.Errorf("a sealed Vault: %v", err)
	}
}

// No error has the token or the value, whatever the service answers, and each is one line with the key's name.
func TestNoToken(t *testing.T) {
	v := vault(t)
	const value = "the keyset itself"
	encoded := base64.StdEncoding.EncodeToString([]byte(value))
	elsewhere := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("a redirect was followed with the token %q", r.Header.Get("X-Vault-Token"))
	}))
	defer elsewhere.Close()
	for what, answer := range map[string]http.HandlerFunc{
		"permission denied": func(w http.ResponseWriter, _ *http.Request) {
			fakevault.Refuse(w, http.StatusForbidden, "permission denied")
		},
		"the request, as an error of Vault's": func(w http.ResponseWriter, r *http.Request) {
			b, _ := io.ReadAll(r.Body) // what there is
			fakevault.Refuse(w, http.StatusBadRequest, fmt.Sprint(r.Header, string(b)))
		},
		"the request, as a page": func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusBadGateway)
			fmt.Fprintf(w, "<html>%v", r.Header)
			_, _ = io.Copy(w, r.Body) // the client may be gone
		},
		"nothing":  func(http.ResponseWriter, *http.Request) {},
		"no JSON":  func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) },
		"no value": func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"data":{"ciphertext":7}}`) },
		"lines": func(w http.ResponseWriter, _ *http.Request) {
			fakevault.Refuse(w, http.StatusBadRequest, "one\ntwo"+strings.Repeat(" three", 1000))
		},
		"a redirect": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, elsewhere.URL, http.StatusTemporaryRedirect)
		},
		"a cut answer": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
	} {
		v.Answer(answer)
		_, err := open(t).EncryptWithContext(t.Context(), []byte(value), nil)
		if err == nil {
			t.Errorf("%s: no error", what)
			continue
		}
		if text := err.Error(); strings.Contains(text, fakevault.Token) || strings.Contains(text, encoded) ||
			strings.Contains(text, value) || strings.Contains(text, "\n") || len(text) > 1000 ||
			!strings.Contains(text, "key "+fakevault.Key+" of http://127.0.0.1:") {
			t.Errorf("%s: %s", what, text)
		}
	}
}

// What names no key, and a service that must not have the token, are refused before a request.
func TestOpen(t *testing.T) {
	v := vault(t)
	for _, name := range []string{
		"", "transit/keys/arbe", "hcvault://", "hcvault://transit", "hcvault://transit/keys/", "hcvault:///keys/arbe",
		"hcvault://transit/keys/a/b", "hcvault://transit/keys/a?b", "hcvault://a%2fb/keys/c",
		"gcp-kms://transit/keys/arbe",
	} {
		if _, err := kms.Open(name); !errors.Is(err, kms.ErrName) {
			t.Errorf("%q: %v", name, err)
		}
	}
	for variable, values := range map[string][]string{
		"VAULT_ADDR":   {"http://vault.example:8200", "http://user:hunter2@vault.example", ":", "vault"},
		"VAULT_TOKEN":  {""},
		"VAULT_CACERT": {filepath.Join(t.TempDir(), "absent")},
	} {
		for _, value := range values {
			t.Run(variable, func(t *testing.T) {
				t.Setenv(variable, value)
				_, err := kms.Open(fakevault.Key)
				if err == nil || strings.Contains(err.Error(), "hunter2") ||
					strings.Contains(err.Error(), fakevault.Token) {
					t.Errorf("%s=%s: %v", variable, value, err)
				}
			})
		}
	}
	if v.Calls() != 0 {
		t.Errorf("%d requests", v.Calls())
	}
}

// A service with TLS is reached by the CA of VAULT_CACERT, and by no other.
func TestTLS(t *testing.T) {
	s := httptest.NewTLSServer(fakevault.New())
	defer s.Close()
	t.Setenv("VAULT_ADDR", s.URL)
	t.Setenv("VAULT_TOKEN", fakevault.Token)
	t.Setenv("VAULT_MAX_RETRIES", "0")
	if _, err := open(t).EncryptWithContext(t.Context(), []byte("keyset"), nil); err == nil ||
		!strings.Contains(err.Error(), "certificate") {
		t.Errorf("without its CA: %v", err)
	}
	ca := filepath.Join(t.TempDir(), "ca.pem")
	b := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	if err := os.WriteFile(ca, b, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("VAULT_CACERT", ca)
	if _, err := open(t).EncryptWithContext(t.Context(), []byte("keyset"), nil); err != nil {
		t.Errorf("with its CA: %v", err)
	}
}
