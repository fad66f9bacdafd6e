package jetstream

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"slices"
	"time"

	"arbe.0sk.ar/runner/host/log/engine"
)

// frame is one append as JetStream stores it: the payload of one message, or of several in a row if it is too large for
// one. The last message has all that a head needs, so that a head is read from one message.
//
//	message   kind (1 byte), CRC32C of the rest (4), id (16), then
//	  piece   its index (4), a part of the body
//	  last    number of messages (4), born, data, number of records, size of the body, state, the rest of the body
//	body      records: time in ms, key, data; values: name, value; keys of removed records: hash (16), seq
//
// Numbers of fixed size are big endian, all others are uvarints. Text has its length before it. Text that can be nil
// has its length + 1, or 0 for nil.
type frame struct {
	id      frameID
	born    uint64 // seq of the stream's first append; 0 if that is this one
	data    uint64 // seq of the last record before this append
	state   []byte
	records []engine.Record
	values  map[string][]byte
	gone    map[keyHash]uint64 // keys of removed records, with the records' seqs
}

// frameID identifies an append.
type frameID [16]byte

// newFrameID returns a random id. Without randomness the process ends.
func newFrameID() (id frameID) {
	_, _ = rand.Read(id[:])
	return id
}

// keyHash identifies a key: the first half of its SHA-256. No two keys with the same hash can be found.
type keyHash [16]byte

func hashKey(key string) keyHash {
	sum := sha256.Sum256([]byte(key))
	return keyHash(sum[:16])
}

const (
	framePiece = 0x01
	frameLast  = 0x02

	frameStart = 1 + 4 + len(frameID{})
	pieceStart = frameStart + 4
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// errFrame is the error of a message that is no frame, or has changed since it was written.
var errFrame = errors.New("message is no frame, or a damaged one")

// size is the number of bytes of the records' data.
func (f *frame) size() int { return sizeOf(f.records) }

func sizeOf(records []engine.Record) (n int) {
	for _, r := range records {
		n += len(r.Data)
	}
	return n
}

// at returns the records as Read does: at the frame's seq, without their keys.
func (f *frame) at(seq uint64) []engine.Record {
	records := make([]engine.Record, len(f.records))
	for i, r := range f.records {
		records[i] = engine.Record{Seq: seq, At: r.At, Data: r.Data}
	}
	return records
}

// encodedFrame is a frame that is encoded, to be cut into messages.
type encodedFrame struct {
	id    frameID
	most  int // bytes of a message
	count int // number of messages
	head  []byte
	body  []byte
}

// encode encodes a frame for messages of at most most bytes.
func (f *frame) encode(most int) (*encodedFrame, error) {
	e := &encodedFrame{id: f.id, most: most, count: 1, body: f.encodeBody()}
	head := binary.AppendUvarint(nil, f.born)
	head = binary.AppendUvarint(head, f.data)
	head = binary.AppendUvarint(head, uint64(len(f.records)))
	head = binary.AppendUvarint(head, uint64(len(e.body)))
	e.head = appendNilText(head, f.state)
	room := most - pieceStart - len(e.head)
	if room < 0 {
		return nil, fmt.Errorf("a state of %d bytes does not fit into a message of %d bytes", len(f.state), most)
	}
	if rest := len(e.body) - room; rest > 0 {
		chunk := most - pieceStart
		e.count += (rest + chunk - 1) / chunk
	}
	return e, nil
}

func (f *frame) encodeBody() []byte {
	size := 64
	for _, r := range f.records {
		size += len(r.Key) + len(r.Data) + 24
	}
	b := make([]byte, 0, size)
	for _, r := range f.records {
		b = binary.AppendUvarint(b, uint64(max(r.At.UnixMilli(), 0)))
		b = appendText(b, []byte(r.Key))
		b = appendText(b, r.Data)
	}
	b = binary.AppendUvarint(b, uint64(len(f.values)))
	for name, value := range f.values {
		b = appendText(b, []byte(name))
		b = appendNilText(b, value)
	}
	b = binary.AppendUvarint(b, uint64(len(f.gone)))
	for hash, seq := range f.gone {
		b = append(b, hash[:]...)
		b = binary.AppendUvarint(b, seq)
	}
	return b
}

// message returns the payload of message i, of which the last is count-1.
func (e *encodedFrame) message(i int) []byte {
	chunk := e.most - pieceStart
	kind, number, head, rest := byte(framePiece), i, []byte(nil), e.body[min(i*chunk, len(e.body)):]
	if i == e.count-1 {
		kind, number, head = frameLast, e.count, e.head
	} else {
		rest = rest[:min(chunk, len(rest))]
	}
	b := make([]byte, frameStart, pieceStart+len(head)+len(rest))
	b[0] = kind
	copy(b[5:], e.id[:])
	b = binary.BigEndian.AppendUint32(b, uint32(number))
	b = append(b, head...)
	b = append(b, rest...)
	binary.BigEndian.PutUint32(b[1:], crc32.Checksum(b[5:], castagnoli))
	return b
}

func appendText(b, text []byte) []byte {
	return append(binary.AppendUvarint(b, uint64(len(text))), text...)
}

func appendNilText(b, text []byte) []byte {
	if text == nil {
		return append(b, 0)
	}
	return append(binary.AppendUvarint(b, uint64(len(text))+1), text...)
}

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
