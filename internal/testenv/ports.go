package testenv

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"syscall"
	"testing"
)

// Ports are handed out from [firstPort, lastPort), below where systems take the
// ports of outgoing connections from (32768 on Linux): a port that nobody listens
// on yet cannot be lost to one.
const (
	firstPort = 21000
	lastPort  = 32000
	blockSize = 100
)

// portBook hands out ports. Processes share the range block by block: whoever
// holds the lock of a block owns its ports until the process ends.
type portBook struct {
	mu    sync.Mutex
	next  int // the next port of the block, and the block's end
	end   int
	locks []*os.File // kept open, for a lock lives as long as its file
}

// One a process, since what it hands out must be distinct within the process.
var ports portBook

// FreePort returns a port of 127.0.0.1 that nobody listens on, and that no other
// call gets, in this process or in another test's.
func FreePort(t testing.TB) int {
	t.Helper()
	return FreePorts(t, 1)[0]
}

// FreePorts returns n ports as FreePort does.
func FreePorts(t testing.TB, n int) []int {
	t.Helper()
	got := make([]int, n)
	for i := range got {
		port, err := ports.take()
		if err != nil {
			t.Fatal(err)
		}
		got[i] = port
	}
	return got
}

// FreeAddr returns 127.0.0.1 with a port as FreePort's.
func FreeAddr(t testing.TB) string {
	t.Helper()
	return fmt.Sprintf("127.0.0.1:%d", FreePort(t))
}

func (b *portBook) take() (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for {
		for b.next < b.end {
			port := b.next
			b.next++
			if listenable(port) {
				return port, nil
			}
		}
		if err := b.nextBlock(); err != nil {
			return 0, err
		}
	}
}

// nextBlock locks a block that no process has. It begins at a random one, so
// that a port comes back late: something that still talks to the last owner of
// a port should not meet the next.
func (b *portBook) nextBlock() error {
	const blocks = (lastPort - firstPort) / blockSize
	start := rand.IntN(blocks)
	var last error
	for i := range blocks {
		first := firstPort + (start+i)%blocks*blockSize
		lock, err := lockFile(fmt.Sprintf("ports-%d.lock", first), syscall.LOCK_EX|syscall.LOCK_NB)
		if err != nil {
			last = err
			continue
		}
		b.locks = append(b.locks, lock)
		b.next, b.end = first, first+blockSize
		return nil
	}
	return fmt.Errorf("testenv: no free ports left in [%d, %d): %w", firstPort, lastPort, last)
}

// listenable says whether nobody listens on the port, on any address.
func listenable(port int) bool {
	for _, host := range []string{"", "127.0.0.1"} {
		l, err := net.Listen("tcp", net.JoinHostPort(host, fmt.Sprint(port)))
		if err != nil {
			return false
		}
		_ = l.Close()
	}
	return true
}
