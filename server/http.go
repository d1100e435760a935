package server

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/pprof"
	"strings"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"weir/server/console"
)

// maxJSON bounds the body of a request to /json.
const maxJSON = 1 << 20

// HTTPOptions configures the HTTP surface. Ready and Rules are required.
type HTTPOptions struct {
	Ready   func() (report string, err error) // nil error: rules are loaded; the report, in lines, says which
	Rules   func() any                        // what /rules shows, as JSON
	Metrics http.Handler                      // /metrics; nil: there are none
	Access  *Access                           // to what is for operators: most of /v1, and /debug/pprof; nil: that of the zero AccessOptions
}

// NewHTTP serves /healthz, /readyz, /healthcheck, /rules, /metrics, /json, /v1 and
// /debug/pprof; without a service, which is while it starts, all but /json and the
// methods of /v1.
//
// Who does not read its answer is cut off after a while: see cutOff.
func NewHTTP(s *Service, opts HTTPOptions) http.Handler { return cutOff(newMux(s, opts)) }

func newMux(s *Service, opts HTTPOptions) http.Handler {
	mux := http.NewServeMux()
	page := console.Handler()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "ok\n") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		report, err := opts.Ready()
		if err != nil {
			http.Error(w, strings.TrimSuffix(err.Error()+"\n"+report, "\n"), http.StatusServiceUnavailable)
			return
		}
		io.WriteString(w, "ok\n"+report)
	})
	// The path and the answers that probes of envoyproxy/ratelimit are written for.
	mux.HandleFunc("GET /healthcheck", func(w http.ResponseWriter, _ *http.Request) {
		if _, err := opts.Ready(); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		io.WriteString(w, "OK")
	})
	mux.Handle("GET /{$}", page)
	mux.Handle("GET /console/", page)
	mux.HandleFunc("GET /rules", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		_ = e.Encode(opts.Rules()) // the client has gone if this fails
	})
	if opts.Metrics != nil {
		mux.Handle("GET /metrics", opts.Metrics)
	}
	mux.Handle("/v1/", newV1(s, opts.Access))
	mux.Handle("/debug/pprof/", opts.Access.Operators("/debug/pprof", profiles()))
	if s == nil {
		mux.HandleFunc("POST /json", func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "starting: nothing is decided yet, see /readyz", http.StatusServiceUnavailable)
		})
		return mux
	}
	mux.HandleFunc("POST /json", s.serveJSON)
	return mux
}

// profiles are those of net/http/pprof, which are elsewhere only by its import.
func profiles() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	return mux
}

// serveJSON decides a RateLimitRequest in protobuf's JSON form: 200 or 429 with
// the RateLimitResponse, and its headers as those of the HTTP answer. Where
// refused requests get a body, it is the body of the 429.
func (s *Service) serveJSON(w http.ResponseWriter, r *http.Request) {
	resp, err := s.decideJSON(r.Context(), http.MaxBytesReader(w, r.Body, maxJSON))
	if err != nil {
		st := grpcstatus.Convert(err)
		http.Error(w, st.Message(), httpStatus(st.Code()))
		return
	}
	body, err := protojson.Marshal(resp)
	if err != nil {
		http.Error(w, "encoding the answer: "+err.Error(), http.StatusInternalServerError)
		return
	}
	body = append(body, '\n')
	contentType := "application/json"
	if len(resp.RawBody) > 0 {
		body, contentType = resp.RawBody, "text/plain; charset=utf-8"
	}
	w.Header().Set("Content-Type", contentType)
	for _, h := range resp.ResponseHeadersToAdd {
		if h.Key == "Content-Type" {
			w.Header().Set(h.Key, h.Value)
			continue
		}
		w.Header().Add(h.Key, h.Value)
	}
	if resp.OverallCode == rls.RateLimitResponse_OVER_LIMIT {
		w.WriteHeader(http.StatusTooManyRequests)
	}
	w.Write(body) // the client has gone if this fails
}

// decideJSON takes the same way as a gRPC call, from the wire form on.
func (s *Service) decideJSON(ctx context.Context, body io.Reader) (_ *rls.RateLimitResponse, err error) {
	defer func() { s.recovered(recover(), "/json", &err) }()
	message, err := readJSON(body)
	if err != nil {
		s.opts.Metrics.Unread(uint32(grpcstatus.Code(err)))
		return nil, err
	}
	c := s.calls.get()
	defer s.calls.put(c)
	c.decode(mem.BufferSlice{mem.SliceBuffer(message)})
	if err := s.answer(ctx, c); err != nil {
		return nil, err
	}
	resp := new(rls.RateLimitResponse)
	if err := proto.Unmarshal(c.answer.appendTo(nil), resp); err != nil {
		return nil, grpcstatus.Errorf(codes.Internal, "encoding the answer: %v", err)
	}
	return resp, nil
}

// readJSON returns the wire form of a RateLimitRequest in JSON. Its errors are gRPC
// statuses.
func readJSON(body io.Reader) ([]byte, error) {
	text, err := io.ReadAll(body)
	if tooLarge := new(http.MaxBytesError); errors.As(err, &tooLarge) {
		return nil, grpcstatus.Errorf(codes.OutOfRange, "the body is over %d bytes", tooLarge.Limit)
	}
	if err != nil {
		return nil, grpcstatus.Errorf(codes.InvalidArgument, "reading the body: %v", err)
	}
	var req rls.RateLimitRequest
	if err := protojson.Unmarshal(text, &req); err != nil {
		return nil, grpcstatus.Errorf(codes.InvalidArgument, "the body is not a RateLimitRequest: %v", err)
	}
	message, err := proto.Marshal(&req)
	if err != nil {
		return nil, grpcstatus.Errorf(codes.InvalidArgument, "encoding the request: %v", err)
	}
	return message, nil
}

func httpStatus(c codes.Code) int {
	switch c {
	case codes.InvalidArgument:
		return http.StatusBadRequest
	case codes.OutOfRange:
		return http.StatusRequestEntityTooLarge
	case codes.Unavailable, codes.ResourceExhausted: // the latter is shed: 429 would say that a limit refuses
		return http.StatusServiceUnavailable
	case codes.DeadlineExceeded:
		return http.StatusGatewayTimeout
	case codes.Unauthenticated:
		return http.StatusUnauthorized
	case codes.PermissionDenied:
		return http.StatusForbidden
	case codes.Canceled:
		return 499 // as the gateway says it; who left does not read it
	}
	return http.StatusInternalServerError
}
