// Package fakevault is a double of Vault's transit engine: one key, which encrypts and decrypts with associated data.
// Anyone with another token, or who names another key, is refused as by the real one.
package fakevault

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strings"
	"sync"
)

// Token is the token that it accepts, and Key the name of its key.
const (
	Token = "hvs.double-0123456789abcdef"
	Key   = "hcvault://transit/keys/arbe"
)

// Server is the double: an http.Handler.
type Server struct {
	aead cipher.AEAD

	mu     sync.Mutex // guards the fields below
	calls  int
	answer http.HandlerFunc // of each request; nil: its own
}

// New returns a double with a new key.
func New() *Server {
	key := make([]byte, 32)
	_, _ = rand.Read(key) // never fails
	block, err := aes.NewCipher(key)
	if err != nil {
		panic(err) // the length is right
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		panic(err)
	}
	return &Server{aead: aead}
}

// Answer replaces the answer to each request from now on; nil restores its own.
func (s *Server) Answer(answer http.HandlerFunc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answer = answer
}

// Calls returns the number of requests so far.
func (s *Server) Calls() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls
}

// request is the body of a request to encrypt or to decrypt, and of the answer.
type request struct {
	Plaintext      string `json:"plaintext,omitempty"`
	Ciphertext     string `json:"ciphertext,omitempty"`
	AssociatedData string `json:"associated_data,omitempty"`
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.calls++
	answer := s.answer
	s.mu.Unlock()
	operation, is := strings.CutPrefix(r.URL.Path, "/v1/transit/")
	var given request
	switch {
	case answer != nil:
		answer(w, r)
	case r.Header.Get("X-Vault-Token") != Token || !is:
		Refuse(w, http.StatusForbidden, "permission denied")
	case json.NewDecoder(r.Body).Decode(&given) != nil:
		Refuse(w, http.StatusBadRequest, "failed to parse JSON input")
	default:
		s.serve(w, operation, given)
	}
}

// serve answers a request with the right token.
func (s *Server) serve(w http.ResponseWriter, operation string, given request) {
	data, err := base64.StdEncoding.DecodeString(given.AssociatedData)
	if err != nil {
		Refuse(w, http.StatusBadRequest, "failed to base64-decode associated_data")
		return
	}
	const version = "vault:v1:"
	switch operation {
	case "encrypt/arbe":
		plain, err := base64.StdEncoding.DecodeString(given.Plaintext)
		if err != nil {
			Refuse(w, http.StatusBadRequest, "failed to base64-decode plaintext")
			return
		}
		nonce := make([]byte, s.aead.NonceSize())
		_, _ = rand.Read(nonce) // never fails
		sealed := s.aead.Seal(nonce, nonce, plain, data)
		s.send(w, request{Ciphertext: version + base64.StdEncoding.EncodeToString(sealed)})
	case "decrypt/arbe":
		text, is := strings.CutPrefix(given.Ciphertext, version)
		sealed, err := base64.StdEncoding.DecodeString(text)
		if n := s.aead.NonceSize(); !is || err != nil || len(sealed) < n {
			Refuse(w, http.StatusBadRequest, "invalid ciphertext: no prefix")
		} else if plain, err := s.aead.Open(nil, sealed[:n], sealed[n:], data); err != nil {
			Refuse(w, http.StatusBadRequest, "cipher: message authentication failed")
		} else {
			s.send(w, request{Plaintext: base64.StdEncoding.EncodeToString(plain)})
		}
	default:
		Refuse(w, http.StatusBadRequest, "encryption key not found")
	}
}

func (s *Server) send(w http.ResponseWriter, data request) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{"data": data}) // the client may be gone
}

// Refuse answers with an error as Vault has it.
func Refuse(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{"errors": []string{text}}) // the client may be gone
}
