package jetstream_test

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"arbe.0sk.ar/runner/host/log/jetstream"
	"arbe.0sk.ar/runner/internal/test/enginetest"
)

// TestReadCut ends the connection in the middle of an answer. The read continues behind the last message that arrived.
func TestReadCut(t *testing.T) {
	t.Parallel()
	s := start(t, func(o *server.Options) { o.SyncAlways = false })
	p := startProxy(t, s)
	config := configOf(t, s)
	other := open(t, config)
	config.URL = p.url()
	e := open(t, config)
	var want []string
	last := uint64(0)
	for i := range 600 {
		text := fmt.Sprint(i, " ", string(bytes.Repeat([]byte("x"), i%3*700)))
		last = enginetest.Add(t, other, "s", text).Last
		want = append(want, text)
	}
	for _, after := range []int{100_000, 300_000} {
		p.cutAfter(after)
		records := enginetest.Must(e.Read(t.Context(), "s", 0, last, 1<<30))(t)
		if got := enginetest.Texts(records); !slices.Equal(got, want) {
			t.Errorf("cut after %d bytes: %d records, want %d", after, len(got), len(want))
		}
	}
}

// TestReadGap answers a direct get with a message missing, as happens where the connection breaks and is made again in
// the middle of an answer.
func TestReadGap(t *testing.T) {
	t.Parallel()
	s := start(t, func(o *server.Options) { o.JetStream = false })
	conn := enginetest.Must(nats.Connect(s.ClientURL(), nats.Timeout(time.Minute)))(t)
	t.Cleanup(conn.Close)
	for _, tt := range []struct {
		name  string
		sent  [][2]int // seq, and the seq before it in the answer
		last  int      // the last seq of the answer
		whole bool
	}{
		{"whole", [][2]int{{3, 0}, {5, 3}, {9, 5}}, 9, true},
		{"first missing", [][2]int{{5, 3}, {9, 5}}, 9, false},
		{"middle missing", [][2]int{{3, 0}, {9, 5}}, 9, false},
		{"last missing", [][2]int{{3, 0}, {5, 3}}, 9, false},
	} {
		sub := enginetest.Must(conn.Subscribe("$JS.API.DIRECT.GET.S", func(m *nats.Msg) {
			reply := func(header nats.Header) {
				if err := conn.PublishMsg(&nats.Msg{Subject: m.Reply, Header: header}); err != nil {
					t.Error(err)
				}
			}
			for _, seqs := range tt.sent {
				reply(nats.Header{
					"Nats-Sequence":      {strconv.Itoa(seqs[0])},
					"Nats-Last-Sequence": {strconv.Itoa(seqs[1])},
				})
			}
			reply(nats.Header{"Status": {"204"}, "Nats-Last-Sequence": {strconv.Itoa(tt.last)}})
		}))(t)
		got, err := jetstream.TryMany(t.Context(), conn, "S")
		if (err == nil) != tt.whole || tt.whole && !slices.Equal(got, []uint64{3, 5, 9}) {
			t.Errorf("%s: got %d, %v", tt.name, got, err)
		}
		if err := sub.Unsubscribe(); err != nil {
			t.Fatal(err)
		}
	}
}
