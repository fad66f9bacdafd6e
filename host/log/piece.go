package log

import (
	"bytes"
	"slices"

	"arbe.0sk.ar/runner/host/log/engine"
	"arbe.0sk.ar/runner/internal/jsonscan"
	"arbe.0sk.ar/runner/thread"
)

// selects reports whether types have the type of a stored entry. It reads the entry up to its type.
func selects(types thread.Types, data []byte) bool { return types.All() || types.Has(typeOf(data)) }

// typeOf returns the payload type of a stored entry; "" for a message that is no entry.
func typeOf(data []byte) string {
	i := jsonscan.Find(data, "payload")
	if i < 0 {
		return ""
	}
	return thread.TypeOf(data[i:])
}

// Bounds are those of a Piece.
type Bounds struct {
	Types   thread.Types
	Records int // at most this many
	Bytes   int // of the records' data and entryRoom each, unless the only record has more
}

// entryRoom is how many bytes an answer has for each entry besides its data.
const entryRoom = len(`,"at":"2006-01-02T15:04:05.000Z"` + "\n")

// Piece is a part of a stream: of the records between two places those that the Bounds let pass, in the stream's order.
type Piece struct {
	Records []engine.Record
	Prev    Offset // the piece begins here
	Next    Offset // and ends here
	Size    int    // bytes of the Records that count for the Bounds
	full    bool   // the record next to the piece has no room in it
}

// Full reports whether the bounds leave no room for another record.
func (p *Piece) Full(b Bounds) bool {
	return p.full || len(p.Records) >= b.Records || p.Size >= b.Bytes
}

// Add adds the records that follow the piece: what Read returned for the Seq of Next, up to tail. It has whole appends,
// and is empty where no record follows up to tail.
func (p *Piece) Add(records []engine.Record, tail uint64, b Bounds) {
	if len(records) == 0 {
		p.Next = Offset{Seq: tail}
		return
	}
	part, had, from := parts(records), len(p.Records), p.Next
	for i, r := range records {
		next := behind(records, part, i)
		if r.Seq == from.Seq+1 && part[i] < from.Part {
			if next.Part == 0 {
				p.Next = next
			}
			continue
		}
		if selects(b.Types, r.Data) && !p.take(r, b) {
			break
		}
		p.Next = next
	}
	release(p.Records[had:], records)
}

// AddBack adds the records that precede the piece: what ReadBack returned for the UpTo of Prev. It has whole appends,
// and is empty where no record precedes.
func (p *Piece) AddBack(records []engine.Record, b Bounds) {
	if len(records) == 0 {
		p.Prev = Offset{}
		return
	}
	part, after, until := parts(records), p.Records, p.Prev
	p.Records = slices.Clone(after)
	slices.Reverse(p.Records)
	for i, r := range slices.Backward(records) {
		if r.Seq <= until.Seq || part[i] < until.Part {
			if selects(b.Types, r.Data) && !p.take(r, b) {
				break
			}
		}
		p.Prev = before(records, part, i)
	}
	slices.Reverse(p.Records)
	release(p.Records[:len(p.Records)-len(after)], records)
}

// take adds a record that fits the bounds, and reports whether it did.
func (p *Piece) take(r engine.Record, b Bounds) bool {
	size := len(r.Data) + entryRoom
	if len(p.Records) >= b.Records || p.Size+size > b.Bytes && len(p.Records) > 0 {
		p.full = true
		return false
	}
	p.Records, p.Size = append(p.Records, r), p.Size+size
	return true
}

// release copies the data of some of the records that were read, if they are less than half of them: records of one
// read share memory, which a piece with few of them would keep.
func release(some, read []engine.Record) {
	if sizeOf(some) >= sizeOf(read)/2 {
		return
	}
	for i := range some {
		some[i].Data = bytes.Clone(some[i].Data)
	}
}

// Offset is a place between two records of a stream: after every record whose Seq is at most Seq, and after the first
// Part of the records at Seq+1. Records of one append can share their Seq, so a place within an append needs a Part.
type Offset struct {
	Seq  uint64
	Part int
}

// UpTo returns the seq of the last record that is, in part at least, before the place.
func (o Offset) UpTo() uint64 {
	if o.Part > 0 {
		return o.Seq + 1
	}
	return o.Seq
}

// parts returns each record's number among the records with its Seq, from 0. Records has whole appends.
func parts(records []engine.Record) []int {
	p := make([]int, len(records))
	for i := 1; i < len(records); i++ {
		if records[i].Seq == records[i-1].Seq {
			p[i] = p[i-1] + 1
		}
	}
	return p
}

// before returns the place before record i of records, whose numbers are p.
func before(records []engine.Record, p []int, i int) Offset { return Offset{records[i].Seq - 1, p[i]} }

// behind returns the place behind record i of records, whose numbers are p.
func behind(records []engine.Record, p []int, i int) Offset {
	if i+1 < len(records) && p[i+1] > 0 {
		return Offset{records[i].Seq - 1, p[i] + 1}
	}
	return Offset{records[i].Seq, 0}
}
