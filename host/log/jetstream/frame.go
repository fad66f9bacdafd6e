package jetstream

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

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
func (f *frame) size() (n int) {
	for _, r := range f.records {
		n += len(r.Data)
	}
	return n
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
