// Package kms uses a key of a key management service, which encrypts the keyset of host/control/seal. The key never
// leaves the service: a thief with the keyset's file, the database or both opens nothing without the service.
//
// The service is Vault's transit engine, or OpenBao's, which has the same interface. Its address, its CA and the token
// are in the variables that its own program reads: VAULT_ADDR, VAULT_CACERT, VAULT_NAMESPACE, VAULT_TOKEN and the
// others. A token goes to a server by TLS, or on this machine, and follows no redirect.
//
// No error has a token, or what was to be encrypted. Errors name the service and the key.
package kms

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"strings"

	"github.com/hashicorp/vault/api"
)

// keyName is the form of a key's name in Vault, as Tink has it.
var keyName = regexp.MustCompile(`^hcvault://([^?#%]+)/keys/([^/?#%]+)$`)

// ErrName is the error of a name that is no key's.
var ErrName = errors.New("want hcvault://MOUNT/keys/NAME, as hcvault://transit/keys/arbe")

// Key is a key of a key management service. Its methods may be called at the same time, and are bound by their
// contexts.
type Key struct {
	client      *api.Client
	mount, name string
}

// Open returns the key of a name, hcvault://MOUNT/keys/NAME. It does not ask the service.
func Open(name string) (*Key, error) {
	path := keyName.FindStringSubmatch(name)
	if path == nil {
		return nil, fmt.Errorf("key %q: %w", name, ErrName)
	}
	config := api.DefaultConfig()
	if config.Error != nil {
		return nil, fmt.Errorf("key %s: %w", name, config.Error)
	}
	config.DisableRedirects = true
	client, err := api.NewClient(config)
	if err != nil {
		return nil, fmt.Errorf("key %s: %w", name, err)
	}
	k := &Key{client, path[1], path[2]}
	switch u, err := url.Parse(client.Address()); {
	case err != nil || u.Host == "":
		return nil, errors.New("VAULT_ADDR: want a URL")
	case u.Scheme != "https" && !local(u.Hostname()):
		return nil, fmt.Errorf("%v: without TLS a token reaches this machine alone: want https in VAULT_ADDR", k)
	case client.Token() == "":
		return nil, fmt.Errorf("%v: no token: set VAULT_TOKEN", k)
	}
	return k, nil
}

// local reports whether a host is this machine.
func local(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// String returns the key's name and its service.
func (k *Key) String() string {
	at := "an address that is no URL"
	if u, err := url.Parse(k.client.Address()); err == nil {
		at = u.Redacted()
	}
	return fmt.Sprintf("key hcvault://%s/keys/%s of %s", k.mount, k.name, at)
}

// EncryptWithContext encrypts plaintext. It opens with the same associated data only.
func (k *Key) EncryptWithContext(ctx context.Context, plaintext, associatedData []byte) ([]byte, error) {
	sealed, err := k.ask(ctx, "encrypt", "plaintext", base64.StdEncoding.EncodeToString(plaintext), "ciphertext",
		associatedData)
	return []byte(sealed), err
}

// DecryptWithContext decrypts what EncryptWithContext has returned.
func (k *Key) DecryptWithContext(ctx context.Context, ciphertext, associatedData []byte) ([]byte, error) {
	plain, err := k.ask(ctx, "decrypt", "ciphertext", string(ciphertext), "plaintext", associatedData)
	if err != nil {
		return nil, err
	}
	b, err := base64.StdEncoding.DecodeString(plain)
	if err != nil {
		return nil, fmt.Errorf("%v: decrypt: the answer is no base64", k)
	}
	return b, nil
}

// ask sends the value given of a request, and returns the value wanted of the answer.
func (k *Key) ask(ctx context.Context, operation, given, value, wanted string, data []byte) (string, error) {
	answer, err := k.client.Logical().WriteWithContext(ctx, k.mount+"/"+operation+"/"+k.name, map[string]any{
		given: value, "associated_data": base64.StdEncoding.EncodeToString(data),
	})
	if err != nil {
		return "", fmt.Errorf("%v: %s: %w", k, operation, k.reason(err, value))
	}
	if answer != nil {
		if v, is := answer.Data[wanted].(string); is && v != "" {
			return v, nil
		}
	}
	return "", fmt.Errorf("%v: %s: the answer has no %s", k, operation, wanted)
}

// mostReason bounds what of an answer is in an error, in bytes.
const mostReason = 300

// reason returns an error of a request in one line, without the token and the value that it had.
func (k *Key) reason(err error, value string) error {
	var refused *api.ResponseError
	if !errors.As(err, &refused) {
		return err // of the connection: it has the URL alone
	}
	text := http.StatusText(refused.StatusCode)
	if said := strings.Join(refused.Errors, "; "); !refused.RawError && said != "" &&
		!strings.Contains(said, k.client.Token()) && !strings.Contains(said, value) {
		text = strings.Join(strings.Fields(said[:min(len(said), mostReason)]), " ")
	}
	return fmt.Errorf("%d: %s", refused.StatusCode, text)
}
