package pebble

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"time"

	"arbe.0sk.ar/runner/host/log/engine"
)

// Keys of the store, where N is keyName of a stream's name:
//
//	e N NUL seq    a record
//	i N NUL key    the seq of the record with that key
//	s N NUL        the stream's state
//	v N NUL name   one of its values
//	d N NUL        the last seq of a deleted stream
//	F              the number of the format
//
// seq is 8 bytes, big endian, and counts a stream's appends and records from 1.
const (
	kindRecord = 'e'
	kindKey    = 'i'
	kindState  = 's'
	kindValue  = 'v'
	kindGone   = 'd'
	keyFormat  = "F"
)

// threads is the prefix of most streams' names. Format 1 had only such streams, and left the prefix out.
const threads = "arbe-thread-"

// keyName is a stream's name in keys: a thread's id, which has no "/", or "/" and the name of another stream.
func keyName(stream string) []byte {
	if id, ok := strings.CutPrefix(stream, threads); ok && !strings.Contains(id, "/") {
		return []byte(id)
	}
	return append([]byte{'/'}, stream...)
}

// streamName is keyName's inverse.
func streamName(name []byte) string {
	if len(name) > 0 && name[0] == '/' {
		return string(name[1:])
	}
	return threads + string(name)
}

func textKey(kind byte, name []byte, text string) []byte {
	key := make([]byte, 0, 2+len(name)+len(text))
	key = append(key, kind)
	key = append(key, name...)
	key = append(key, 0)
	return append(key, text...)
}

func stateKey(name []byte) []byte { return textKey(kindState, name, "") }

func recordKey(name []byte, seq uint64) []byte {
	key := make([]byte, 0, 10+len(name))
	key = append(key, kindRecord)
	key = append(key, name...)
	return binary.BigEndian.AppendUint64(append(key, 0), seq)
}

// keySeq is the seq in a record's key.
func keySeq(key []byte) uint64 { return binary.BigEndian.Uint64(key[len(key)-8:]) }

// keyNameOf is the name in a record's key.
func keyNameOf(key []byte) []byte { return key[1 : len(key)-9] }

func seqValue(v []byte) (uint64, error) {
	if len(v) != 8 {
		return 0, fmt.Errorf("a seq of %d bytes: %w", len(v), errDamaged)
	}
	return binary.BigEndian.Uint64(v), nil
}

var errDamaged = errors.New("the log is damaged")

// A record is stored as its time of receipt in milliseconds since 1970 (8 bytes, big endian, of which the first is 0
// until the year 2285428), and its data. An append without records is stored as control and the seq of the record
// before it.
const control = 1

// recordSize is the number of bytes that appendRecord appends.
func recordSize(r engine.Record) int { return 8 + len(r.Data) }

func appendRecord(b []byte, r engine.Record) []byte { return append(stampTime(b, r.At), r.Data...) }

func appendControl(b []byte, data uint64) []byte {
	return binary.BigEndian.AppendUint64(append(b, control), data)
}

// controlValue returns the seq in a control; false for a record.
func controlValue(v []byte) (data uint64, is bool, err error) {
	if len(v) == 0 || v[0] != control {
		return 0, false, nil
	}
	data, err = seqValue(v[1:])
	return data, true, err
}

// parseRecord decodes the value stored at seq. The record's data shares its memory.
func parseRecord(seq uint64, value []byte) (r engine.Record, isControl bool, err error) {
	if bytes.HasPrefix(value, []byte{control}) {
		_, _, err := controlValue(value)
		return engine.Record{}, true, err
	}
	if len(value) < 8 || value[0] != 0 {
		return engine.Record{}, false, fmt.Errorf("record %d of %d bytes: %w", seq, len(value), errDamaged)
	}
	return engine.Record{Seq: seq, At: time.UnixMilli(int64(binary.BigEndian.Uint64(value))), Data: value[8:]}, false,
		nil
}

// stampTime appends t as it is stored. A time before 1970 is stored as 1970.
func stampTime(b []byte, t time.Time) []byte {
	return binary.BigEndian.AppendUint64(b, uint64(max(t.UnixMilli(), 0)))
}
