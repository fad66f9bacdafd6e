// Package seal encrypts the secrets of houses, so that a database that holds them can't read them.
//
// A Sealer has a keyset of Tink (AEAD, AES-256-GCM). A sealed value is bound to its Place: the house, the id and the
// name of its secret. It opens at that place only, so a row that is copied to another house, id or name is of no use.
// The primary key seals, and every key of the keyset opens. A keyset is rotated while it is in use: Rotate adds a new
// primary, each process reads the file again when it meets a value of a key that it does not have, and a value whose
// key (KeyOf) is not the Primary is left for Reseal.
//
// No error and no log of this package has a value or a key. Errors name the place.
package seal

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tink-crypto/tink-go/v2/aead"
	"github.com/tink-crypto/tink-go/v2/keyset"
	tinkpb "github.com/tink-crypto/tink-go/v2/proto/tink_go_proto"
	"github.com/tink-crypto/tink-go/v2/tink"
)

// MaxValue is the size of the largest value, in bytes. Linux passes strings of up to 128 KiB to a program.
const MaxValue = 64 << 10

// MaxPart is the length of the longest part of a Place, in bytes.
const MaxPart = 1 << 10

// Errors that callers branch on. The ones that are returned wrap them and name the place.
var (
	ErrEmpty    = errors.New("the value is empty")
	ErrTooLarge = fmt.Errorf("the value has more than %d bytes", MaxValue)
	ErrPlace    = fmt.Errorf("a house, an id and a name of 1 to %d bytes are required", MaxPart)
	// ErrUnknownKey is the error of a value whose key is not in the keyset.
	ErrUnknownKey = errors.New("the keyset does not have the key of this value")
	// ErrForeign is the error of a value that is damaged, or was sealed at another place.
	ErrForeign = errors.New("the value is damaged, or was sealed for another house, id or name")
)

// Place is where a secret stands.
type Place struct{ House, ID, Name string }

// String returns the place for messages.
func (p Place) String() string {
	return fmt.Sprintf("secret %.100q (%.100q) of the house %.100q", p.Name, p.ID, p.House)
}

// data returns the associated data of a value at the place. Each part has its length before it, so that no two places
// have the same data.
func (p Place) data() ([]byte, error) {
	b := []byte("arbe secret v1")
	for _, part := range []string{p.House, p.ID, p.Name} {
		if part == "" || len(part) > MaxPart {
			return nil, fmt.Errorf("%v: %w", p, ErrPlace)
		}
		b = binary.BigEndian.AppendUint32(b, uint32(len(part)))
		b = append(b, part...)
	}
	return b, nil
}

// Value is a secret that was opened. Formatted or marshalled it is [secret]; Reveal returns it.
type Value struct{ b []byte }

// Reveal returns the secret.
func (v Value) Reveal() string { return string(v.b) }

// Format implements fmt.Formatter. It writes [secret] for every verb.
func (v Value) Format(s fmt.State, _ rune) { _, _ = s.Write([]byte("[secret]")) } // a State keeps its own errors

// MarshalText returns [secret].
func (v Value) MarshalText() ([]byte, error) { return []byte("[secret]"), nil }

// retryEvery is the shortest time between two reads of the keyset that unknown keys cause, after one that failed.
const retryEvery = time.Second

// readTimeout bounds a read of the keyset, which may ask a KMS.
const readTimeout = 10 * time.Second

// Sealer seals and opens values. Its methods may be called at the same time.
type Sealer struct {
	file File
	ring atomic.Pointer[ring]

	mu     sync.Mutex // guards the fields below, and is held while the keyset is read again
	failed error      // of the latest such read; nil where it did not fail
	last   time.Time  // when that was
}

// ring is a keyset as it was read.
type ring struct {
	aead    tink.AEAD
	primary uint32
	ids     []uint32
	file    fs.FileInfo // that it was read from
}

// New returns a Sealer with the keyset in a file.
func New(ctx context.Context, f File) (*Sealer, error) {
	r, err := f.ring(ctx)
	if err != nil {
		return nil, err
	}
	s := &Sealer{file: f}
	s.ring.Store(r)
	return s, nil
}

func (f File) ring(ctx context.Context) (*ring, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	h, file, err := f.read(ctx)
	if err != nil {
		return nil, err
	}
	r, err := newRing(h)
	if err != nil {
		return nil, err
	}
	r.file = file
	return r, nil
}

// newRing returns the ring of a keyset. It takes keys alone whose values begin with the key's id.
func newRing(h *keyset.Handle) (*ring, error) {
	info := h.KeysetInfo()
	r := &ring{primary: info.GetPrimaryKeyId()}
	for _, k := range info.GetKeyInfo() {
		if k.GetOutputPrefixType() != tinkpb.OutputPrefixType_TINK {
			return nil, fmt.Errorf("key %d of the keyset has no id in its values: make the keyset with "+
				"arbe secret key new", k.GetKeyId())
		}
		if k.GetStatus() == tinkpb.KeyStatusType_ENABLED {
			r.ids = append(r.ids, k.GetKeyId())
		}
	}
	var err error
	r.aead, err = aead.New(h)
	return r, err
}

// Seal returns the value sealed for its place. It returns ErrEmpty, ErrTooLarge and ErrPlace.
func (s *Sealer) Seal(at Place, value []byte) ([]byte, error) {
	data, err := at.data()
	switch {
	case err != nil:
		return nil, err
	case len(value) == 0:
		return nil, fmt.Errorf("%v: %w", at, ErrEmpty)
	case len(value) > MaxValue:
		return nil, fmt.Errorf("%v: %w", at, ErrTooLarge)
	}
	sealed, err := s.ring.Load().aead.Encrypt(value, data)
	if err != nil {
		return nil, fmt.Errorf("seal %v: %w", at, err)
	}
	return sealed, nil
}

// Open returns the value that was sealed for this place. For a value of a key that the Sealer does not have it reads
// the keyset again if the file has changed; where that fails, it tries once a second. It returns ErrUnknownKey,
// ErrForeign and ErrPlace.
func (s *Sealer) Open(ctx context.Context, at Place, sealed []byte) (Value, error) {
	data, err := at.data()
	if err != nil {
		return Value{}, err
	}
	id, ok := keyOf(sealed)
	if !ok {
		return Value{}, fmt.Errorf("open %v: %w", at, ErrForeign)
	}
	r := s.ring.Load()
	if !slices.Contains(r.ids, id) {
		if r, err = s.readAgain(ctx, id); err != nil {
			return Value{}, fmt.Errorf("open %v: %w", at, err)
		}
	}
	value, err := r.aead.Decrypt(sealed, data)
	if err != nil {
		return Value{}, fmt.Errorf("open %v: %w", at, ErrForeign) // Tink's error has no reason
	}
	return Value{value}, nil
}

// readAgain reads the keyset again, for a key that it lacked. It returns ErrUnknownKey.
func (s *Sealer) readAgain(ctx context.Context, id uint32) (*ring, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.ring.Load()
	if slices.Contains(r.ids, id) {
		return r, nil
	}
	file, err := os.Stat(s.file.Path)
	if err != nil {
		return nil, err
	}
	if !sameFile(r.file, file) {
		if s.failed != nil && time.Since(s.last) < retryEvery {
			return nil, s.failed
		}
		again, err := s.file.ring(ctx)
		if s.failed, s.last = err, time.Now(); ctx.Err() != nil {
			s.failed = nil // that is the caller's, not the file's
		}
		if err != nil {
			return nil, err
		}
		s.ring.Store(again)
		r = again
	}
	if !slices.Contains(r.ids, id) {
		return nil, fmt.Errorf("%w (key %d)", ErrUnknownKey, id)
	}
	return r, nil
}

// sameFile reports whether a file is the one that it was, unchanged. Each rotation makes a new one, with a key more.
func sameFile(was, now fs.FileInfo) bool {
	return os.SameFile(was, now) && was.ModTime().Equal(now.ModTime()) && was.Size() == now.Size()
}

// Read reads the keyset again, as after a rotation.
func (s *Sealer) Read(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, err := s.file.ring(ctx)
	if err == nil {
		s.ring.Store(r)
	}
	return err
}

// Primary returns the name of the key that seals.
func (s *Sealer) Primary() string { return keyName(s.ring.Load().primary) }

// KeyOf returns the name of the key that has sealed a value; "" for a value that no keyset has sealed.
func KeyOf(sealed []byte) string {
	id, ok := keyOf(sealed)
	if !ok {
		return ""
	}
	return keyName(id)
}

func keyName(id uint32) string { return strconv.FormatUint(uint64(id), 10) }

// Reseal opens a value and seals it for the same place with the primary key. Its errors are those of Open.
func (s *Sealer) Reseal(ctx context.Context, at Place, sealed []byte) ([]byte, error) {
	v, err := s.Open(ctx, at, sealed)
	if err != nil {
		return nil, err
	}
	return s.Seal(at, v.b)
}

// keyOf returns the id of a sealed value's key: Tink's prefix is the byte 1 and the id.
func keyOf(sealed []byte) (id uint32, ok bool) {
	if len(sealed) < 5 || sealed[0] != 1 {
		return 0, false
	}
	return binary.BigEndian.Uint32(sealed[1:5]), true
}
