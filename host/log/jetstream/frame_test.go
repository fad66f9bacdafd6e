package jetstream

import (
	"bytes"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"arbe.0sk.ar/runner/host/log/engine"
)

// parts encodes f into messages of at most most bytes, and decodes them.
func parts(t *testing.T, f *frame, most int) ([][]byte, *frame) {
	t.Helper()
	e, err := f.encode(most)
	if err != nil {
		t.Fatal(err)
	}
	var messages [][]byte
	var join joiner
	for i := range e.count {
		m := e.message(i)
		if len(m) > most {
			t.Errorf("message %d of %d has %d bytes, may have %d", i, e.count, len(m), most)
		}
		messages = append(messages, m)
		got, err := join.add(m)
		if err != nil || (got != nil) != (i == e.count-1) {
			t.Fatalf("message %d of %d: %v, %v", i, e.count, got, err)
		}
		if got != nil {
			return messages, got
		}
	}
	return nil, nil
}

func sameFrame(a, b *frame) string {
	return cmp.Diff(a, b, cmp.AllowUnexported(frame{}))
}

func TestFrame(t *testing.T) {
	at := time.UnixMilli(1_700_000_000_001)
	long := bytes.Repeat([]byte("x"), 1000)
	for i, f := range []frame{
		{},
		{born: 7, data: 9},
		{state: []byte{}},
		{state: long[:100], records: []engine.Record{
			{At: at, Key: "k", Data: long}, {At: at, Data: []byte{}}, {At: time.UnixMilli(0), Key: "é", Data: long},
		}},
		{values: map[string][]byte{"a": nil, "b": {}, "": []byte("c"), "d": long}},
		{
			records: []engine.Record{{At: at, Key: "k", Data: long}},
			gone:    map[keyHash]uint64{hashKey("a"): 1, hashKey("b"): 1 << 60},
		},
	} {
		f.id = newFrameID()
		for _, most := range []int{200, 201, 333, 1 << 20} {
			t.Run(fmt.Sprint(i, "/", most), func(t *testing.T) {
				messages, got := parts(t, &f, most)
				if d := sameFrame(got, &f); d != "" {
					t.Error(d)
				}
				last := messages[len(messages)-1]
				p, err := decodePart(last)
				if err != nil || !p.last || p.count != len(messages) || p.born != f.born || p.data != f.data ||
					!bytes.Equal(p.state, f.state) ||
					p.number != len(f.records) {
					t.Errorf("the head is %+v, %v", p, err)
				}
				for at := range last {
					bad := bytes.Clone(last)
					bad[at] ^= 0x10
					if p, err := decodePart(bad); !errors.Is(err, errFrame) {
						t.Fatalf("with a bit of byte %d changed: %+v", at, p)
					}
				}
				if len(messages) < 3 {
					return
				}
				for name, some := range map[string][][]byte{
					"without a piece":  messages[1:],
					"in another order": {messages[1], messages[0], last},
					"twice":            {messages[0], messages[0], last},
				} {
					var join joiner
					var failed error
					for _, m := range some {
						_, err := join.add(m)
						failed = errors.Join(failed, err)
					}
					if failed == nil {
						t.Errorf("%s it is taken for whole", name)
					}
				}
			})
		}
	}
}

// TestFrameLeftovers has pieces of a frame without its last message, as during a removal. They are ignored.
func TestFrameLeftovers(t *testing.T) {
	torn := &frame{
		id:      newFrameID(),
		records: []engine.Record{{At: time.UnixMilli(1), Data: bytes.Repeat([]byte("x"), 1000)}},
	}
	whole := &frame{
		id:      newFrameID(),
		records: []engine.Record{{At: time.UnixMilli(1), Data: bytes.Repeat([]byte("y"), 1000)}},
	}
	left, _ := parts(t, torn, 300)
	messages, _ := parts(t, whole, 300)
	var join joiner
	var got *frame
	for _, m := range append(left[:2:2], messages...) {
		var err error
		if got, err = join.add(m); err != nil {
			t.Fatal(err)
		}
	}
	if d := sameFrame(got, whole); d != "" {
		t.Error(d)
	}
}

func TestFrameState(t *testing.T) {
	f := &frame{state: make([]byte, 1000)}
	if _, err := f.encode(1000); err == nil {
		t.Error("a state as long as a message has room")
	}
}

// FuzzFrame has three properties: a frame that is encoded, in messages of any size, is decoded as it was; no bytes make
// the decoder panic; and bytes that it accepts are a frame.
func FuzzFrame(f *testing.F) {
	f.Add([]byte("key"), []byte("data"), []byte("state"), uint64(3), uint16(300), []byte{})
	f.Add([]byte{}, bytes.Repeat([]byte("x"), 5000), []byte(nil), uint64(1<<63), uint16(0), []byte{framePiece})
	e, err := (&frame{state: []byte("s"), records: []engine.Record{{Key: "k", At: time.UnixMilli(3)}}}).encode(1000)
	if err != nil {
		f.Fatal(err)
	}
	f.Add([]byte("k"), []byte("v"), []byte(""), uint64(1), uint16(1), e.message(0))
	f.Fuzz(func(t *testing.T, key, data, state []byte, number uint64, most uint16, payload []byte) {
		in := &frame{id: frameID{1}, born: number, data: number / 2, state: state}
		for i := range int(number % 5) {
			in.records = append(in.records, engine.Record{
				At: time.UnixMilli(int64(number >> 20)), Key: string(key),
				Data: append([]byte{}, data[:len(data)*i/4]...),
			})
		}
		if len(key) > 0 {
			in.values = map[string][]byte{string(key): data, string(key) + "2": nil}
			in.gone = map[keyHash]uint64{hashKey(string(key)): number}
		}
		if in.state != nil && len(in.state) == 0 {
			in.state = []byte{}
		}
		if len(data) == 0 && in.values != nil {
			in.values[string(key)] = []byte{}
		}
		if _, got := parts(t, in, pieceStart+60+len(state)+int(most)); sameFrame(got, in) != "" {
			t.Error(sameFrame(got, in))
		}

		p, err := decodePart(payload)
		if err != nil || !p.last || p.count != 1 {
			return
		}
		got, err := p.frame(nil)
		if err != nil {
			return
		}
		if _, again := parts(t, got, 1<<20+len(payload)); sameFrame(again, got) != "" {
			t.Error(sameFrame(again, got))
		}
	})
}
