package chaos

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"sync"
	"time"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	weirv1 "weir/api/weir/v1"
)

// patience is how long a client waits. No answer takes so long, but of an instance
// that is killed or stopped.
const patience = 3 * time.Second

// load asks all instances until the context ends: rate requests a second,
// answered or not.
func (w *world) load(ctx context.Context, rate int) {
	r := rand.New(rand.NewPCG(w.seed, 2))
	total := 0
	for i := range shapes {
		total += shapes[i].weight
	}
	var asking sync.WaitGroup
	defer asking.Wait()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	begin := time.Now()
	for sent := 0; ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		for due := int(time.Since(begin).Seconds() * float64(rate)); sent < due; sent++ {
			n := r.IntN(total)
			var s *shape
			for i := range shapes {
				if s = &shapes[i]; n < s.weight {
					break
				}
				n -= s.weight
			}
			entries, hits := s.request(r, w.since())
			in := w.instances[r.IntN(len(w.instances))]
			asking.Go(func() { w.answer(w.ask(in, s.how, entries, hits)) })
		}
	}
}

// ask asks an instance once.
func (w *world) ask(in *instance, how string, entries []entry, hits uint64) answer {
	began := w.since()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	a := answer{start: began, instance: in.n, life: int(in.life.Load()), hits: hits}
	for _, e := range entries {
		a.rules = append(a.rules, e.key)
	}
	var err error
	switch how {
	case "":
		var resp *weirv1.CheckResponse
		if resp, err = weirv1.NewWeirServiceClient(in.conn).Check(ctx, checkRequest(entries, hits)); err == nil {
			a.allowed = resp.GetAllowed()
			err = a.take(resp, entries)
		}
	case "rls":
		var resp *rls.RateLimitResponse
		if resp, err = rls.NewRateLimitServiceClient(in.conn).ShouldRateLimit(ctx, rlsRequest(entries)); err == nil {
			a.allowed = resp.GetOverallCode() == rls.RateLimitResponse_OK
		}
	case "json":
		a.allowed, err = w.askJSON(ctx, in, entries)
	}
	a.end = w.since()
	if int(in.life.Load()) != a.life {
		a.life = -a.life // one or the other
	}
	a.code = status.Code(err)
	if err != nil {
		a.text = err.Error()
	} else if how != "" && !a.allowed {
		w.found(fmt.Sprintf("%.2fs: instance %d refused %v by %s, which the load does not reach", a.end.Seconds(), in.n, a.rules, how))
	}
	return a
}

// take reads what Check says.
func (a *answer) take(resp *weirv1.CheckResponse, entries []entry) error {
	for _, d := range resp.GetDecisions() {
		p, ok := policyOf(d.GetRule(), d.GetAlgorithm(), d.GetWindow().AsDuration())
		if !ok || int(d.GetDescriptorIndex()) >= len(entries) {
			return fmt.Errorf("a decision that no rule explains: %v", d)
		}
		e := entries[d.GetDescriptorIndex()]
		counter := fmt.Sprintf("%s=%s (%s, %v)", e.key, e.value, p.algorithm, p.window)
		a.verdicts = append(a.verdicts, verdict{p, counter, d.GetLimit(), d.GetAllowed(), d.GetRemaining(), d.GetDelay().AsDuration(), d.GetDecidedBy()})
	}
	return nil
}

func rlsRequest(entries []entry) *rls.RateLimitRequest {
	req := &rls.RateLimitRequest{Domain: "chaos"}
	for _, e := range entries {
		req.Descriptors = append(req.Descriptors, &ratelimit.RateLimitDescriptor{Entries: []*ratelimit.RateLimitDescriptor_Entry{{Key: e.key, Value: e.value}}})
	}
	return req
}

// askJSON asks over HTTP. No answer is an error as gRPC has it.
func (w *world) askJSON(ctx context.Context, in *instance, entries []entry) (allowed bool, err error) {
	body, err := json.Marshal(map[string]any{"domain": "chaos", "descriptors": []any{map[string]any{"entries": []any{map[string]string{"key": entries[0].key, "value": entries[0].value}}}}})
	if err != nil {
		return false, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+in.http+"/json", bytes.NewReader(body))
	if err != nil {
		return false, err
	}
	resp, err := w.client.Do(req)
	if err != nil {
		return false, asGRPC(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	switch {
	case err != nil:
		return false, asGRPC(err)
	case resp.StatusCode == http.StatusOK, resp.StatusCode == http.StatusTooManyRequests:
		return resp.StatusCode == http.StatusOK, nil
	}
	code := codes.Unknown
	if resp.StatusCode == http.StatusServiceUnavailable {
		code = codes.Unavailable // as an instance that begins says it, before it has rules
	}
	return false, status.Errorf(code, "/json answered %d: %s", resp.StatusCode, text)
}

// asGRPC is no answer of HTTP as gRPC tells of it.
func asGRPC(err error) error {
	if errors.Is(err, context.DeadlineExceeded) || os.IsTimeout(err) {
		return status.Error(codes.DeadlineExceeded, err.Error())
	}
	return status.Error(codes.Unavailable, err.Error())
}
