package redis

import (
	"crypto/sha1" //nolint:gosec // Redis names scripts so
	_ "embed"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"weir/limiter"
)

//go:embed prelude.lua
var preludeLua string

//go:embed read.lua
var readLua string

//go:embed single.lua
var singleLua string

//go:embed multi.lua
var multiLua string

//go:embed giveback.lua
var giveBackLua string

//go:embed fixed.lua
var fixedLua string

//go:embed multi_fast.lua
var multiFastLua string

//go:embed fixed_expected.lua
var fixedExpectedLua string

//go:embed fixed_back.lua
var fixedBackLua string

//go:embed loose.lua
var looseLua string

//go:embed fixed_fast.lua
var fixedFastLua string

//go:embed bucket_fast.lua
var bucketFastLua string

//go:embed bucket.lua
var bucketLua string

//go:embed counter.lua
var counterLua string

//go:embed queue.lua
var queueLua string

//go:embed log.lua
var logLua string

// script is a Lua script and what Redis calls it: a string, as commands take it.
type script struct {
	text string
	sha  any
}

func newScript(text string) script {
	sum := sha1.Sum([]byte(text)) //nolint:gosec // Redis names scripts so
	return script{text, hex.EncodeToString(sum[:])}
}

// What scripts know beside limiter's algorithms.
const (
	queueing   = limiter.SlidingWindowCounter + 1 // a LeakyBucket whose hit has an Overflow
	algorithms = queueing + 1
)

// scripts are the ones of a store: a request with one hit runs the script of its
// algorithm, which creates no more functions than it needs; others run multi.
type scripts struct {
	single    [algorithms]script
	fixedBack script // where a plain command has counted the hit
	multi     script
	giveBack  script // on a cluster
	loose     script
}

func newScripts() *scripts {
	bucketHot, _, _ := strings.Cut(bucketLua, rareMark)
	parts := [algorithms]string{
		limiter.FixedWindow:          fixedLua,
		limiter.TokenBucket:          bucketLua,
		limiter.LeakyBucket:          bucketLua,
		limiter.SlidingWindowLog:     logLua,
		limiter.SlidingWindowCounter: counterLua,
		queueing:                     bucketHot + queueLua,
	}
	fast := [algorithms]string{limiter.FixedWindow: fixedFastLua, limiter.TokenBucket: bucketFastLua}
	first := [algorithms]string{limiter.FixedWindow: fixedExpectedLua}
	field := regexp.MustCompile(`\bp\.`) // a hit is a table in multi.lua, in single.lua it is local variables
	var s scripts
	all := "local function read(at)\n" + readLua + hitTable + "end\nlocal algorithms = {}\n"
	for a, part := range parts {
		hot, rare, _ := strings.Cut(part, rareMark)
		one := hot + strings.Replace(singleLua, rareHereMark, rare, 1)
		rest := preludeLua + fast[a] + "local at = 1\n" + readLua + field.ReplaceAllString(one, "")
		s.single[a] = newScript(first[a] + rest)
		if a == int(limiter.FixedWindow) {
			s.fixedBack = newScript(fixedBackLua + rest)
		}
		all += fmt.Sprintf(`algorithms[%d] = function()
%s
return {load = load, look = look, charge = charge, save = save, made = false, rare = function()
%s
return {wait = wait, refund = refund, turn = turn, receipt = receipt, give_back = give_back}
end}
end
`, a, hot, rare)
	}
	s.multi = newScript(preludeLua + strings.Replace(multiFastLua, readHereMark, readLua, 1) + all + multiLua)
	s.giveBack = newScript(preludeLua + all + giveBackLua)
	s.loose = newScript(looseLua)
	return &s
}

// hitTable ends read.lua where hits are tables. Made with all its fields at once,
// a table is cheaper than one that grows.
const hitTable = `return {
  algorithm = algorithm, kind = kind, denied = denied, slot = slot, cost = cost, capacity = capacity, limit = limit,
  w = w, most = most, patience = patience, leaky = leaky, calendar = calendar, now = now, ms = ms,
  first = first, second = second, third = third, after = after, allowed = false, queued = false, delay = 0, ahead = 0, f = false, s = false,
}
`

// Marks in the scripts: what an algorithm's file has after the first is made only
// where single.lua has the second, or when multi.lua asks for it. The third stands
// for read.lua.
const (
	rareMark     = "--- rare\n"
	rareHereMark = "--- rare functions stand here\n"
	readHereMark = "--- read.lua stands here\n"
)

func (s *scripts) all() []script {
	return append(s.single[:], s.fixedBack, s.multi, s.giveBack, s.loose)
}

// Modes of multi.lua.
const (
	modeAllOrNothing = iota
	modeEach
	modePart    // of a request over several slots
	modeRefused // another part has refused the request
)

// Kinds of hits, as prelude.lua has them.
const (
	kindEnforced = iota
	kindShadow
	kindQuota
	kindRefund
)

// Units of a hit's times.
const (
	unitMicros = iota
	unitMillis
	unitCalendar // milliseconds, and the bounds of two windows
)

const maxWhole = 1<<53 - 1

// appendHit appends the record of a hit, as read in prelude.lua says. The slot
// is the place of its key in KEYS, from 1, and queue that of its overflow's, or 0;
// now is where calendar windows are looked up.
func appendHit(b []byte, h *limiter.Hit, slot, queue int, now time.Time) []byte {
	l := &h.Limit
	n := l.Numbers()
	algorithm, cost, patience := l.Algorithm, min(h.Cost, limiter.MaxCost), uint64(min(max(0, h.MaxDelay)/n.Unit, maxWhole))
	if queue > 0 { // one place, and what it charges when it departs
		n.Most = int64(min(cost, uint64(n.Most/n.Window))) * n.Window
		algorithm, cost, patience = queueing, min(cost, 1), uint64(queue)
	}
	kind := byte(kindEnforced)
	switch {
	case h.Refund:
		kind = kindRefund
	case h.Shadow:
		kind = kindShadow
	case h.Quota:
		kind = kindQuota
	}
	unit := byte(unitMicros)
	switch {
	case l.Window.Calendar != limiter.NoCalendar:
		unit = unitCalendar
	case n.Unit == time.Millisecond:
		unit = unitMillis
	}
	b = append(b, byte(algorithm), kind, bit(l.CountDenied && queue == 0), unit)
	b = appendInt(b, uint64(slot), 4)
	b = appendInt(b, cost, 5)
	b = appendInt(b, uint64(n.Capacity), 6)
	b = appendInt(b, l.Requests, 4)
	b = appendInt(b, uint64(n.Window), 5)
	b = appendInt(b, uint64(n.Most), 7)
	b = appendInt(b, patience, 7)
	if unit == unitCalendar {
		for _, t := range l.Window.Bounds(now) {
			b = appendInt(b, uint64(t), 6)
		}
	}
	return b
}

func bit(on bool) byte {
	if on {
		return 1
	}
	return 0
}

// appendInt appends the low bytes of a whole number, the lowest first.
func appendInt(b []byte, n uint64, bytes int) []byte {
	var all [8]byte
	binary.LittleEndian.PutUint64(all[:], n)
	return append(b, all[:bytes]...)
}

// answer is what a script said.
type answer struct {
	decisions       []limiter.Decision
	dropped, healed int64
	clock           int64   // Redis's, in µs since 1970; 0: not told
	outside         bool    // no calendar window that was sent has Redis's time in it: nothing was charged
	receipts        []int64 // modePart: of each hit that was charged, else -1
}

var errReply = errors.New("a script's answer has another shape than its hits; does another version of Weir share this Redis under this key prefix?")

// decode reads a script's reply, as prelude.lua says. Where it leaves out when the
// window ends, that is the expected one.
func decode(reply []int64, hits []limiter.Hit, receipts bool, expected window) (a answer, err error) {
	if len(reply) == 1 && reply[0] == -1 {
		return answer{outside: true}, nil
	}
	if len(hits) == 1 {
		switch len(reply) {
		case 1:
			reply = []int64{0, 0, 1, reply[0], expected.left}
		case 2:
			reply = []int64{0, 0, 1, reply[0], reply[1]}
		case 3:
			a.clock = reply[2]
			reply = []int64{0, 0, 1, reply[0], reply[1]}
		}
	}
	if len(reply) < 2 {
		return a, errReply
	}
	a.dropped, a.healed, reply = reply[0], reply[1], reply[2:]
	a.decisions = make([]limiter.Decision, len(hits))
	for i := range hits {
		n := 3
		if len(reply) > 0 && reply[0]&2 != 0 {
			n++
		}
		if receipts {
			n++
		}
		if len(reply) < n {
			return a, errReply
		}
		a.decisions[i] = decision(&hits[i], reply)
		if receipts {
			a.receipts = append(a.receipts, reply[n-1])
		}
		reply = reply[n:]
	}
	if len(reply) > 0 {
		return a, errReply
	}
	return a, nil
}

// decision is what the reply says of the hit that it begins with.
func decision(h *limiter.Hit, reply []int64) (d limiter.Decision) {
	l := &h.Limit
	d.Allowed = reply[0]&1 != 0
	if l.Requests > 0 {
		d.Remaining = uint64(max(0, l.Numbers().Capacity-reply[1]))
		d.ResetAfter = l.Duration(reply[2])
	}
	if reply[0]&2 == 0 {
		return d
	}
	switch wait := l.Duration(reply[3]); {
	case !d.Allowed:
		d.RetryAfter = wait
	case !h.Shadow:
		d.Delay, d.Queued = wait, reply[0]&4 != 0
	}
	return d
}
