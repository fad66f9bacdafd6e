package jetstream_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"arbe.0sk.ar/runner/host/log/engine"
	"arbe.0sk.ar/runner/host/log/jetstream"
	"arbe.0sk.ar/runner/internal/test/enginetest"
)

// BenchmarkReplay reads streams whose records of 1 KB were appended one at a time: one stream that has a shard for
// itself, and streams whose records alternate in a shard, as many as a thousand streams have in each of 16 shards. The
// control is a bare client that sends the same requests and discards the messages, in turns.
func BenchmarkReplay(b *testing.B) {
	for _, streams := range []int{1, 62} {
		b.Run(fmt.Sprintf("streams=%d", streams), func(b *testing.B) {
			s := start(b, func(o *server.Options) { o.SyncAlways = false }) // only the appends before would sync
			config := configOf(b, s)
			config.Shards = 1
			e := open(b, config)
			heads := fillOneByOne(b, e, streams, 62_000)
			conn := enginetest.Must(nats.Connect(s.ClientURL()))(b)
			b.Cleanup(conn.Close)
			read, bare := 0, 0
			var took, tookBare time.Duration
			for i := 0; b.Loop(); i++ {
				k := i % streams
				began := time.Now()
				read += replay(b, e, benchStream(k), heads[k].Last)
				took += time.Since(began)
				began = time.Now()
				bare += replayBare(b, conn, benchStream(k), heads[k].Last)
				tookBare += time.Since(began)
			}
			rate, bareRate := float64(read)/1e6/took.Seconds(), float64(bare)/1e6/tookBare.Seconds()
			b.ReportMetric(rate, "MB/s")
			b.ReportMetric(bareRate, "MB/s-nats-server-alone")
			b.ReportMetric(rate/bareRate, "of-nats-server-alone")
			b.ReportMetric(0, "ns/op")
		})
	}
}

func benchStream(i int) string { return fmt.Sprint("arbe-thread-", i) }

// fillOneByOne appends total records of 1 KB with keys, each alone. Each stream has a writer.
func fillOneByOne(b *testing.B, e *jetstream.Engine, streams, total int) []engine.Head {
	heads := make([]engine.Head, streams)
	var all sync.WaitGroup
	for w := range streams {
		all.Go(func() {
			r := rand.New(rand.NewPCG(uint64(w), 1))
			for i := range total / streams {
				a := enginetest.One(heads[w].Last, fmt.Sprintf("pi:%d:%d", w, i), kilobyte(r))
				h, err := e.Append(b.Context(), benchStream(w), a)
				if err != nil {
					b.Error(err)
					return
				}
				heads[w] = h
			}
		})
	}
	all.Wait()
	return heads
}

func kilobyte(r *rand.Rand) []byte {
	text := make([]byte, 0, 1024)
	for len(text) < 1000 {
		text = strconv.AppendUint(append(text, " word "...), r.Uint64(), 36)
	}
	return text
}

// replay reads a stream as the server does, and returns its bytes.
func replay(b *testing.B, e *jetstream.Engine, name string, last uint64) (read int) {
	for after := uint64(0); after < last; {
		records := enginetest.Must(e.Read(b.Context(), name, after, last, 1<<20))(b)
		if len(records) == 0 {
			b.Fatal("records are missing")
		}
		for _, r := range records {
			read += len(r.Data)
		}
		after = records[len(records)-1].Seq
	}
	return read
}

// replayBare reads the stream's messages without this package.
func replayBare(b *testing.B, conn *nats.Conn, name string, last uint64) (read int) {
	for after := uint64(0); after < last; {
		inbox := conn.NewInbox()
		sub := enginetest.Must(conn.SubscribeSync(inbox))(b)
		request := fmt.Sprintf(
			`{"seq":%d,"next_by_subj":"arbe.0.%s","batch":4096,"max_bytes":1048576}`,
			after+1,
			name,
		)
		if err := conn.PublishRequest("$JS.API.DIRECT.GET.ARBE-0", inbox, []byte(request)); err != nil {
			b.Fatal(err)
		}
		for {
			m := enginetest.Must(sub.NextMsg(10 * time.Second))(b)
			if status := m.Header.Get("Status"); status != "" {
				if status != "204" {
					b.Fatal(m.Header)
				}
				break
			}
			after = enginetest.Must(strconv.ParseUint(m.Header.Get("Nats-Sequence"), 10, 64))(b)
			read += len(m.Data)
		}
		if err := sub.Unsubscribe(); err != nil {
			b.Fatal(err)
		}
	}
	return read
}

const benchStreams = 1000

// BenchmarkAppend appends records of 1 KB, each alone, to 1,000 streams in the 16 shards of a server that syncs each
// write. The controls take turns with it, with the same number of writers. The first publishes as many bytes to as many
// subjects of the same shards over one connection; the second does so on a server that syncs nothing; the third appends
// as many bytes to 16 files, each write with a sync and one at a time for a file.
func BenchmarkAppend(b *testing.B) {
	for _, writers := range []int{1, 16, 64} {
		b.Run(fmt.Sprintf("writers=%d", writers), func(b *testing.B) {
			s := start(b, nil)
			config := configOf(b, s)
			config.Shards = 16
			e := open(b, config)
			conn := enginetest.Must(nats.Connect(s.ClientURL()))(b)
			b.Cleanup(conn.Close)
			var heads [benchStreams]engine.Head
			var bareLasts, looseLasts [benchStreams]uint64
			var rate, bareRate, looseRate, fileRate float64
			loose := start(b, func(o *server.Options) { o.SyncAlways = false })
			looseConfig := configOf(b, loose)
			looseConfig.Shards = 16
			open(b, looseConfig)
			looseConn := enginetest.Must(nats.Connect(loose.ClientURL()))(b)
			b.Cleanup(looseConn.Close)
			files := syncedFiles(b)
			for range b.N {
				rate += appendRate(b, writers, func(k int, r *rand.Rand) (err error) {
					a := enginetest.One(heads[k].Last, fmt.Sprintf("pi:%d", r.Uint64()), kilobyte(r))
					heads[k], err = e.Append(b.Context(), benchStream(k), a)
					return err
				})
				bareRate += appendRate(b, writers, func(k int, r *rand.Rand) (err error) {
					bareLasts[k], err = appendBare(
						conn,
						fmt.Sprintf("arbe.%d.bare-%d", k%16, k),
						bareLasts[k],
						kilobyte(r),
					)
					return err
				})
				looseRate += appendRate(b, writers, func(k int, r *rand.Rand) (err error) {
					subject := fmt.Sprintf("arbe.%d.bare-%d", k%16, k)
					looseLasts[k], err = appendBare(looseConn, subject, looseLasts[k], kilobyte(r))
					return err
				})
				fileRate += appendRate(
					b,
					writers,
					func(k int, r *rand.Rand) error { return files[k%16].append(kilobyte(r)) },
				)
			}
			b.ReportMetric(rate/float64(b.N), "appends/s")
			b.ReportMetric(looseRate/float64(b.N), "appends/s-nats-server-unsynced")
			b.ReportMetric(fileRate/float64(b.N), "appends/s-files-synced")
			b.ReportMetric(bareRate/float64(b.N), "appends/s-nats-server-alone")
			b.ReportMetric(rate/bareRate, "of-nats-server-alone")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// syncedFile is a file to which writers append one at a time.
type syncedFile struct {
	mu sync.Mutex
	f  *os.File
}

func syncedFiles(b *testing.B) *[16]syncedFile {
	var files [16]syncedFile
	for i := range files {
		files[i].f = enginetest.Must(os.Create(filepath.Join(b.TempDir(), "log")))(b)
		b.Cleanup(func() { _ = files[i].f.Close() }) // a file of the benchmark's
	}
	return &files
}

func (s *syncedFile) append(data []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, err := s.f.Write(data); err != nil {
		return err
	}
	return s.f.Sync()
}

// appendBare publishes a message without this package, and returns its seq.
func appendBare(conn *nats.Conn, subject string, last uint64, data []byte) (uint64, error) {
	m := nats.NewMsg(subject)
	m.Header["Nats-Expected-Last-Subject-Sequence"] = []string{strconv.FormatUint(last, 10)}
	m.Data = data
	reply, err := conn.RequestMsg(m, 10*time.Second)
	if err != nil {
		return 0, err
	}
	var answer struct {
		Seq   uint64
		Error json.RawMessage
	}
	if err := json.Unmarshal(reply.Data, &answer); err != nil {
		return 0, err
	}
	if answer.Error != nil {
		return 0, errors.New(string(answer.Error))
	}
	return answer.Seq, nil
}

// appendRate calls f for random streams from many writers for 3 s, one call at a time for a stream, and returns the
// calls a second.
func appendRate(b *testing.B, writers int, f func(stream int, r *rand.Rand) error) float64 {
	var locks [benchStreams]sync.Mutex
	var n atomic.Int64
	began := time.Now()
	var all sync.WaitGroup
	for w := range writers {
		all.Go(func() {
			r := rand.New(rand.NewPCG(uint64(w), 7))
			for time.Since(began) < 3*time.Second {
				k := r.IntN(benchStreams)
				locks[k].Lock()
				err := f(k, r)
				locks[k].Unlock()
				if err != nil {
					b.Error(err)
					return
				}
				n.Add(1)
			}
		})
	}
	all.Wait()
	return float64(n.Load()) / time.Since(began).Seconds()
}
