package streams

import (
	"net/http"
	"strconv"
	"strings"
	"unicode/utf8"

	"arbe.0sk.ar/runner/host/log"
	"arbe.0sk.ar/runner/host/server/request"
	"arbe.0sk.ar/runner/host/token"
	"arbe.0sk.ar/runner/thread"
)

// post serves POST.
func (a *API) post(w http.ResponseWriter, r *http.Request, name string, g token.Grant) error {
	p := log.Post{Close: strings.EqualFold(r.Header.Get(request.HeaderClosed), "true"), Writer: a.WriterOf(g)}
	var err error
	if p.Seq, err = parseSeq(r.Header); err != nil {
		return err
	}
	if p.Producer, err = parseProducer(r.Header); err != nil {
		return err
	}
	l := a.Lease(r, g)
	defer l.Free()
	if p.Body, err = request.ReadBody(w, r, thread.MaxBody, l); err == nil {
		err = a.Spend(g, len(p.Body))
	}
	if err != nil {
		return err
	}
	if given := r.Header.Get("Content-Type"); given != "" {
		if p.Type, err = mediaType(given); err != nil {
			return err
		}
	}
	if len(p.Body) == 0 && !p.Close {
		return request.Refuse(http.StatusBadRequest, "empty", "the body is empty")
	}
	if len(p.Body) > 0 && p.Type == "" {
		return request.Refuse(http.StatusBadRequest, "content_type", "want the stream's Content-Type")
	}
	out, err := a.Log.Post(r.Context(), name, p)
	if err != nil {
		return err
	}
	h := w.Header()
	h.Set(request.HeaderNext, request.Offset(out.Stream.Tail()))
	if out.Stream.Closed {
		h.Set(request.HeaderClosed, "true")
	}
	status := http.StatusNoContent
	if out.Last != nil {
		h.Set(request.HeaderProducerEpoch, strconv.FormatInt(out.Last.Epoch, 10))
		h.Set(request.HeaderProducerSeq, strconv.FormatInt(out.Last.Seq, 10))
		if !out.Duplicate && len(p.Body) > 0 {
			status = http.StatusOK
		}
	}
	w.WriteHeader(status)
	return nil
}

// maxSeq is the longest Stream-Seq, in bytes. A stream's state has the last one.
const maxSeq = 256

// parseSeq parses Stream-Seq; "" for none. It has to be UTF-8, since the state keeps it as JSON text.
func parseSeq(h http.Header) (string, error) {
	given := h.Values(request.HeaderSeq)
	if len(given) == 0 {
		return "", nil
	}
	if len(given) > 1 || given[0] == "" || len(given[0]) > maxSeq || !utf8.ValidString(given[0]) {
		return "", request.Refuse(http.StatusBadRequest, "header", "%s: want 1 to %d bytes of UTF-8, once",
			request.HeaderSeq, maxSeq)
	}
	return given[0], nil
}

// maxNumber is the largest integer that JavaScript clients hold exactly.
const maxNumber = 1<<53 - 1

// parseProducer parses the three headers of a producer; nil without them.
func parseProducer(h http.Header) (*log.Producer, error) {
	id, epoch, seq := h.Values(request.HeaderProducerID), h.Values(request.HeaderProducerEpoch),
		h.Values(request.HeaderProducerSeq)
	if len(id)+len(epoch)+len(seq) == 0 {
		return nil, nil
	}
	if len(id) != 1 || len(epoch) != 1 || len(seq) != 1 || id[0] == "" || len(id[0]) > 256 ||
		!utf8.ValidString(id[0]) {
		return nil, request.Refuse(http.StatusBadRequest, "producer",
			"want %s (1 to 256 bytes of UTF-8), %s and %s, each once", request.HeaderProducerID,
			request.HeaderProducerEpoch, request.HeaderProducerSeq)
	}
	p := &log.Producer{ID: id[0]}
	for name, to := range map[string]*int64{request.HeaderProducerEpoch: &p.Epoch, request.HeaderProducerSeq: &p.Seq} {
		n, ok := parseDecimal(h.Get(name))
		if !ok {
			return nil, request.Refuse(http.StatusBadRequest, "producer", "%s: want a number from 0 to 2^53-1", name)
		}
		*to = n
	}
	return p, nil
}

// parseDecimal parses digits without leading zeros, up to maxNumber.
func parseDecimal(s string) (int64, bool) {
	n, err := strconv.ParseInt(s, 10, 64)
	return n, err == nil && n >= 0 && n <= maxNumber && strconv.FormatInt(n, 10) == s
}
