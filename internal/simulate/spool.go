package simulate

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

// spool keeps the hits of a replay, in the order of time, so that other limits can be
// tried on them: in memory, and from memorySpool on in a file that is gone with the
// process. A hit takes about five bytes:
//
//	time since the hit before, in µs | counter × 2, + 1 if a cost follows | the cost, if it is not 1
type spool struct {
	last   int64 // µs since 1970
	hits   uint64
	memory []byte
	file   *os.File
	record [3 * binary.MaxVarintLen64]byte
}

const memorySpool = 32 << 20

func (s *spool) add(at int64, counter uint32, cost uint64) error {
	b := binary.AppendUvarint(s.record[:0], uint64(at-s.last))
	if cost == 1 {
		b = binary.AppendUvarint(b, uint64(counter)<<1)
	} else {
		b = binary.AppendUvarint(b, uint64(counter)<<1|1)
		b = binary.AppendUvarint(b, cost)
	}
	s.last = at
	s.hits++
	if len(s.memory)+len(b) > memorySpool {
		if err := s.spill(); err != nil {
			return err
		}
	}
	s.memory = append(s.memory, b...)
	return nil
}

// spill writes what is in memory to the file.
func (s *spool) spill() error {
	if s.file == nil {
		f, err := os.CreateTemp("", "weir-simulate-")
		if err != nil {
			return fmt.Errorf("keeping what the log has, to try other limits on it: %w", err)
		}
		s.file = f
		_ = os.Remove(f.Name()) // where an open file cannot be removed, close does
	}
	if _, err := s.file.Write(s.memory); err != nil {
		return fmt.Errorf("keeping what the log has, to try other limits on it: %w", err)
	}
	s.memory = s.memory[:0]
	return nil
}

func (s *spool) close() {
	if s.file != nil {
		_ = s.file.Close()
		_ = os.Remove(s.file.Name())
		s.file = nil
	}
	s.memory = nil
}

// each calls visit for each hit.
func (s *spool) each(visit func(at time.Time, counter uint32, cost uint64)) error {
	at := int64(0)
	if s.file != nil {
		if _, err := s.file.Seek(0, io.SeekStart); err != nil {
			return fmt.Errorf("reading again what the log has: %w", err)
		}
		r := bufio.NewReaderSize(s.file, 1<<20)
		for {
			head, err := r.Peek(len(s.record)) // fewer near the end
			if len(head) == 0 {
				if errors.Is(err, io.EOF) {
					break
				}
				return fmt.Errorf("reading again what the log has: %w", err)
			}
			_, _ = r.Discard(decode(head, &at, visit)) // it was there
		}
	}
	for rest := s.memory; len(rest) > 0; {
		rest = rest[decode(rest, &at, visit):]
	}
	return nil
}

// decode visits the hit at the beginning of b, and returns its length.
func decode(b []byte, at *int64, visit func(at time.Time, counter uint32, cost uint64)) int {
	after, n := binary.Uvarint(b)
	counter, m := binary.Uvarint(b[n:])
	n += m
	cost := uint64(1)
	if counter&1 == 1 {
		cost, m = binary.Uvarint(b[n:])
		n += m
	}
	*at += int64(after)
	visit(time.UnixMicro(*at), uint32(counter>>1), cost)
	return n
}
