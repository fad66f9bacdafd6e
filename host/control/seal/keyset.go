package seal

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"

	"github.com/tink-crypto/tink-go/v2/aead"
	"github.com/tink-crypto/tink-go/v2/insecurecleartextkeyset"
	"github.com/tink-crypto/tink-go/v2/keyset"
	tinkpb "github.com/tink-crypto/tink-go/v2/proto/tink_go_proto"
	"github.com/tink-crypto/tink-go/v2/tink"

	"arbe.0sk.ar/runner/internal/durable"
	"arbe.0sk.ar/runner/internal/filelock"
)

// KMS encrypts a keyset with a key that does not leave a key management service. It is Tink's interface, so the clients
// that Tink has for such services can be used. Both methods are bound by their context.
type KMS = tink.AEADWithContext

// File is a keyset in a file of this machine.
type File struct {
	Path string
	// KMS encrypts the keyset in the file. It is asked once for each read of the file, and gets no value. nil keeps the
	// keyset in cleartext, and then the file has to be for its owner alone (0600).
	KMS KMS
}

// keysetData is the associated data of a keyset that a KMS encrypts.
var keysetData = []byte("arbe keyset v1")

// maxFile bounds a keyset's file, in bytes: hundreds of keys.
const maxFile = 1 << 20

// ErrExists is the error of Create for a file that is there: a keyset that is replaced loses every value.
var ErrExists = fmt.Errorf("%w: the secrets that its keys have sealed would be lost", fs.ErrExist)

// Key is a key of a keyset, without its material.
type Key struct {
	ID      uint32
	Primary bool // it seals; the others only open
}

// Create makes a keyset with one key. It returns ErrExists.
func (f File) Create(ctx context.Context) error {
	h, err := keyset.NewHandle(aead.AES256GCMKeyTemplate())
	if err != nil {
		return err
	}
	b, err := f.encode(ctx, h)
	if err != nil {
		return f.wrap("create", err)
	}
	out, err := os.OpenFile(f.Path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	switch {
	case errors.Is(err, fs.ErrExist):
		return f.wrap("create", ErrExists)
	case err != nil:
		return err
	}
	_, err = out.Write(b)
	if err == nil {
		err = out.Sync()
	}
	if err = errors.Join(err, out.Close()); err == nil {
		err = durable.Sync(filepath.Dir(f.Path))
	}
	if err != nil {
		return errors.Join(f.wrap("create", err), os.Remove(f.Path))
	}
	return nil
}

// Rotate adds a key to the keyset and makes it the primary. Of two rotations at the same time one fails.
func (f File) Rotate(ctx context.Context) error {
	return f.rewrite(ctx, "rotate", f, func(h *keyset.Handle) (*keyset.Handle, error) {
		m := keyset.NewManagerFromHandle(h)
		id, err := m.Add(aead.AES256GCMKeyTemplate())
		if err == nil {
			err = m.SetPrimary(id)
		}
		if err != nil {
			return nil, err
		}
		return m.Handle()
	})
}

// Wrap encrypts a keyset that is in cleartext with the KMS. Its keys stay the same: rotate them where others could have
// read the file, or a copy of it.
func (f File) Wrap(ctx context.Context) error {
	if f.KMS == nil {
		return f.wrap("wrap", errors.New("no KMS"))
	}
	return f.rewrite(ctx, "wrap", File{Path: f.Path}, func(h *keyset.Handle) (*keyset.Handle, error) { return h, nil })
}

// rewrite replaces the keyset, which is read as from, by what change makes of it. Another rewrite at the same time
// fails.
func (f File) rewrite(
	ctx context.Context, doing string, from File, change func(*keyset.Handle) (*keyset.Handle, error),
) error {
	locked, err := os.Open(f.Path)
	if err != nil {
		return err
	}
	defer func() { _ = locked.Close() }() // nothing was written to it
	if err := filelock.Lock(locked); err != nil {
		return f.wrap(doing, err)
	}
	defer func() { _ = filelock.Unlock(locked) }() // closing releases it, too
	if err := same(locked, f.Path); err != nil {
		return f.wrap(doing, err)
	}
	h, _, err := from.read(ctx)
	if err != nil {
		return err
	}
	if h, err = change(h); err != nil {
		return f.wrap(doing, err)
	}
	b, err := f.encode(ctx, h)
	if err == nil {
		err = durable.WriteFile(f.Path, b)
	}
	if err != nil {
		return f.wrap(doing, err)
	}
	return nil
}

// same returns an error if a file is no longer the one at path: another rotation has replaced it before the lock.
func same(f *os.File, path string) error {
	a, err := f.Stat()
	if err != nil {
		return err
	}
	b, err := os.Stat(path)
	if err == nil && !os.SameFile(a, b) {
		err = filelock.ErrLocked
	}
	return err
}

// Keys returns the keys of the keyset that are in use.
func (f File) Keys(ctx context.Context) ([]Key, error) {
	h, _, err := f.read(ctx)
	if err != nil {
		return nil, err
	}
	info := h.KeysetInfo()
	var all []Key
	for _, k := range info.GetKeyInfo() {
		if k.GetStatus() == tinkpb.KeyStatusType_ENABLED {
			all = append(all, Key{k.GetKeyId(), k.GetKeyId() == info.GetPrimaryKeyId()})
		}
	}
	return all, nil
}

// read returns the keyset in the file, and the file as it was.
func (f File) read(ctx context.Context) (*keyset.Handle, fs.FileInfo, error) {
	in, err := os.Open(f.Path)
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = in.Close() }() // nothing was written to it
	st, err := in.Stat()
	switch {
	case err != nil:
		return nil, nil, err
	case !st.Mode().IsRegular():
		return nil, nil, f.wrap("read", errors.New("it is no regular file"))
	case f.KMS == nil && runtime.GOOS != "windows" && st.Mode().Perm()&0o077 != 0: // Windows has no such modes
		return nil, nil, f.wrap("read", fmt.Errorf("its mode is %04o, so others may read its keys: "+
			"run chmod 600, and rotate the keyset if others could read it", st.Mode().Perm()))
	}
	b, err := io.ReadAll(io.LimitReader(in, maxFile))
	if err != nil {
		return nil, nil, f.wrap("read", err)
	}
	h, err := f.decode(ctx, b)
	if err != nil {
		return nil, nil, f.wrap("read", err)
	}
	return h, st, nil
}

// errKeyset is the error of a file that holds something else. An error of the parser could have a part of a key.
var errKeyset = errors.New("it holds no keyset: make one with arbe secret key new")

// Errors of a keyset that is read without the KMS that has encrypted it, or with one that has not.
var (
	errWrapped   = errors.New("a key management service has encrypted it: name its key with --secret-kms")
	errUnwrapped = errors.New("it is in cleartext: encrypt it with arbe secret key wrap, or leave out --secret-kms")
)

func (f File) decode(ctx context.Context, b []byte) (*keyset.Handle, error) {
	var form struct{ EncryptedKeyset, Key json.RawMessage }
	_ = json.Unmarshal(b, &form) // what is no keyset is refused below
	switch {
	case f.KMS == nil && form.EncryptedKeyset != nil:
		return nil, errWrapped
	case f.KMS != nil && form.Key != nil:
		return nil, errUnwrapped
	case f.KMS != nil && form.EncryptedKeyset == nil:
		return nil, errKeyset
	}
	in := keyset.NewJSONReader(bytes.NewReader(b))
	if f.KMS == nil {
		h, err := insecurecleartextkeyset.Read(in)
		if err != nil {
			return nil, errKeyset
		}
		return h, nil
	}
	h, err := keyset.ReadWithContext(ctx, in, f.KMS, keysetData)
	if err != nil {
		return nil, fmt.Errorf("decrypt the keyset with the KMS: %w", err)
	}
	return h, nil
}

func (f File) encode(ctx context.Context, h *keyset.Handle) ([]byte, error) {
	var b bytes.Buffer
	out := keyset.NewJSONWriter(&b)
	if f.KMS == nil {
		err := insecurecleartextkeyset.Write(h, out)
		return b.Bytes(), err
	}
	if err := h.WriteWithContext(ctx, out, f.KMS, keysetData); err != nil {
		return nil, fmt.Errorf("encrypt the keyset with the KMS: %w", err)
	}
	return b.Bytes(), nil
}

func (f File) wrap(doing string, err error) error {
	return fmt.Errorf("%s the keyset %s: %w", doing, f.Path, err)
}
