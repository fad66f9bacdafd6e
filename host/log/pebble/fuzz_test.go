package pebble

import (
	"bytes"
	"testing"
	"time"

	"arbe.0sk.ar/runner/host/log/engine"
)

// FuzzRecord has three properties: no bytes make the decoder panic, a record is decoded as it was encoded, and two
// streams never share a key.
func FuzzRecord(f *testing.F) {
	at := time.UnixMilli(1_800_000_000_000)
	f.Add("arbe-thread-t1", "arbe-thread-t10", []byte(`{"id":"a"}`), uint64(1), at.UnixMilli())
	f.Add("arbe-thread-a/b", "a/b", []byte{}, uint64(256), int64(0))
	f.Add("/", "arbe-thread-/", []byte{control, 0, 0, 0, 0, 0, 0, 0, 1}, uint64(1<<40), int64(-1))
	f.Add("arbe-thread-", "", appendRecord(nil, engine.Record{At: at, Data: []byte("x")}), uint64(0), int64(1)<<55)
	f.Add("é", "e", appendControl(nil, 7), uint64(7), int64(1)<<56-1)
	f.Fuzz(func(t *testing.T, one, other string, data []byte, seq uint64, ms int64) {
		// Any bytes.
		r, isControl, err := parseRecord(seq, data)
		if err == nil && !isControl && (r.Seq != seq || !bytes.Equal(appendRecord(nil, r), data)) {
			t.Errorf("%x is read as %+v, and is not written like that", data, r)
		}
		last, is, err := controlValue(data)
		if is != isControl || is && err == nil && !bytes.Equal(appendControl(nil, last), data) {
			t.Errorf("%x: control %v (%v), and %d", data, is, isControl, last)
		}
		if n, err := seqValue(data); (err == nil) != (len(data) == 8) {
			t.Errorf("%x is seq %d, %v", data, n, err)
		}

		// An encoded record.
		if ms >= 0 && ms < 1<<56 { // up to the year 2285428
			want := engine.Record{Seq: seq, At: time.UnixMilli(ms), Data: data}
			got, isControl, err := parseRecord(seq, appendRecord(nil, want))
			if err != nil || isControl || got.Seq != seq || !got.At.Equal(want.At) || !bytes.Equal(got.Data, data) {
				t.Errorf("%+v is read as %+v, %v, %v", want, got, isControl, err)
			}
		}
		if got, is, err := controlValue(appendControl(nil, seq)); err != nil || !is || got != seq {
			t.Errorf("control %d is read as %d, %v, %v", seq, got, is, err)
		}

		// Keys.
		if bytes.IndexByte([]byte(one+other), 0) >= 0 || len(one) == 0 || len(other) == 0 {
			return // no stream has such a name
		}
		name := keyName(one)
		if got := streamName(name); got != one {
			t.Errorf("%q is %q in keys, and %q again", one, name, got)
		}
		key := recordKey(name, seq)
		if keySeq(key) != seq || !bytes.Equal(keyNameOf(key), name) {
			t.Errorf("the key %q is that of %d in %q", key, keySeq(key), keyNameOf(key))
		}
		if one == other {
			return
		}
		if bytes.Equal(name, keyName(other)) {
			t.Errorf("%q and %q are both %q", one, other, name)
		}
		// A stream's records are between its bounds, and another stream's are not.
		lower, upper := recordKey(name, 0), recordKey(name, 1<<63)
		for _, n := range []uint64{0, 1, seq >> 1, 1<<63 - 1} {
			if key := recordKey(keyName(other), n); bytes.Compare(key, lower) >= 0 && bytes.Compare(key, upper) < 0 {
				t.Errorf("record %d of %q is among those of %q", n, other, one)
			}
		}
	})
}
