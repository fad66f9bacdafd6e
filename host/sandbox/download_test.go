package sandbox_test

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"arbe.0sk.ar/runner/host/sandbox"
)

func TestDownload(t *testing.T) {
	each(t, func(t *testing.T, h *house) {
		b := h.create(t, sandbox.Options{})
		content := bytes.Repeat([]byte("\x00\x02\x02\x02 any bytes \n"), 100_000)
		if err := b.Upload(t.Context(), sandbox.File{
			Path: "a/file", InHome: true, Content: bytes.NewReader(content),
			Size: int64(len(content)),
		}); err != nil {
			t.Fatal(err)
		}
		var got bytes.Buffer
		if err := b.Download(t.Context(), "a/file", &got); err != nil || !bytes.Equal(got.Bytes(), content) {
			t.Errorf("%d bytes of %d, %v", got.Len(), len(content), err)
		}
		if err := b.Download(t.Context(), "a/none", &got); err == nil {
			t.Error("a file that is not there was downloaded")
		}
		if run(t, b, `mkfifo "$HOME/a/fifo"`); h.fake == nil {
			if err := b.Download(t.Context(), "a/fifo", &got); err == nil {
				t.Error("a fifo was downloaded")
			}
		}
		var confined *sandbox.ConfinedError
		for _, path := range []string{"../x", "/etc/passwd", "", "a/.."} {
			if err := b.Download(t.Context(), path, &got); !errors.As(err, &confined) {
				t.Errorf("%q: %v", path, err)
			}
		}
		if err := h.Destroy(t.Context(), b.Ref().ID); err != nil {
			t.Fatal(err)
		}
		if err := b.Download(t.Context(), "a/file", &got); !errors.Is(err, sandbox.ErrGone) {
			t.Error("from a box that is gone:", err)
		}
		if err := h.Destroy(t.Context(), b.Ref().ID); err != nil {
			t.Error("released twice:", err)
		}
		for _, id := range []string{"", "../x", "a/b", fmt.Sprintf("%0200d", 1)} {
			if err := h.Destroy(t.Context(), id); err == nil {
				t.Errorf("released %q", id)
			}
		}
	})
}
