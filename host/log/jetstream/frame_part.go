package jetstream

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
	"slices"
	"time"

	"arbe.0sk.ar/runner/host/log/engine"
)

// part is one message of a frame, decoded.
type part struct {
	id     frameID
	last   bool
	index  int // of a piece
	count  int // of messages, in the last one
	born   uint64
	data   uint64
	number int // of records
	size   int // of the body
	state  []byte
	chunk  []byte // of the body
}

// decodePart decodes a message. State and chunk share payload's memory.
func decodePart(payload []byte) (p part, err error) {
	if len(payload) < pieceStart || binary.BigEndian.Uint32(payload[1:]) != crc32.Checksum(payload[5:], castagnoli) {
		return p, errFrame
	}
	copy(p.id[:], payload[5:])
	number := int(binary.BigEndian.Uint32(payload[frameStart:]))
	rest := payload[pieceStart:]
	switch payload[0] {
	case framePiece:
		p.index, p.chunk = number, rest
		return p, nil
	case frameLast:
		d := decoder{rest: rest}
		p.last, p.count = true, number
		p.born, p.data = d.number(), d.number()
		p.number, p.size = d.count(math.MaxInt32), d.count(math.MaxInt)
		p.state = d.nilText()
		p.chunk = d.rest
		if d.bad || p.count < 1 {
			return part{}, errFrame
		}
		return p, nil
	}
	return part{}, fmt.Errorf("%w: kind %d, perhaps of a later program", errFrame, payload[0])
}

// frame decodes a frame from its last part and the chunks of the parts before it. The data of its records may share the
// message's memory.
func (p *part) frame(before [][]byte) (*frame, error) {
	body := p.chunk
	if len(before) > 0 {
		body = slices.Concat(append(before, p.chunk)...)
	}
	if !p.last || p.count != len(before)+1 || p.size != len(body) {
		return nil, errFrame
	}
	f := &frame{id: p.id, born: p.born, data: p.data, state: p.state}
	d := decoder{rest: body}
	if p.number > 0 && p.number <= len(body) {
		f.records = make([]engine.Record, 0, p.number)
	}
	for range p.number {
		at, key, data := d.number(), d.text(), d.text()
		if d.bad {
			return nil, errFrame
		}
		f.records = append(f.records, engine.Record{At: time.UnixMilli(int64(at)), Key: string(key), Data: data})
	}
	for range d.count(len(d.rest)) {
		name, value := d.text(), d.nilText()
		if f.values == nil {
			f.values = map[string][]byte{}
		}
		f.values[string(name)] = value
	}
	for range d.count(len(d.rest)) {
		hash, seq := keyHash(d.take(len(keyHash{}))), d.number()
		if f.gone == nil {
			f.gone = map[keyHash]uint64{}
		}
		f.gone[hash] = seq
	}
	if d.bad || len(d.rest) > 0 {
		return nil, errFrame
	}
	return f, nil
}

// decoder decodes what the append functions wrote. Once data is missing it is bad, and returns zeros.
type decoder struct {
	rest []byte
	bad  bool
}

func (d *decoder) number() uint64 {
	n, size := binary.Uvarint(d.rest)
	if size <= 0 || d.bad {
		d.bad, d.rest = true, nil
		return 0
	}
	d.rest = d.rest[size:]
	return n
}

// count decodes a number of at most most.
func (d *decoder) count(most int) int {
	n := d.number()
	if n > uint64(most) {
		d.bad, d.rest = true, nil
		return 0
	}
	return int(n)
}

// take returns n bytes, of zeros if there are not as many.
func (d *decoder) take(n int) []byte {
	if n > len(d.rest) {
		d.bad, d.rest = true, nil
		return make([]byte, n)
	}
	b := d.rest[:n:n]
	d.rest = d.rest[n:]
	return b
}

func (d *decoder) text() []byte { return d.take(d.count(len(d.rest))) }

func (d *decoder) nilText() []byte {
	n := d.count(len(d.rest) + 1)
	if n == 0 {
		return nil
	}
	return d.take(n - 1)
}
