package load

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protowire"
)

// gubernatorLimit is what its requests say of the limit: there are no rules in
// the server.
const (
	gubernatorLimit  = 4_000_000_000
	gubernatorWindow = 28 * 24 * 3600 * 1000 // ms
)

type gubernatorAsker struct {
	conns    Conns
	requests [][]byte // by value
	looks    [][]byte
}

// NewGubernator asks gubernator (pb.gubernator.V1) what the load asks; a
// descriptor is one of its limits, by its token bucket, which resets at the
// window's end as a fixed window does.
func NewGubernator(conns Conns, l Load) Asker {
	a := &gubernatorAsker{conns: conns}
	for v := range l.Values {
		var request []byte
		for i := range l.Descriptors {
			request = appendLimit(request, l, (v+i)%l.Values, 1)
		}
		a.requests = append(a.requests, request)
		a.looks = append(a.looks, appendLimit(nil, l, v, 0))
	}
	return a
}

// appendLimit adds a RateLimitReq to GetRateLimitsReq.requests.
func appendLimit(b []byte, l Load, value int, hits uint64) []byte {
	var r []byte
	r = protowire.AppendString(protowire.AppendTag(r, 1, protowire.BytesType), l.Entry)
	r = protowire.AppendString(protowire.AppendTag(r, 2, protowire.BytesType), l.Prefix+strconv.Itoa(value))
	r = protowire.AppendVarint(protowire.AppendTag(r, 3, protowire.VarintType), hits)
	r = protowire.AppendVarint(protowire.AppendTag(r, 4, protowire.VarintType), gubernatorLimit)
	r = protowire.AppendVarint(protowire.AppendTag(r, 5, protowire.VarintType), gubernatorWindow)
	return protowire.AppendBytes(protowire.AppendTag(b, 1, protowire.BytesType), r)
}

func (a *gubernatorAsker) Ask(ctx context.Context, worker, value int) (bool, error) {
	over, _, err := a.call(ctx, worker, a.requests[value])
	return over, err
}

func (a *gubernatorAsker) Look(ctx context.Context, value int) (limit, remaining uint64, told bool, err error) {
	_, remaining, err = a.call(ctx, 0, a.looks[value])
	return gubernatorLimit, remaining, err == nil, err
}

func (a *gubernatorAsker) call(ctx context.Context, worker int, request []byte) (over bool, remaining uint64, err error) {
	var answer []byte
	err = a.conns[worker%len(a.conns)].Invoke(ctx, "/pb.gubernator.V1/GetRateLimits", &request, &answer, grpc.ForceCodec(raw{}))
	if err != nil {
		return false, 0, err
	}
	return readLimits(answer)
}

// readLimits reads GetRateLimitsResp: whether any limit refuses, and what is
// left of the first.
func readLimits(b []byte) (over bool, remaining uint64, err error) {
	n := 0
	err = fields(b, func(number protowire.Number, _ uint64, limit []byte) error {
		if number != 1 {
			return nil
		}
		n++
		return fields(limit, func(number protowire.Number, v uint64, text []byte) error {
			switch {
			case number == 1:
				over = over || v != 0
			case number == 3 && n == 1:
				remaining = v
			case number == 5 && len(text) > 0:
				return fmt.Errorf("gubernator: %s", text)
			}
			return nil
		})
	})
	if err == nil && n == 0 {
		err = errors.New("gubernator: an answer with no limit in it")
	}
	return over, remaining, err
}

// fields calls f with each field of a message.
func fields(b []byte, f func(number protowire.Number, v uint64, text []byte) error) error {
	for len(b) > 0 {
		number, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return protowire.ParseError(n)
		}
		b = b[n:]
		var v uint64
		var text []byte
		switch kind {
		case protowire.VarintType:
			v, n = protowire.ConsumeVarint(b)
		case protowire.BytesType:
			text, n = protowire.ConsumeBytes(b)
		default:
			n = protowire.ConsumeFieldValue(number, kind, b)
		}
		if n < 0 {
			return protowire.ParseError(n)
		}
		if err := f(number, v, text); err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

// raw passes messages as the bytes they are.
type raw struct{}

func (raw) Name() string { return "proto" }

func (raw) Marshal(v any) ([]byte, error) {
	b, ok := v.(*[]byte)
	if !ok {
		return nil, fmt.Errorf("raw codec: a %T", v)
	}
	return *b, nil
}

func (raw) Unmarshal(data []byte, v any) error {
	b, ok := v.(*[]byte)
	if !ok {
		return fmt.Errorf("raw codec: a %T", v)
	}
	*b = append((*b)[:0], data...)
	return nil
}
