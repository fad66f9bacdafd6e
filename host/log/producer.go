package log

// Producer is a request of an idempotent producer of the Durable Streams protocol. A stream keeps the last one of each
// producer that it accepted.
type Producer struct {
	ID    string `json:"id"`
	Epoch int64  `json:"epoch"`
	Seq   int64  `json:"seq"`
}

// accept decides about request p of a producer whose last accepted request is last, nil for none. It reports a
// duplicate, or returns a *StaleEpochError, ErrEpoch or a *GapError.
func (p *Producer) accept(last *Producer) (duplicate bool, err error) {
	if last == nil {
		if p.Seq != 0 {
			return false, &GapError{Want: 0, Got: p.Seq}
		}
		return false, nil
	}
	switch {
	case p.Epoch < last.Epoch:
		return false, &StaleEpochError{last.Epoch}
	case p.Epoch > last.Epoch && p.Seq != 0:
		return false, ErrEpoch
	case p.Epoch > last.Epoch:
		return false, nil
	case p.Seq <= last.Seq:
		return true, nil
	case p.Seq > last.Seq+1:
		return false, &GapError{Want: last.Seq + 1, Got: p.Seq}
	}
	return false, nil
}
