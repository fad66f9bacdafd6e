package log

import "arbe.0sk.ar/runner/host/log/engine"

// Offset is a place between two records of a stream: after every record whose Seq is at most Seq, and after the first
// Part of the records at Seq+1. Records of one append can share their Seq, so a place within an append needs a Part.
type Offset struct {
	Seq  uint64
	Part int
}

// Beyond reports whether the place is behind the stream's end.
func (o Offset) Beyond(v Stream) bool { return o.Seq > v.Tail() || o.Seq == v.Tail() && o.Part > 0 }

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
