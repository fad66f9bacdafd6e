package jetstream

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/textproto"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"

	"arbe.0sk.ar/runner/host/log/engine"
)

// busyServer is a double of a nats-server with one shard, in the time of a bubble. It handles one message at a time,
// and each takes a while.
type busyServer struct {
	each   time.Duration
	silent bool // answers nothing

	mu      sync.Mutex
	queue   []request
	more    chan struct{} // has a value where the queue may have a request
	handled int
	stored  []message
	batches map[string]*batch
}

type request struct {
	subject, reply string
	header         textproto.MIMEHeader
	data           []byte
}

type batch struct {
	messages []request
	touched  time.Time
}

// Dial is the client's connection, as nats.CustomDialer.
func (b *busyServer) Dial(string, string) (net.Conn, error) {
	client, server := net.Pipe()
	out := &output{w: server}
	go b.read(server, out)
	go b.work(out)
	return client, nil
}

// output writes without waiting for the client, which writes at the same time.
type output struct {
	w    io.WriteCloser
	mu   sync.Mutex
	more []byte
	busy bool
}

func (o *output) send(text []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.more = append(o.more, text...); o.busy {
		return
	}
	o.busy = true
	go func() {
		for {
			o.mu.Lock()
			b := o.more
			if o.more = nil; b == nil {
				o.busy = false
			}
			o.mu.Unlock()
			if b == nil {
				return
			}
			if _, err := o.w.Write(b); err != nil {
				return
			}
		}
	}()
}

func (b *busyServer) read(conn net.Conn, out *output) {
	defer conn.Close()
	defer func() { close(b.more) }()
	out.send([]byte(`INFO {"server_id":"x","version":"2.12.0","max_payload":1048576,"headers":true,"proto":1}` + "\r\n"))
	for r := bufio.NewReader(conn); ; {
		line, err := r.ReadString('\n')
		if err != nil {
			return
		}
		words := strings.Fields(line)
		switch words[0] {
		case "PING":
			out.send([]byte("PONG\r\n"))
		case "PUB", "HPUB":
			size, _ := strconv.Atoi(words[len(words)-1]) // a client writes numbers
			body := make([]byte, size+2)
			if _, err := io.ReadFull(r, body); err != nil {
				return
			}
			q := request{subject: words[1], reply: words[2], data: body[:size]}
			if words[0] == "HPUB" {
				head, _ := strconv.Atoi(words[3])
				q.data = body[head:size]
				_, text, _ := bytes.Cut(body[:head], []byte("\r\n"))
				q.header, _ = textproto.NewReader(bufio.NewReader(bytes.NewReader(text))).ReadMIMEHeader()
			}
			b.mu.Lock()
			b.queue = append(b.queue, q)
			b.mu.Unlock()
			select {
			case b.more <- struct{}{}:
			default:
			}
		}
	}
}

// work handles requests until the connection ends.
func (b *busyServer) work(out *output) {
	for range b.more {
		for {
			b.mu.Lock()
			if len(b.queue) == 0 {
				b.mu.Unlock()
				break
			}
			q := b.queue[0]
			b.queue = b.queue[1:]
			b.handled++
			b.mu.Unlock()
			time.Sleep(b.each) // the bubble's time
			if b.silent {
				continue
			}
			for _, answer := range b.answers(q) {
				head := "MSG " + q.reply + " 1 "
				out.send(fmt.Appendf(nil, "%s%d\r\n%s\r\n", head, len(answer), answer))
			}
		}
	}
}

func (b *busyServer) answers(q request) []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, found := strings.CutPrefix(q.subject, jsAPI+"STREAM.MSG.GET."); found {
		var get getRequest
		if err := json.Unmarshal(q.data, &get); err != nil {
			panic(err)
		}
		for _, m := range b.stored {
			if m.Subject == get.Next && m.Seq >= get.Seq {
				text, _ := json.Marshal(map[string]any{"message": m})
				return []string{string(text)}
			}
		}
		return []string{failed(codeNoMessage)}
	}
	id := q.header.Get("Nats-Batch-Id")
	if id == "" {
		return []string{b.store(q)}
	}
	for old, of := range b.batches {
		if time.Since(of.touched) > 10*time.Second { // as nats-server does
			delete(b.batches, old)
		}
	}
	of := b.batches[id]
	if q.header.Get("Nats-Batch-Sequence") == "1" {
		if len(b.batches) == 50 { // nats-server's default
			return []string{failed(codeTooManyBatch)}
		}
		of = &batch{}
		b.batches[id] = of
	}
	if of == nil || q.header.Get("Nats-Batch-Sequence") != strconv.Itoa(len(of.messages)+1) {
		delete(b.batches, id)
		return []string{failed(codeIncomplete)}
	}
	of.messages, of.touched = append(of.messages, q), time.Now()
	if q.header.Get("Nats-Batch-Commit") == "" {
		return []string{""}
	}
	delete(b.batches, id)
	return []string{b.store(of.messages...)}
}

// store appends messages, if the first one names the last seq of their subject.
func (b *busyServer) store(all ...request) string {
	last := uint64(0)
	for _, m := range b.stored {
		if m.Subject == all[0].subject {
			last = m.Seq
		}
	}
	if all[0].header.Get("Nats-Expected-Last-Subject-Sequence") != strconv.FormatUint(last, 10) {
		return failed(codeWrongLast)
	}
	for _, q := range all {
		b.stored = append(b.stored, message{Subject: q.subject, Seq: uint64(len(b.stored) + 1), Data: q.data})
	}
	return fmt.Sprintf(`{"stream":"S","seq":%d}`, len(b.stored))
}

func failed(code int) string {
	return fmt.Sprintf(`{"error":{"code":400,"err_code":%d,"description":"no"}}`, code)
}

// counts returns how many messages the server has handled and stored.
func (b *busyServer) counts() (handled, stored int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.handled, len(b.stored)
}

// engine returns an engine that is connected to the server.
func (b *busyServer) engine(t *testing.T) *Engine {
	t.Helper()
	b.more, b.batches = make(chan struct{}, 1), map[string]*batch{}
	conn, err := nats.Connect("nats://127.0.0.1:1", nats.SetCustomDialer(b), nats.NoReconnect())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	return &Engine{conn: conn, timeouts: timeouts{least: tryTimeout}}
}

// TestBusyServer makes many appends of several messages at once at a server that takes longer for them than a try waits
// at first. Each of them happens, once, and the messages that are sent for nothing are few. The time is a bubble's.
func TestBusyServer(t *testing.T) {
	const writers, records = 45, 4
	for _, each := range []time.Duration{
		time.Millisecond, 20 * time.Millisecond, 50 * time.Millisecond, 100 * time.Millisecond, 150 * time.Millisecond,
	} {
		t.Run(each.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := &busyServer{each: each}
				n := b.engine(t)
				f := frame{records: []engine.Record{{Key: "k", Data: bytes.Repeat([]byte("x"), 3000)}}}
				began := time.Now()
				var all sync.WaitGroup
				for w := range writers {
					all.Go(func() {
						f := f
						f.id = newFrameID()
						e, err := f.encode(1000)
						if err != nil || e.count != records {
							t.Errorf("%d messages, %v", e.count, err)
							return
						}
						_, err = onShard(n, fmt.Sprint("s.", w)).publish(t.Context(), 0, e)
						if err != nil {
							t.Error(err)
						}
					})
				}
				all.Wait()
				handled, stored := b.counts()
				t.Logf("%v: %d messages for %d", time.Since(began), handled, writers*records)
				if stored != writers*records {
					t.Errorf("%d messages are stored, want %d", stored, writers*records)
				}
				if most := 3 * writers * records; handled > most {
					t.Errorf("the server has handled %d messages, want at most %d", handled, most)
				}
			})
		})
	}
}

// onShard returns a subject of the busy server's shard.
func onShard(n *Engine, name string) *subject {
	return &subject{Engine: n, shard: &shard{stream: "S"}, name: name}
}

// TestSilentServer appends at a server that answers nothing: the append fails in time, and does not flood the server.
func TestSilentServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &busyServer{silent: true}
		n := b.engine(t)
		e, err := (&frame{records: []engine.Record{{Key: "k"}}}).encode(1000)
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		_, err = onShard(n, "s.0").publish(t.Context(), 0, e)
		took := time.Since(began)
		if handled, _ := b.counts(); err == nil || errors.Is(err, engine.ErrConflict) || took > 25*time.Second ||
			handled > 10 {
			t.Errorf("%v after %v and %d messages", err, took, handled)
		}
	})
}
