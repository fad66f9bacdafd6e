package daemon

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"arbe.0sk.ar/runner/host/token"
	"arbe.0sk.ar/runner/internal/durable"
)

// Data is a server's folder: its log, the secret that it has made, and its address, so that the other commands on this
// machine find it.
type Data string

func (d Data) secretFile() string  { return filepath.Join(string(d), "secret") }
func (d Data) addressFile() string { return filepath.Join(string(d), "address") }
func (d Data) socketFile() string  { return filepath.Join(string(d), "socket") }

// log returns the folder of the log.
func (d Data) log() string { return filepath.Join(string(d), "log") }

// index returns the folder of the index of threads, which is a cache of the log.
func (d Data) index() string { return filepath.Join(string(d), "index") }

// Secrets returns the folder's secrets; fs.ErrNotExist where it has none. The first one signs.
func (d Data) Secrets() ([][]byte, error) {
	b, err := os.ReadFile(d.secretFile())
	if err != nil {
		return nil, err
	}
	secrets, err := token.ParseSecrets(string(b))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", d.secretFile(), err)
	}
	return secrets, nil
}

// makeSecret is Secrets, and makes a secret where there is none.
func (d Data) makeSecret() ([][]byte, error) {
	secrets, err := d.Secrets()
	if !errors.Is(err, fs.ErrNotExist) {
		return secrets, err
	}
	random := make([]byte, 32)
	_, _ = rand.Read(random) // it never fails
	f, err := os.OpenFile(d.secretFile(), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return d.Secrets() // another server has made it
	}
	if err != nil {
		return nil, err
	}
	secret := []byte(hex.EncodeToString(random))
	_, err = f.Write(append(secret, '\n'))
	return [][]byte{secret}, errors.Join(err, f.Sync(), f.Close(), durable.Sync(string(d)))
}

// Address returns the base URL of the server that uses this folder; fs.ErrNotExist where none runs.
func (d Data) Address() (string, error) {
	b, err := os.ReadFile(d.addressFile())
	return strings.TrimSpace(string(b)), err
}

// Socket returns the path of the Unix socket of the server that uses this folder; fs.ErrNotExist where none runs, or it
// has no socket.
func (d Data) Socket() (string, error) {
	b, err := os.ReadFile(d.socketFile())
	return strings.TrimSpace(string(b)), err
}

// publish notes where a server listens, until forget: its base URL, and its socket, "" for none.
func (d Data) publish(url, socket string) (forget func() error, err error) {
	files := map[string]string{d.addressFile(): url}
	if socket != "" {
		files[d.socketFile()] = socket
	} else if err := os.Remove(d.socketFile()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err // left by a server that was killed
	}
	forget = func() (err error) {
		for file := range files {
			if rerr := os.Remove(file); !errors.Is(rerr, fs.ErrNotExist) {
				err = errors.Join(err, rerr)
			}
		}
		return err
	}
	for file, text := range files {
		if err := durable.WriteFile(file, []byte(text+"\n")); err != nil {
			return nil, errors.Join(err, forget())
		}
	}
	return forget, nil
}

// ErrNoSecret is the error of a public address without a secret.
var ErrNoSecret = errors.New(
	"a secret is required on any address but a loopback one: set DURABLE_STREAMS_SECRET to 32 bytes or more",
)

// ErrInsecure is the error of a public address without tokens.
var ErrInsecure = errors.New("without tokens only on a loopback address, and on no socket")
