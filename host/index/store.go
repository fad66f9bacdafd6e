package index

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"

	"arbe.0sk.ar/runner/internal/durable"
	"arbe.0sk.ar/runner/internal/filelock"
)

// store is a file of values by key, to which each new value is appended. It is a cache: nothing is synced, and after a
// crash it may lack values or have older ones. Each value has a checksum, so that none is wrong. What is behind a
// damaged value is dropped.
//
// Its methods must not be called at the same time, but for read beside read.
//
// A key-value store such as the log's ends the process where its disk fails. A cache must not.
type store struct {
	dir    string
	head   string // the file's first line
	lock   *os.File
	file   *os.File
	number int   // of the file's name
	end    int64 // of the file
	live   int64 // bytes of the values that are in use
}

// place is where a value is in the file.
type place struct {
	at   int64
	size uint32 // with header and key
}

// A value in the file: checksum of the rest (4 bytes), length of the rest (4), length of the key (1), key, value. A
// value of no bytes removes the key.
const (
	valueHeader = 9
	mostValue   = 64 << 20
	mostFiles   = 64      // processes with a store in one folder
	least       = 8 << 20 // bytes out of use that are worth a compaction
)

var (
	errDamaged = errors.New("the index is damaged")
	table      = crc32.MakeTable(crc32.Castagnoli)
)

// openStore opens a store in dir that no other process has open. It calls found for each value in the order of the
// file, which may have a key several times, and with no value for a key that was removed. A file with another head is
// dropped.
func openStore(dir, head string, found func(key string, value []byte, at place)) (s *store, dropped bool, err error) {
	if err := durable.MkdirAll(dir); err != nil {
		return nil, false, err
	}
	s = &store{dir: dir, head: head + "\n"}
	for s.number = range mostFiles {
		if s.lock, err = os.OpenFile(s.name("lock"), os.O_CREATE|os.O_RDWR, 0o600); err != nil {
			return nil, false, err
		}
		if err = filelock.Lock(s.lock); err == nil {
			break
		}
		err = errors.Join(fmt.Errorf("lock %s: %w", s.lock.Name(), err), s.lock.Close())
	}
	if err != nil {
		return nil, false, err
	}
	if s.file, err = os.OpenFile(s.name("threads"), os.O_CREATE|os.O_RDWR, 0o600); err != nil {
		return nil, false, errors.Join(err, s.lock.Close())
	}
	if dropped, err = s.load(found); err != nil {
		return nil, false, errors.Join(err, s.close())
	}
	return s, dropped, nil
}

func (s *store) name(what string) string {
	return filepath.Join(s.dir, fmt.Sprint(what, ".", s.number))
}

// load reads the file, and cuts off what is not whole. It reports whether it has dropped anything.
func (s *store) load(found func(key string, value []byte, at place)) (dropped bool, err error) {
	info, err := s.file.Stat()
	if err != nil {
		return false, err
	}
	r := bufio.NewReaderSize(s.file, 1<<20)
	head := make([]byte, len(s.head))
	if _, err := io.ReadFull(r, head); err != nil || string(head) != s.head {
		return info.Size() > 0, s.clear()
	}
	s.end = int64(len(head))
	var buf []byte
	for {
		var h [8]byte
		if _, err := io.ReadFull(r, h[:]); err != nil {
			break // the end, or not whole: what the disk can't read is dropped, too
		}
		n := binary.BigEndian.Uint32(h[4:])
		if n < 1 || n > mostValue {
			break
		}
		if uint32(cap(buf)) < n+4 {
			buf = make([]byte, 2*n+4)
		}
		buf = buf[:n+4]
		copy(buf, h[4:])
		if _, err := io.ReadFull(r, buf[4:]); err != nil ||
			crc32.Checksum(buf, table) != binary.BigEndian.Uint32(h[:]) {
			break
		}
		key, value, ok := split(buf[4:])
		if !ok {
			break
		}
		found(key, value, place{s.end, n + 8})
		s.end += int64(n) + 8
	}
	if s.end == info.Size() {
		return false, nil
	}
	return true, s.file.Truncate(s.end)
}

// split returns the key and the value of what is behind the length.
func split(b []byte) (key string, value []byte, ok bool) {
	n := int(b[0]) + 1
	if n > len(b) {
		return "", nil, false
	}
	return string(b[1:n]), b[n:], true
}

// clear drops all values.
func (s *store) clear() error {
	s.end, s.live = 0, 0
	if err := s.file.Truncate(0); err != nil {
		return err
	}
	_, err := s.file.WriteAt([]byte(s.head), 0)
	s.end = int64(len(s.head))
	return err
}

// write appends a value. After an error the store is as it was.
func (s *store) write(key string, value []byte) (place, error) {
	n := 1 + len(key) + len(value)
	if len(key) > 255 || n > mostValue {
		return place{}, fmt.Errorf("index: a value of %d bytes for %.40q", len(value), key)
	}
	b := make([]byte, 8, 8+n)
	binary.BigEndian.PutUint32(b[4:], uint32(n))
	b = append(append(append(b, byte(len(key))), key...), value...)
	binary.BigEndian.PutUint32(b, crc32.Checksum(b[4:], table))
	if _, err := s.file.WriteAt(b, s.end); err != nil {
		return place{}, fmt.Errorf("write the index: %w", err) // the next write is at the same place
	}
	at := place{s.end, uint32(len(b))}
	s.end += int64(len(b))
	return at, nil
}

// read returns the value of a key at its place; errDamaged where it is not there.
func (s *store) read(key string, at place) ([]byte, error) {
	b := make([]byte, at.size)
	if _, err := s.file.ReadAt(b, at.at); err != nil {
		return nil, fmt.Errorf("%w: %w", errDamaged, err)
	}
	if len(b) < valueHeader || crc32.Checksum(b[4:], table) != binary.BigEndian.Uint32(b) {
		return nil, errDamaged
	}
	have, value, ok := split(b[8:])
	if !ok || have != key {
		return nil, errDamaged
	}
	return value, nil
}

// wasteful reports whether a compaction is worth its work.
func (s *store) wasteful() bool {
	waste := s.end - s.live
	return waste > least && waste > s.live
}

// compact writes the values at these places into a new file. move is called with each new place once the file is the
// store's.
func (s *store) compact(places []place, move func(i int, to place)) (err error) {
	name := s.name("threads")
	f, err := os.OpenFile(name+".new", os.O_CREATE|os.O_RDWR|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Close(), os.Remove(name+".new"))
		}
	}()
	w := bufio.NewWriterSize(f, 1<<20)
	if _, err := w.WriteString(s.head); err != nil {
		return err
	}
	to, end := make([]place, len(places)), int64(len(s.head))
	var buf []byte
	for i, p := range places {
		if uint32(cap(buf)) < p.size {
			buf = make([]byte, 2*p.size)
		}
		buf = buf[:p.size]
		if _, err := s.file.ReadAt(buf, p.at); err != nil {
			return fmt.Errorf("%w: %w", errDamaged, err)
		}
		if _, err := w.Write(buf); err != nil {
			return err
		}
		to[i] = place{end, p.size}
		end += int64(p.size)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if err := os.Rename(name+".new", name); err != nil {
		return err
	}
	_ = s.file.Close() // the new file has what is in use
	s.file, s.end = f, end
	for i := range places {
		move(i, to[i])
	}
	return nil
}

func (s *store) close() error {
	return errors.Join(s.file.Close(), filelock.Unlock(s.lock), s.lock.Close())
}
