package view

import (
	"encoding/base64"
	"iter"
	"net/http"

	"arbe.0sk.ar/runner/thread"
)

// ImageData returns the n-th image of an entry, and its type as its first bytes have it: image/png, image/jpeg,
// image/gif or image/webp. ok is false for any other, whatever type the writer gave: an SVG can have a script in it.
func ImageData(e thread.Entry, n int) (mime string, data []byte, ok bool) {
	for i, encoded := range encodedImages(e) {
		if i == n {
			mime, data = decodeImage(encoded)
			return mime, data, mime != ""
		}
	}
	return "", nil, false
}

// EachImage returns the images of an entry in their order, each as ImageData returns it. The type is "" for one that
// must not be shown.
func EachImage(e thread.Entry) iter.Seq2[string, []byte] {
	return func(yield func(string, []byte) bool) {
		for _, encoded := range encodedImages(e) {
			if !yield(decodeImage(encoded)) {
				return
			}
		}
	}
}

// encodedImages returns the base64 of the images of an entry.
func encodedImages(e thread.Entry) (all []string) {
	m := maker{entry: e, line: thread.ParseLine(e.Payload)}
	for _, b := range m.message().Content {
		if b.Type == "image" {
			all = append(all, b.Data)
		}
	}
	return all
}

// decodeImage returns an image and its type; "" for one of a type that must not be shown.
func decodeImage(encoded string) (mime string, data []byte) {
	data, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return "", nil
	}
	switch mime := http.DetectContentType(data); mime {
	case "image/png", "image/jpeg", "image/gif", "image/webp":
		return mime, data
	}
	return "", nil
}
