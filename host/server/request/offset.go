package request

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"arbe.0sk.ar/runner/host/log"
)

// Headers of the Durable Streams protocol.
const (
	HeaderNext             = "Stream-Next-Offset"
	HeaderPrev             = "Stream-Prev-Offset" // of the thread API alone
	HeaderUpToDate         = "Stream-Up-To-Date"
	HeaderCursor           = "Stream-Cursor"
	HeaderClosed           = "Stream-Closed"
	HeaderTTL              = "Stream-TTL"
	HeaderExpires          = "Stream-Expires-At"
	HeaderSeq              = "Stream-Seq"
	HeaderForkedFrom       = "Stream-Forked-From"
	HeaderForkOffset       = "Stream-Fork-Offset"
	HeaderForkSub          = "Stream-Fork-Sub-Offset"
	HeaderForkToken        = "Stream-Fork-Authorization" // not in the protocol: a bearer token that may read the source
	HeaderEncoding         = "Stream-Sse-Data-Encoding"
	HeaderProducerID       = "Producer-Id"
	HeaderProducerEpoch    = "Producer-Epoch"
	HeaderProducerSeq      = "Producer-Seq"
	HeaderProducerExpected = "Producer-Expected-Seq"
	HeaderProducerReceived = "Producer-Received-Seq"
)

// ParseOffset parses the offset behind which to read.
func ParseOffset(given []string, tail uint64) (log.Offset, error) {
	if len(given) > 1 {
		return log.Offset{}, Refuse(http.StatusBadRequest, "query", "more than one offset")
	}
	if len(given) == 0 {
		return log.Offset{}, nil
	}
	if given[0] == "now" {
		return log.Offset{Seq: tail}, nil
	}
	at, ok := ParsePlace(given[0])
	switch {
	case !ok:
		return at,
			Refuse(http.StatusBadRequest, "offset", "offset %.40q is none of this stream's: want 0, -1, now or a %s",
				given[0], HeaderNext)
	case at.Seq > tail || at.Seq == tail && at.Part > 0:
		return at, Refuse(http.StatusBadRequest, "beyond_tail", "offset %.40s is beyond the stream's end, %s: "+
			"the stream is another one, or was restored from an older backup; read it from 0",
			given[0], Offset(tail)).With(HeaderNext, Offset(tail))
	}
	return at, nil
}

// partDigits is how many digits of an offset have its Part.
const partDigits = 6

// ParsePlace parses an offset. The zeros with a line between are the start in other servers of the protocol.
func ParsePlace(s string) (log.Offset, bool) {
	switch s {
	case "0", "-1", "0000000000000000_0000000000000000":
		return log.Offset{}, true
	}
	seq, part, within := strings.Cut(s, "_")
	n, err := strconv.ParseUint(seq, 10, 63)
	if err != nil || len(seq) != 20 || within && len(part) != partDigits {
		return log.Offset{}, false
	}
	if !within {
		return log.Offset{Seq: n}, true
	}
	k, err := strconv.ParseUint(part, 10, 31)
	return log.Offset{Seq: n, Part: int(k)}, err == nil
}

// Place returns a place in a stream as clients have it: opaque, and sorted as text.
func Place(o log.Offset) string {
	if o.Part == 0 {
		return Offset(o.Seq)
	}
	return fmt.Sprintf("%s_%0*d", Offset(o.Seq), partDigits, o.Part)
}

// Offset is Place for the end of an append.
func Offset(seq uint64) string { return fmt.Sprintf("%020d", seq) }

// SetNext sets the headers about the place where an answer ends.
func SetNext(h http.Header, v log.Stream, next log.Offset) {
	h.Set(HeaderNext, Place(next))
	if next.Seq < v.Tail() {
		return
	}
	h.Set(HeaderUpToDate, "true")
	if v.Closed {
		h.Set(HeaderClosed, "true")
	}
}
