package conformance_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	rlcommon "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// request reads a request: descriptors with commas between, of words key=value
// and
//
//	@DOMAIN     instead of the row's
//	*N          hits_addend of the request
//	+N          hits_addend of the descriptor
//	-           is_negative_hits
//	!N/UNITxM   a limit of the descriptor's own, xM may be left out
//	none        there are no descriptors
//	empty       a descriptor without entries
func request(t *testing.T, domain, ask string) *rls.RateLimitRequest {
	t.Helper()
	req := &rls.RateLimitRequest{Domain: domain}
	number := func(text string) uint32 {
		n, err := strconv.ParseUint(text, 10, 32)
		if err != nil {
			t.Fatalf("%s: %v", ask, err)
		}
		return uint32(n)
	}
	for part := range strings.SplitSeq(ask, ",") {
		d := &rlcommon.RateLimitDescriptor{}
		for _, word := range strings.Fields(part) {
			key, value, isEntry := strings.Cut(word, "=")
			switch {
			case word == "empty":
			case word == "none":
				d = nil
			case isEntry:
				d.Entries = append(d.Entries, &rlcommon.RateLimitDescriptor_Entry{Key: key, Value: value})
			case word[0] == '@':
				req.Domain = word[1:]
			case word[0] == '*':
				req.HitsAddend = number(word[1:])
			case word[0] == '+':
				d.HitsAddend = wrapperspb.UInt64(uint64(number(word[1:])))
			case word == "-":
				d.IsNegativeHits = true
			case word[0] == '!':
				n, unit, _ := strings.Cut(word[1:], "/")
				unit, times, multiplied := strings.Cut(unit, "x")
				d.Limit = &rlcommon.RateLimitDescriptor_RateLimitOverride{
					RequestsPerUnit: number(n), Unit: typev3.RateLimitUnit(typev3.RateLimitUnit_value[unit]),
				}
				if multiplied {
					d.Limit.UnitMultiplier = wrapperspb.UInt32(number(times))
				}
			default:
				t.Fatalf("%s: what is %q?", ask, word)
			}
		}
		if d != nil {
			req.Descriptors = append(req.Descriptors, d)
		}
	}
	return req
}

// answerText renders an answer in a line, the same for both services: headers by
// names in small letters, a time to wait as what it is the end of. Both calls it
// with the calendar's weeks, months and years, and with those of fixed lengths.
func answerText(resp *rls.RateLimitResponse, err error, calendar bool) string {
	if err != nil {
		st := grpcstatus.Convert(err)
		return fmt.Sprintf("error %v: %s", st.Code(), st.Message())
	}
	var parts []string
	for _, s := range resp.Statuses {
		text := "ok"
		if s.Code == rls.RateLimitResponse_OVER_LIMIT {
			text = "over"
		}
		if l := s.CurrentLimit; l != nil {
			text += " "
			if l.Name != "" {
				text += l.Name + ":"
			}
			text += fmt.Sprintf("%d/%v", l.RequestsPerUnit, l.Unit)
			if l.UnitMultiplier != nil {
				text += fmt.Sprintf("x%d", l.UnitMultiplier.Value)
			}
		}
		text += fmt.Sprintf(" left %d", s.LimitRemaining)
		if d := s.DurationUntilReset; d != nil {
			text += " " + untilText(d.AsDuration(), s.CurrentLimit, calendar)
		}
		parts = append(parts, text)
	}
	text := resp.OverallCode.String() + ": " + strings.Join(parts, ", ")
	for _, h := range resp.ResponseHeadersToAdd {
		value := h.Value
		if n, err := strconv.Atoi(value); err == nil && n > 60 && len(resp.Statuses) > 0 {
			value = untilText(time.Duration(n)*time.Second, resp.Statuses[0].CurrentLimit, calendar)
		}
		text += fmt.Sprintf("; %s: %s", strings.ToLower(h.Key), value)
	}
	return text
}

// untilText is "end" for a time until the end of the limit's window, up to three
// seconds that a slow machine may take.
func untilText(d time.Duration, l *rls.RateLimitResponse_RateLimit, calendar bool) string {
	now := time.Now().UTC()
	end := now
	day := 24 * time.Hour
	next := func(length time.Duration) time.Time {
		return time.Unix(0, (now.UnixNano()/int64(length)+1)*int64(length))
	}
	midnight := time.Date(now.Year(), now.Month(), now.Day(), 0, 0, 0, 0, time.UTC)
	switch unit := l.GetUnit(); {
	case l.GetUnitMultiplier() != nil:
		end = next(time.Hour * time.Duration(l.UnitMultiplier.Value)) // rows multiply hours only
	case unit == rls.RateLimitResponse_RateLimit_HOUR:
		end = next(time.Hour)
	case unit == rls.RateLimitResponse_RateLimit_DAY:
		end = next(day)
	case unit == rls.RateLimitResponse_RateLimit_WEEK && calendar:
		end = midnight.AddDate(0, 0, 7-(int(now.Weekday())+6)%7)
	case unit == rls.RateLimitResponse_RateLimit_WEEK:
		end = next(7 * day)
	case unit == rls.RateLimitResponse_RateLimit_MONTH && calendar:
		end = time.Date(now.Year(), now.Month()+1, 1, 0, 0, 0, 0, time.UTC)
	case unit == rls.RateLimitResponse_RateLimit_MONTH:
		end = next(30 * day)
	case unit == rls.RateLimitResponse_RateLimit_YEAR && calendar:
		end = time.Date(now.Year()+1, 1, 1, 0, 0, 0, 0, time.UTC)
	case unit == rls.RateLimitResponse_RateLimit_YEAR:
		end = next(365 * day)
	}
	if off := d - end.Sub(now); off > -2*time.Second && off < 4*time.Second {
		if unit := l.GetUnit(); calendar && unit >= rls.RateLimitResponse_RateLimit_MONTH { // and YEAR, WEEK
			return "calendar"
		}
		return "end"
	}
	return d.String()
}

// peer is one of the services that a row is run on.
type peer struct {
	name string
	rls.RateLimitServiceClient
}

func connect(t *testing.T, name, addr string) *peer {
	t.Helper()
	return connectBy(t, name, addr, insecure.NewCredentials())
}

func connectBy(t *testing.T, name, addr string, transport credentials.TransportCredentials) *peer {
	t.Helper()
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(transport))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return &peer{name, rls.NewRateLimitServiceClient(conn)}
}

// ask sends a request; the answers are the same line twice, unless calendars
// differ.
func (p *peer) ask(t *testing.T, domain, ask string) (fixed, calendar string, resp *rls.RateLimitResponse) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	resp, err := p.ShouldRateLimit(ctx, request(t, domain, ask))
	return answerText(resp, err, false), answerText(resp, err, true), resp
}
