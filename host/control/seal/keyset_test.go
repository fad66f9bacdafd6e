package seal_test

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tink-crypto/tink-go/v2/aead/subtle"

	"arbe.0sk.ar/runner/host/control/seal"
)

func TestFile(t *testing.T) {
	f := newFile(t)
	st, err := os.Stat(f.Path)
	if err != nil || st.Mode().Perm() != 0o600 && runtime.GOOS != "windows" {
		t.Fatalf("%v, %v", st.Mode(), err)
	}
	before, err := os.ReadFile(f.Path)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Create(t.Context()); !errors.Is(err, seal.ErrExists) || !errors.Is(err, fs.ErrExist) {
		t.Errorf("a second keyset in its place: %v", err)
	}
	if after, err := os.ReadFile(f.Path); err != nil || string(after) != string(before) {
		t.Errorf("the keyset has changed: %v", err)
	}
	if err := f.Rotate(t.Context()); err != nil {
		t.Fatal(err)
	}
	if st, err := os.Stat(f.Path); err != nil || st.Mode().Perm() != 0o600 && runtime.GOOS != "windows" {
		t.Errorf("after a rotation: %v, %v", st.Mode(), err)
	}
}

// TestMode refuses a file that others may read.
func TestMode(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("no such modes")
	}
	f := newFile(t)
	for mode, good := range map[os.FileMode]bool{
		0o600: true, 0o400: true, 0o640: false, 0o604: false, 0o644: false, 0o660: false, 0o620: false, 0o610: false,
	} {
		if err := os.Chmod(f.Path, mode); err != nil {
			t.Fatal(err)
		}
		_, err := seal.New(t.Context(), f)
		if (err == nil) != good || err != nil && !strings.Contains(err.Error(), f.Path) {
			t.Errorf("mode %04o: %v", mode, err)
		}
	}
}

// TestNoKeyset names a file that holds something else, and quotes none of it.
func TestNoKeyset(t *testing.T) {
	good, err := os.ReadFile(newFile(t).Path)
	if err != nil {
		t.Fatal(err)
	}
	for _, content := range []string{
		"", "{}", `{"key":[]}`, "sk-live-8a7b6c5d", string(good[:len(good)-20]), `{"primaryKeyId":"sk-live-8a7b6c5d"}`,
		strings.ReplaceAll(string(good), "TINK", "RAW"), strings.ReplaceAll(string(good), "AesGcmKey", "HmacKey"),
	} {
		f := seal.File{Path: filepath.Join(t.TempDir(), "keys")}
		if err := os.WriteFile(f.Path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := seal.New(t.Context(), f)
		if err == nil || strings.Contains(err.Error(), "sk-live") {
			t.Errorf("%.30q: %v", content, err)
		}
		if err := f.Create(t.Context()); !errors.Is(err, seal.ErrExists) {
			t.Errorf("%.30q was replaced: %v", content, err)
		}
	}
	for _, path := range []string{filepath.Join(t.TempDir(), "absent"), t.TempDir()} {
		if _, err := seal.New(t.Context(), seal.File{Path: path}); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// TestRotateAtOnce rotates at the same time: each rotation that succeeds has added its key.
func TestRotateAtOnce(t *testing.T) {
	f := newFile(t)
	var mu sync.Mutex
	rotated := 0
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			if f.Rotate(context.Background()) == nil {
				mu.Lock()
				rotated++
				mu.Unlock()
			}
		})
	}
	all.Wait()
	if keys, err := f.Keys(t.Context()); err != nil || rotated == 0 || len(keys) != 1+rotated {
		t.Errorf("%d rotations, %d keys, %v", rotated, len(keys), err)
	}
}

// localKMS is a double of a KMS. It counts its calls, and fails while it is away.
type localKMS struct {
	*subtle.AESGCM
	calls int
	away  error
}

func newKMS(t *testing.T, key string) *localKMS {
	t.Helper()
	a, err := subtle.NewAESGCM([]byte(key))
	if err != nil {
		t.Fatal(err)
	}
	return &localKMS{AESGCM: a}
}

func (k *localKMS) EncryptWithContext(_ context.Context, plain, data []byte) ([]byte, error) {
	if k.calls++; k.away != nil {
		return nil, k.away
	}
	return k.Encrypt(plain, data)
}

func (k *localKMS) DecryptWithContext(ctx context.Context, sealed, data []byte) ([]byte, error) {
	if k.calls++; k.away != nil {
		return nil, k.away
	}
	return k.Decrypt(sealed, data)
}

// TestKMS keeps the keyset encrypted: it is read with the KMS alone, and values ask the KMS nothing.
func TestKMS(t *testing.T) {
	kms := newKMS(t, strings.Repeat("k", 32))
	f := seal.File{Path: filepath.Join(t.TempDir(), "keys"), KMS: kms}
	if err := f.Create(t.Context()); err != nil {
		t.Fatal(err)
	}
	s := newSealer(t, f)
	if kms.calls != 2 {
		t.Errorf("%d calls for making and reading a keyset", kms.calls)
	}
	sealed, err := s.Seal(at, []byte("value"))
	if err != nil {
		t.Fatal(err)
	}
	if v, err := s.Open(t.Context(), at, sealed); err != nil || v.Reveal() != "value" || kms.calls != 2 {
		t.Errorf("%q, %v, %d calls", v.Reveal(), err, kms.calls)
	}
	if err := f.Rotate(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.Read(t.Context()); err != nil || seal.KeyOf(sealed) == s.Primary() {
		t.Errorf("after a rotation: the primary is %s, %v", s.Primary(), err)
	}
	for name, other := range map[string]seal.KMS{"no KMS": nil, "another key": newKMS(t, strings.Repeat("x", 32))} {
		if _, err := seal.New(t.Context(), seal.File{Path: f.Path, KMS: other}); err == nil {
			t.Errorf("%s reads the keyset", name)
		}
	}
}

// TestWrap encrypts a keyset in cleartext. What its keys have sealed opens, by the KMS alone.
func TestWrap(t *testing.T) {
	clear := newFile(t)
	sealed, err := newSealer(t, clear).Seal(at, []byte("value"))
	if err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(clear.Path)
	if err != nil {
		t.Fatal(err)
	}
	kms := newKMS(t, strings.Repeat("k", 32))
	f := seal.File{Path: clear.Path, KMS: kms}
	says := func(what string, err error, text string) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: %v", what, err)
		}
	}
	_, err = seal.New(t.Context(), f)
	says("a KMS, and a keyset in cleartext", err, "it is in cleartext: encrypt it with arbe secret key wrap")
	says("no KMS", clear.Wrap(t.Context()), "no KMS")
	kms.away = errors.New("no route to it")
	says("the KMS is away", f.Wrap(t.Context()), kms.away.Error())
	if after, err := os.ReadFile(f.Path); err != nil || string(after) != string(before) {
		t.Fatalf("a wrap that failed has changed the keyset: %v", err)
	}
	kms.away = nil
	if err := f.Wrap(t.Context()); err != nil {
		t.Fatal(err)
	}
	says("a second time", f.Wrap(t.Context()), "a key management service has encrypted it")
	_, err = seal.New(t.Context(), clear)
	says("without the KMS", err, "a key management service has encrypted it: name its key with --secret-kms")
	if v, err := newSealer(t, f).Open(t.Context(), at, sealed); err != nil || v.Reveal() != "value" {
		t.Errorf("%v", err)
	}
	var had struct {
		Key []struct{ KeyData struct{ Value string } }
	}
	if err := json.Unmarshal(before, &had); err != nil || len(had.Key) != 1 || len(had.Key[0].KeyData.Value) < 40 {
		t.Fatalf("%v in a keyset in cleartext", err)
	}
	if after, err := os.ReadFile(f.Path); err != nil || strings.Contains(string(after), had.Key[0].KeyData.Value) {
		t.Errorf("the file has the key in cleartext: %v", err)
	}
}

// TestKMSAway loses the KMS. What was read opens on. A value of an unknown key asks nothing while the file is as it
// was, and once a second after a rotation, until the KMS is there again.
func TestKMSAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kms := newKMS(t, strings.Repeat("k", 32))
		f := seal.File{Path: filepath.Join(t.TempDir(), "keys"), KMS: kms}
		if err := f.Create(t.Context()); err != nil {
			t.Fatal(err)
		}
		s := newSealer(t, f)
		opens := func(sealed []byte) error {
			_, err := s.Open(t.Context(), at, sealed)
			return err
		}
		value := func(f seal.File) []byte {
			sealed, err := newSealer(t, f).Seal(at, []byte("value"))
			if err != nil {
				t.Fatal(err)
			}
			return sealed
		}
		sealed, foreign := value(f), value(newFile(t))
		away := errors.New("no route to it") // Tink wraps no error of a KMS
		isAway := func(err error) bool { return err != nil && strings.Contains(err.Error(), away.Error()) }
		kms.away, kms.calls = away, 0
		if err := opens(foreign); !errors.Is(err, seal.ErrUnknownKey) || kms.calls != 0 {
			t.Errorf("an unknown key: %v, %d calls", err, kms.calls)
		}
		kms.away = nil
		if err := f.Rotate(t.Context()); err != nil {
			t.Fatal(err)
		}
		rotated := value(f)
		kms.away, kms.calls = away, 0
		for second := range 3 {
			for range 10 {
				if err := opens(rotated); !isAway(err) || kms.calls != second+1 {
					t.Errorf("the key of a rotation: %v after %d calls", err, kms.calls)
				}
				if err := opens(sealed); err != nil {
					t.Error(err)
				}
			}
			time.Sleep(time.Second)
		}
		if err := s.Read(t.Context()); !isAway(err) {
			t.Errorf("got %v", err)
		}
		kms.away = nil
		if err := opens(rotated); err != nil {
			t.Errorf("with the KMS again: %v", err)
		}
	})
}
