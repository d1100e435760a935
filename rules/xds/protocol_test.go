package xds

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	ads "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	pb "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"weir/internal/testenv"
)

// scripted is an ADS server of another make, which sends what the test says
// without waiting to be asked.
type scripted struct {
	ads.UnimplementedAggregatedDiscoveryServiceServer
	*control
	send chan *ads.DiscoveryResponse
	end  chan error // ends a stream
}

func newScripted(t *testing.T) *scripted {
	t.Helper()
	s := &scripted{control: &control{t: t, addr: testenv.FreeAddr(t)}, send: make(chan *ads.DiscoveryResponse), end: make(chan error)}
	s.serve(s)
	t.Cleanup(func() {
		if s.stop != nil {
			s.stop()
		}
	})
	return s
}

func (s *scripted) StreamAggregatedResources(stream ads.AggregatedDiscoveryService_StreamAggregatedResourcesServer) error {
	go func() {
		for {
			request, err := stream.Recv()
			if err != nil {
				return
			}
			s.note(request)
		}
	}()
	for {
		select {
		case <-stream.Context().Done():
			return stream.Context().Err()
		case err := <-s.end:
			return err
		case resp := <-s.send:
			if err := stream.Send(resp); err != nil {
				return err
			}
		}
	}
}

// response is one with these resources, its nonce being n and its version too.
func response(t *testing.T, n int, configs ...*pb.RateLimitConfig) *ads.DiscoveryResponse {
	t.Helper()
	resp := &ads.DiscoveryResponse{TypeUrl: typeURL, VersionInfo: fmt.Sprint(n), Nonce: fmt.Sprint("n", n)}
	for _, config := range configs {
		item, err := anypb.New(config)
		must(t, err)
		resp.Resources = append(resp.Resources, item)
	}
	return resp
}

func TestAGoodResponseInThePauseBeforeANackIsTakenAtOnce(t *testing.T) {
	t.Parallel()
	s := newScripted(t)
	times := quick
	times.pause = 2 * time.Second
	f := follow(t, "xds://"+s.addr, Options{}, times)
	s.send <- response(t, 1, faulty("api"))
	f.awaitApplies(1, 1)
	s.send <- response(t, 2, limit("api", "a"))
	f.awaitApplies(2, 1)
	f.holds("api/a")
	s.awaitRequests("ask", "ack 2")
	if got := s.seen()[1].ResponseNonce; got != "n2" {
		t.Errorf("the ACK has the nonce %s", got)
	}
	time.Sleep(times.pause + 100*time.Millisecond) // no NACK is to come, which cannot be polled for
	s.awaitRequests("ask", "ack 2")
}

func TestAServerThatRepeatsWhatIsRefusedIsToldAndNotSpunWith(t *testing.T) {
	t.Parallel()
	s := newScripted(t)
	times := quick
	times.pause = 500 * time.Millisecond
	f := follow(t, "xds://"+s.addr, Options{}, times)
	begin := time.Now()
	n := 0
	for time.Since(begin) < 4*times.pause {
		n++
		s.send <- response(t, n, faulty("api"))
		time.Sleep(times.pause / 50) // a server's own pace
	}
	nacks := len(s.seen()) - 1
	if most := int(time.Since(begin) / (times.pause / 2)); nacks < 2 || nacks > most {
		t.Errorf("%d NACKs for %d responses, want 2 to %d", nacks, n, most)
	}
	f.awaitApplies(1, 1)
	s.send <- response(t, 1000, faulty("web")) // other content is applied, though as bad
	f.awaitApplies(2, 2)
}

func TestANackIsOfTheResponseBeforeItAndBounded(t *testing.T) {
	t.Parallel()
	s := newScripted(t)
	f := follow(t, "xds://"+s.addr, Options{}, quick)
	long := &pb.RateLimitConfig{Domain: strings.Repeat("ü", 60)}
	for i := range 200 { // faults
		d := faulty("").Descriptors[0]
		d.Value = fmt.Sprint(i)
		long.Descriptors = append(long.Descriptors, d)
	}
	s.send <- response(t, 1, long)
	s.awaitRequests("ask", "nack")
	message := s.seen()[1].ErrorDetail.Message
	if len(message) > 4<<10 || len(message) < 4000 || !utf8.ValidString(message) || !strings.HasSuffix(message, "…") {
		t.Errorf("%d bytes: …%s", len(message), message[len(message)-20:])
	}
	f.awaitApplies(1, 1)
}

func TestWhatIsNoRateLimitConfigIsRefused(t *testing.T) {
	t.Parallel()
	other, err := anypb.New(&ads.DiscoveryRequest{})
	must(t, err)
	for _, row := range []struct {
		remark string
		item   *anypb.Any
		want   string
	}{
		{"another type", other, `: a resource is a "type.googleapis.com/envoy.service.discovery.v3.DiscoveryRequest", not a "` + typeURL + `"`},
		{"bytes of nothing", &anypb.Any{TypeUrl: typeURL, Value: []byte("\xff\xff")}, ": a resource is not the RateLimitConfig that it says it is: "},
		{"a domain that is not UTF-8", &anypb.Any{TypeUrl: typeURL, Value: []byte("\x12\x01\xff")}, "UTF-8"},
		{"nothing", &anypb.Any{}, `: a resource is a "", not a`},
	} {
		s := newScripted(t)
		f := follow(t, "xds://"+s.addr, Options{}, quick)
		resp := response(t, 1, limit("api", "a"), faulty("web"))
		resp.Resources = append(resp.Resources, row.item)
		s.send <- resp
		s.awaitRequests("ask", "nack")
		// All faults are told at once.
		got := s.seen()[1].ErrorDetail.Message
		if !strings.Contains(got, "xds://"+s.addr+row.want) && !strings.Contains(got, row.want) || !strings.Contains(got, "/web:7:13: unknown unit") {
			t.Errorf("%s: %s", row.remark, got)
		}
		slices.Reverse(resp.Resources) // the same in another order
		s.send <- resp
		s.awaitRequests("ask", "nack", "nack")
		f.awaitApplies(1, 1)
	}
}

func TestOtherTypesOnTheStreamAreLeftAlone(t *testing.T) {
	t.Parallel()
	s := newScripted(t)
	f := follow(t, "xds://"+s.addr, Options{}, quick)
	s.send <- &ads.DiscoveryResponse{TypeUrl: resource.ClusterType, VersionInfo: "1", Nonce: "n1"}
	untyped := response(t, 2, limit("api", "a"))
	untyped.TypeUrl = "" // the resources say it
	s.send <- untyped
	s.awaitRequests("ask", "ack 2")
	f.awaitApplies(1, 0)
	f.holds("api/a")
	if !strings.Contains(f.log.String(), resource.ClusterType) {
		t.Errorf("the log says %q", f.log)
	}
}

func TestFieldsOfLaterProtosAreWarnedOf(t *testing.T) {
	t.Parallel()
	s := newScripted(t)
	f := follow(t, "xds://"+s.addr, Options{}, quick)
	config := limit("api", "a")
	config.Descriptors[0].RateLimit.ProtoReflect().SetUnknown([]byte("\xa0\x06\x01")) // field 100: 1
	s.send <- response(t, 1, limit("web", "b"), config)
	f.awaitApplies(1, 0)
	f.holds("api/a", "web/b")
	if log := f.log.String(); strings.Count(log, "fields that this version of Weir does not know") != 1 || !strings.Contains(log, "resource=xds://"+s.addr+"/api\n") {
		t.Errorf("the log says %q", log)
	}
}

func TestAStreamIsTriedAgainHoweverItEnds(t *testing.T) {
	t.Parallel()
	s := newScripted(t)
	f := follow(t, "xds://"+s.addr, Options{}, quick)
	refused := 0
	for _, row := range []struct {
		end  error
		want string
	}{
		{nil, "the server ended the stream before it sent rules"},
		{status.Error(codes.PermissionDenied, "not you"), "no stream of rules: not you"},
		{status.Error(codes.Unimplemented, "what?"), "is it the control plane's xDS port?"},
		{status.Error(codes.PermissionDenied, "again not you"), ""}, // told already
	} {
		s.end <- row.end
		if row.want != "" {
			refused++
			f.awaitApplies(refused, refused)
			if got := f.status().LastError; !strings.HasSuffix(got, row.want) {
				t.Errorf("%s, want %s", got, row.want)
			}
		}
	}
	s.send <- response(t, 1, limit("api", "a"))
	f.awaitApplies(refused+1, refused)
	f.holds("api/a")
}

func TestALargeSetIsTakenAndATooLargeOneSaysSo(t *testing.T) {
	t.Parallel()
	s := newScripted(t)
	f := follow(t, "xds://"+s.addr, Options{}, quick)
	padded := func(size int) *pb.RateLimitConfig {
		config := limit("api", "a")
		for i := range size >> 14 {
			config.Descriptors = append(config.Descriptors, &pb.RateLimitDescriptor{Key: fmt.Sprint(i), Value: strings.Repeat("x", 1<<14)})
		}
		return config
	}
	s.send <- response(t, 1, padded(10<<20)) // gRPC's own bound is 4 MiB
	s.awaitRequests("ask", "ack 1")
	f.awaitApplies(1, 0)
	f.holds("api/a")
	for range 2 { // it is no news until the next stream ends so too
		s.send <- response(t, 2, padded(maxMessage))
	}
	f.awaitApplies(2, 1)
	if got := f.status().LastError; !strings.HasSuffix(got, "; a set of rules may have 64 MiB; the last good rules stay") {
		t.Error(got)
	}
	f.holds("api/a")
}

func TestTheSameRulesEncodedAnewAreTheSame(t *testing.T) {
	many := everything(t)
	item, err := anypb.New(many)
	must(t, err)
	first := decode([]*anypb.Any{item})
	for range 20 { // maps are written in an order of chance
		value, err := proto.Marshal(many)
		must(t, err)
		if decode([]*anypb.Any{{TypeUrl: typeURL, Value: value}}).print != first.print {
			t.Fatal("another fingerprint")
		}
	}
	for _, other := range [][]*anypb.Any{nil, {item, item}, {{TypeUrl: typeURL}}} {
		if decode(other).print == first.print || decode(other).print == (fingerprint{}) {
			t.Errorf("the fingerprint of %v", other)
		}
	}
}
