package index

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unique"

	"arbe.0sk.ar/runner/thread"
)

// A row is stored as its numbers, its strings with their lengths, the thread's summary with its length, and the
// thread's state. Both are JSON.
const (
	rowNumbers  = 8 + 8 + 8 + 1
	mostHarness = 100
)

// encodeRow returns the stored form of a row, and of its thread's summary and state.
func encodeRow(r row, summary, state []byte) []byte {
	harness := r.harness.Value()
	b := make([]byte, 0, rowNumbers+6+len(harness)+len(r.born)+len(summary)+len(state))
	b = binary.BigEndian.AppendUint64(b, uint64(r.started))
	b = binary.BigEndian.AppendUint64(b, r.offset)
	b = binary.BigEndian.AppendUint64(b, r.last)
	b = append(b, r.status, byte(len(harness)))
	b = append(append(b, harness...), byte(len(r.born)))
	b = binary.BigEndian.AppendUint32(append(b, r.born...), uint32(len(summary)))
	return append(append(b, summary...), state...)
}

var errShort = errors.New("a stored row is too short")

// decodeRow returns a stored row, without its id and place, and the summary and the state behind it.
func decodeRow(b []byte) (r *row, summary, state []byte, err error) {
	if len(b) < rowNumbers+1 {
		return nil, nil, nil, errShort
	}
	r = &row{
		started: int64(binary.BigEndian.Uint64(b)), offset: binary.BigEndian.Uint64(b[8:]),
		last: binary.BigEndian.Uint64(b[16:]), status: b[24],
	}
	b = b[rowNumbers:]
	var harness string
	for _, to := range []*string{&harness, &r.born} {
		if len(b) == 0 || len(b) < 1+int(b[0]) {
			return nil, nil, nil, errShort
		}
		n := 1 + int(b[0])
		*to, b = string(b[1:n]), b[n:]
	}
	if len(b) < 4 || len(b)-4 < int(binary.BigEndian.Uint32(b)) {
		return nil, nil, nil, errShort
	}
	if int(r.status) >= len(Statuses) {
		return nil, nil, nil, errors.New("a stored row has an unknown status")
	}
	r.harness = unique.Make(harness)
	n := 4 + int(binary.BigEndian.Uint32(b))
	return r, b[4:n], b[n:], nil
}

// statusOf returns the index of a status.
func statusOf(status string) uint8 { return uint8(max(0, slices.Index(Statuses, status))) }

// compare orders rows by their start, and those of one time by their ids.
func compare(a, b *row) int {
	return cmp.Or(cmp.Compare(a.started, b.started), strings.Compare(a.id, b.id))
}

// sameAs reports whether two rows of a thread are folded up to the same record.
func (r row) sameAs(other row) bool {
	return r.offset == other.offset && r.last == other.last && r.born == other.born
}

// put replaces the row of a thread, and stores it with its summary and state. The caller holds h.mu.
func (x *Index) put(h *hot) error {
	r, s := h.row, h.state
	r.started, r.status = s.started().UnixMilli(), statusOf(s.Fold.Status())
	run, _ := s.Fold.Latest()
	r.harness = unique.Make(run.Harness[:min(len(run.Harness), mostHarness)])
	state := thread.Marshal(s)
	if len(state) > mostHotState {
		h.state = nil
	}
	if len(state) > mostState {
		state = nil
	}
	value := encodeRow(r, thread.Marshal(s.summary(r.id, offset(r.offset))), state)
	x.mu.Lock()
	at, err := x.store.write(r.id, value)
	if err == nil {
		r.place = at
		x.replace(&r)
		x.store.live += int64(at.size)
	}
	x.mu.Unlock()
	if err == nil {
		x.notify(r.id)
	}
	return err
}

// replace replaces the row of a thread, or adds it. The caller holds mu.
func (x *Index) replace(r *row) {
	if was := x.rows[r.id]; was != nil && x.ready.Load() && was.started == r.started {
		i, _ := slices.BinarySearchFunc(x.sorted, was, compare)
		x.sorted[i], x.rows[r.id] = r, r
		x.store.live -= int64(was.place.size)
		return
	}
	x.drop(r.id)
	x.rows[r.id] = r
	if x.ready.Load() {
		i, _ := slices.BinarySearchFunc(x.sorted, r, compare)
		x.sorted = slices.Insert(x.sorted, i, r)
	}
}

// remove removes a thread.
func (x *Index) remove(id string) error {
	x.mu.Lock()
	_, known := x.rows[id]
	var err error
	if known {
		if _, err = x.store.write(id, nil); err == nil {
			x.drop(id)
		}
	}
	x.mu.Unlock()
	if known && err == nil {
		x.notify(id)
	}
	return err
}

// drop removes a row, if there is one. The caller holds mu.
func (x *Index) drop(id string) {
	r := x.rows[id]
	if r == nil {
		return
	}
	delete(x.rows, id)
	if i, found := slices.BinarySearchFunc(x.sorted, r, compare); found { // not while the index is built
		x.sorted = slices.Delete(x.sorted, i, i+1)
	}
	x.store.live -= int64(r.place.size)
}

// compact rewrites the file of a store that is mostly out of use.
func (x *Index) compact() {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.store.wasteful() {
		return
	}
	rows := slices.Collect(maps.Values(x.rows))
	slices.SortFunc(rows, func(a, b *row) int { return cmp.Compare(a.place.at, b.place.at) })
	places := make([]place, len(rows))
	for i, r := range rows {
		places[i] = r.place
	}
	if err := x.store.compact(places, func(i int, to place) { rows[i].place = to }); err != nil {
		x.logger.Warn("compact the index of threads", "error", err) // the next pass tries again
	}
}

// offset returns an offset as clients have it.
func offset(seq uint64) string { return fmt.Sprintf("%020d", seq) }
