package view

import (
	"encoding/base64"
	"net/http"

	"arbe.0sk.ar/runner/thread"
)

// ImageData returns the n-th image of an entry, and its type as its first bytes have it: image/png, image/jpeg,
// image/gif or image/webp. ok is false for any other, whatever type the writer gave: an SVG can have a script in it.
func ImageData(e thread.Entry, n int) (mime string, data []byte, ok bool) {
	m := maker{entry: e, line: thread.ParseLine(e.Payload)}
	for _, b := range m.message().Content {
		if b.Type != "image" {
			continue
		}
		if n > 0 {
			n--
			continue
		}
		data, err := base64.StdEncoding.DecodeString(b.Data)
		if err != nil {
			return "", nil, false
		}
		switch mime := http.DetectContentType(data); mime {
		case "image/png", "image/jpeg", "image/gif", "image/webp":
			return mime, data, true
		}
		return "", nil, false
	}
	return "", nil, false
}
