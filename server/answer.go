package server

import (
	"math"
	"strconv"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/encoding/protowire"

	"weir/limiter"
)

// answer is what a RateLimitResponse says. It is encoded by hand: the message
// of go-control-plane takes a dozen allocations.
type answer struct {
	over     bool
	statuses []status
	headers  []header
	upstream []header // for the request to the upstream
	body     []byte   // of the response to a refused request; nil: Envoy's own, which is empty
	metadata []byte   // an encoded google.protobuf.Struct
	inner    []byte   // scratch for messages within messages
}

// status is a RateLimitResponse.DescriptorStatus.
type status struct {
	over      bool
	limit     *limiter.Limit // nil: no limit
	name      string         // of the limit's rule
	remaining uint32
	reset     time.Duration
	hasReset  bool
}

// header is a field of an HTTP message. A number is written where it is needed,
// without a string of its own.
type header struct {
	key, value string
	number     uint64
	isNumber   bool // value is not used
}

func textHeader(key, value string) header      { return header{key: key, value: value} }
func numberHeader(key string, n uint64) header { return header{key: key, number: n, isNumber: true} }

func (h *header) appendValue(b []byte) []byte {
	if h.isNumber {
		return strconv.AppendUint(b, h.number, 10)
	}
	return append(b, h.value...)
}

// appendTo appends an envoy.config.core.v3.HeaderValue.
func (h *header) appendTo(b []byte) []byte {
	b = appendString(b, 1, h.key)
	if !h.isNumber {
		return appendString(b, 2, h.value)
	}
	var digits [20]byte
	return appendBytes(b, 2, h.appendValue(digits[:0]))
}

func (a *answer) clear() {
	a.over, a.body, a.metadata = false, nil, nil
	a.statuses, a.headers, a.upstream = a.statuses[:0], a.headers[:0], a.upstream[:0]
}

// Field numbers of envoy/service/ratelimit/v3/rls.proto.
const (
	fieldOverallCode     = 1
	fieldStatuses        = 2
	fieldResponseHeaders = 3
	fieldRequestHeaders  = 4
	fieldRawBody         = 5
	fieldDynamicMetadata = 6

	fieldStatusCode      = 1
	fieldStatusLimit     = 2
	fieldStatusRemaining = 3
	fieldStatusReset     = 4

	fieldLimitRequests   = 1
	fieldLimitUnit       = 2
	fieldLimitName       = 3
	fieldLimitMultiplier = 4
)

func (a *answer) appendTo(b []byte) []byte {
	b = appendVarint(b, fieldOverallCode, code(a.over))
	for i := range a.statuses {
		a.inner = a.statuses[i].appendTo(a.inner[:0])
		b = appendBytes(b, fieldStatuses, a.inner)
	}
	for i := range a.headers {
		a.inner = a.headers[i].appendTo(a.inner[:0])
		b = appendBytes(b, fieldResponseHeaders, a.inner)
	}
	for i := range a.upstream {
		a.inner = a.upstream[i].appendTo(a.inner[:0])
		b = appendBytes(b, fieldRequestHeaders, a.inner)
	}
	if len(a.body) > 0 {
		b = appendBytes(b, fieldRawBody, a.body)
	}
	if a.metadata != nil {
		b = appendBytes(b, fieldDynamicMetadata, a.metadata)
	}
	return b
}

func (s *status) appendTo(b []byte) []byte {
	b = appendVarint(b, fieldStatusCode, code(s.over))
	if s.limit != nil {
		var space [96]byte
		limit := appendVarint(space[:0], fieldLimitRequests, s.limit.Requests)
		unit, times := unitOf(s.limit.Window)
		limit = appendVarint(limit, fieldLimitUnit, uint64(unit))
		if s.name != "" {
			limit = appendString(limit, fieldLimitName, s.name)
		}
		if times > 1 {
			var value [12]byte
			limit = appendBytes(limit, fieldLimitMultiplier, appendVarint(value[:0], 1, times))
		}
		b = appendBytes(b, fieldStatusLimit, limit)
	}
	if s.remaining > 0 {
		b = appendVarint(b, fieldStatusRemaining, uint64(s.remaining))
	}
	if s.hasReset {
		var value [12]byte
		b = appendBytes(b, fieldStatusReset, appendVarint(value[:0], 1, seconds(s.reset)))
	}
	return b
}

func code(over bool) uint64 {
	if over {
		return uint64(rls.RateLimitResponse_OVER_LIMIT)
	}
	return uint64(rls.RateLimitResponse_OK)
}

func appendVarint(b []byte, n protowire.Number, v uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(b, n, protowire.VarintType), v)
}

func appendBytes(b []byte, n protowire.Number, v []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, n, protowire.BytesType), v)
}

func appendString(b []byte, n protowire.Number, v string) []byte {
	return protowire.AppendString(protowire.AppendTag(b, n, protowire.BytesType), v)
}

// seconds rounds up: Envoy cuts fractions, and a client that waits must not come
// too early.
func seconds(d time.Duration) uint64 {
	whole := d / time.Second
	if d%time.Second > 0 {
		whole++
	}
	return uint64(max(0, whole))
}

func clamp32(n uint64) uint32 { return uint32(min(n, math.MaxUint32)) }

var units = [...]struct {
	length time.Duration
	unit   rls.RateLimitResponse_RateLimit_Unit
}{
	{limiter.YearLength, rls.RateLimitResponse_RateLimit_YEAR},
	{limiter.MonthLength, rls.RateLimitResponse_RateLimit_MONTH},
	{limiter.WeekLength, rls.RateLimitResponse_RateLimit_WEEK},
	{limiter.DayLength, rls.RateLimitResponse_RateLimit_DAY},
	{time.Hour, rls.RateLimitResponse_RateLimit_HOUR},
	{time.Minute, rls.RateLimitResponse_RateLimit_MINUTE},
	{time.Second, rls.RateLimitResponse_RateLimit_SECOND},
}

// unitOf is the largest unit that divides the window, and how often; UNKNOWN for
// a window that is no whole number of seconds.
func unitOf(w limiter.Window) (rls.RateLimitResponse_RateLimit_Unit, uint64) {
	for i := range units {
		if u := &units[i]; w.Length%u.length == 0 {
			return u.unit, uint64(w.Length / u.length)
		}
	}
	return rls.RateLimitResponse_RateLimit_UNKNOWN, 0
}
