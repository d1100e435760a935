package limiter

import (
	"sync"
	"time"
)

// peak remembers the longest of some durations for one to two minutes. The zero value
// is ready; times are since any fixed instant.
type peak struct {
	mu              sync.Mutex
	minute          time.Duration // that longest is of, as its number
	longest, before time.Duration // of this minute, and of the one before
}

func (p *peak) note(now, d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.turn(now)
	p.longest = max(p.longest, d)
}

func (p *peak) read(now time.Duration) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.turn(now)
	return max(p.longest, p.before)
}

// turn goes on to the minute that it is. p.mu is held.
func (p *peak) turn(now time.Duration) {
	switch minute := now / time.Minute; {
	case minute <= p.minute:
	case minute == p.minute+1:
		p.minute, p.before, p.longest = minute, p.longest, 0
	default:
		p.minute, p.before, p.longest = minute, 0, 0
	}
}
