package stream

import (
	"net/http"
	"strconv"
	"unicode/utf8"
)

// producer is where an idempotent producer of the Durable Streams protocol stands: its last request that was accepted.
type producer struct {
	ID    string `json:"id"`
	Epoch int64  `json:"epoch"`
	Seq   int64  `json:"seq"`
}

// maxNumber is the largest number that every client can hold.
const maxNumber = 1<<53 - 1

// parseProducer reads the three headers; nil where none is there.
func parseProducer(h http.Header) (*producer, error) {
	id, epoch, seq := h.Values(headerProducerID), h.Values(headerProducerEpoch), h.Values(headerProducerSeq)
	if len(id)+len(epoch)+len(seq) == 0 {
		return nil, nil
	}
	if len(id) != 1 || len(epoch) != 1 || len(seq) != 1 || id[0] == "" || len(id[0]) > 256 || !utf8.ValidString(id[0]) {
		return nil, refuse(http.StatusBadRequest, "producer", "want %s (1 to 256 bytes of UTF-8), %s and %s, each once",
			headerProducerID, headerProducerEpoch, headerProducerSeq)
	}
	p := &producer{ID: id[0]}
	for name, to := range map[string]*int64{headerProducerEpoch: &p.Epoch, headerProducerSeq: &p.Seq} {
		n, ok := parseDecimal(h.Get(name))
		if !ok {
			return nil, refuse(http.StatusBadRequest, "producer", "%s: want a number from 0 to 2^53-1", name)
		}
		*to = n
	}
	return p, nil
}

// parseDecimal reads a number of digits only, without leading zeros.
func parseDecimal(s string) (int64, bool) {
	n, err := strconv.ParseInt(s, 10, 64)
	return n, err == nil && n >= 0 && n <= maxNumber && strconv.FormatInt(n, 10) == s
}

// accept says what becomes of request p of a producer that stands at last, nil for one that is new: whether it is a duplicate, or why it is refused.
func (p *producer) accept(last *producer) (duplicate bool, refused *problem) {
	if last == nil {
		if p.Seq != 0 {
			return false, p.gap(0)
		}
		return false, nil
	}
	switch {
	case p.Epoch < last.Epoch:
		refused = refuse(http.StatusForbidden, "stale_epoch", "the producer has a later epoch")
		refused.header = map[string]string{headerProducerEpoch: strconv.FormatInt(last.Epoch, 10)}
		return false, refused
	case p.Epoch > last.Epoch && p.Seq != 0:
		return false, refuse(http.StatusBadRequest, "producer", "a new epoch begins with %s 0", headerProducerSeq)
	case p.Epoch > last.Epoch:
		return false, nil
	case p.Seq <= last.Seq:
		return true, nil
	case p.Seq > last.Seq+1:
		return false, p.gap(last.Seq + 1)
	}
	return false, nil
}

// gap says that requests before this one are missing.
func (p *producer) gap(want int64) *problem {
	refused := refuse(http.StatusConflict, "producer_gap", "requests of the producer are missing before this one")
	refused.header = map[string]string{
		headerProducerExpected: strconv.FormatInt(want, 10), headerProducerReceived: strconv.FormatInt(p.Seq, 10),
	}
	return refused
}
