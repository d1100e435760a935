package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"runtime/debug"
	"strings"
	"time"

	gateway "github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"github.com/grpc-ecosystem/grpc-gateway/v2/utilities"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	weirv1 "weir/api/weir/v1"
)

// v1 is weir.v1 as JSON under /v1. What comes in is checked here; then the gateway
// calls the methods, in this process.
type v1 struct {
	api     *api // nil: the server starts
	access  *Access
	gateway *gateway.ServeMux
	routes  map[string]route
	service *Service
}

// route is a method's way over HTTP, as weir.http.yaml maps it.
type route struct {
	method string // of HTTP
	call   string // the gRPC method
	query  proto.Message
}

// v1Routes are all, by path. A GET has its request in the query.
func v1Routes() map[string]route {
	return map[string]route{
		"/v1/check":       {http.MethodPost, weirv1.WeirService_Check_FullMethodName, nil},
		"/v1/check:batch": {http.MethodPost, weirv1.WeirService_CheckBatch_FullMethodName, nil},
		"/v1/peek":        {http.MethodPost, weirv1.WeirService_Peek_FullMethodName, nil},
		"/v1/explain":     {http.MethodPost, weirv1.WeirService_Explain_FullMethodName, nil},
		"/v1/enqueue":     {http.MethodPost, weirv1.WeirService_Enqueue_FullMethodName, nil},
		"/v1/reset":       {http.MethodPost, weirv1.WeirService_Reset_FullMethodName, nil},
		"/v1/rules":       {http.MethodGet, weirv1.WeirService_ListRules_FullMethodName, &weirv1.ListRulesRequest{}},
		"/v1/top":         {http.MethodGet, weirv1.WeirService_Top_FullMethodName, &weirv1.TopRequest{}},
		"/v1/stats":       {http.MethodGet, weirv1.WeirService_Stats_FullMethodName, &weirv1.StatsRequest{}},
		watchPath:         {http.MethodGet, weirv1.WeirService_WatchStats_FullMethodName, &weirv1.WatchStatsRequest{}},
	}
}

const (
	watchPath   = "/v1/stats:watch"
	openAPIPath = "/v1/openapi.json"
)

// messageJSON is how messages are written and read: with the fields that are zero,
// refusing those that are unknown, and without the blanks that protojson adds in one
// build and not in another, as a line.
type messageJSON struct{ gateway.JSONPb }

func v1JSON() *messageJSON {
	return &messageJSON{gateway.JSONPb{MarshalOptions: protojson.MarshalOptions{EmitUnpopulated: true}}}
}

// Marshal implements gateway.Marshaler.
func (m *messageJSON) Marshal(v any) ([]byte, error) {
	text, err := m.JSONPb.Marshal(v)
	if err != nil {
		return nil, err
	}
	line := bytes.NewBuffer(make([]byte, 0, len(text)+1))
	if err := json.Compact(line, text); err != nil {
		return nil, err
	}
	line.WriteByte('\n')
	return line.Bytes(), nil
}

func newV1(s *Service, access *Access) *v1 {
	v := &v1{access: access, routes: v1Routes(), service: s}
	if s == nil {
		return v
	}
	v.api = &api{service: s}
	v.gateway = gateway.NewServeMux(
		gateway.WithMarshalerOption(gateway.MIMEWildcard, v1JSON()),
		gateway.WithDisableHTTPMethodOverride(), gateway.WithDisablePathLengthFallback(),
		gateway.WithErrorHandler(func(_ context.Context, _ *gateway.ServeMux, _ gateway.Marshaler, w http.ResponseWriter, _ *http.Request, err error) {
			writeV1Error(w, err)
		}),
	)
	// It fails if patterns are wrong, and they are generated.
	if err := weirv1.RegisterWeirServiceHandlerServer(context.Background(), v.gateway, v.api); err != nil {
		panic(err)
	}
	return v
}

func (v *v1) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	defer v.recover(w, r)
	w.Header().Set("X-Content-Type-Options", "nosniff")
	if r.URL.Path == openAPIPath && (r.Method == http.MethodGet || r.Method == http.MethodHead) {
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, weirv1.OpenAPI())
		return
	}
	w.Header().Set("Cache-Control", "no-store")
	route, ok := v.routes[r.URL.Path]
	switch {
	case !ok:
		writeV1(w, http.StatusNotFound, codes.NotFound, "there is no such method; "+openAPIPath+" has them all")
		return
	case r.Method != route.method:
		w.Header().Set("Allow", route.method)
		writeV1(w, http.StatusMethodNotAllowed, codes.Unimplemented, "this method is called by "+route.method)
		return
	}
	if forOperators(route.call) {
		if err := v.access.lets(r, route.call[strings.LastIndexByte(route.call, '/')+1:]); err != nil {
			writeV1Error(w, err)
			return
		}
	}
	if v.api == nil {
		writeV1(w, http.StatusServiceUnavailable, codes.Unavailable, "starting: nothing is decided yet, see /readyz")
		return
	}
	v.serve(w, r, &route)
}

func (v *v1) serve(w http.ResponseWriter, r *http.Request, route *route) {
	query, err := readQuery(r.URL.RawQuery, route)
	if err != nil {
		writeV1Error(w, grpcstatus.Error(codes.InvalidArgument, err.Error()))
		return
	}
	if r.URL.Path == watchPath {
		v.watch(w, r, query)
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxJSON))
	if tooLarge := new(http.MaxBytesError); errors.As(err, &tooLarge) {
		writeV1(w, http.StatusRequestEntityTooLarge, codes.ResourceExhausted, "the body is over 1 MiB")
		return
	}
	if err != nil {
		writeV1(w, http.StatusBadRequest, codes.InvalidArgument, "reading the body: "+err.Error())
		return
	}
	r = r.Clone(r.Context())
	r.Header = forGateway(r.Header)
	r.URL.RawPath, r.URL.RawQuery = "", query.Encode()
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	v.gateway.ServeHTTP(w, r)
}

// forGateway are the headers that the gateway reads. It would log each of the others
// that it does not understand, and nobody here asks for them.
func forGateway(all http.Header) http.Header {
	h := http.Header{"Content-Type": {"application/json"}}
	if timeout := all.Get("Grpc-Timeout"); timeout != "" {
		h.Set("Grpc-Timeout", timeout)
	}
	return h
}

// readQuery refuses what the gateway would pass over: fields that the request of the
// method does not have.
func readQuery(raw string, route *route) (url.Values, error) {
	query, err := url.ParseQuery(raw)
	if err != nil {
		return nil, err
	}
	for name := range query {
		if route.query == nil {
			return nil, fmt.Errorf("the request is in the body, not in the query: unknown field %q", name)
		}
		fields := route.query.ProtoReflect().Descriptor().Fields()
		if fields.ByTextName(name) == nil && fields.ByJSONName(name) == nil {
			return nil, fmt.Errorf("the query has an unknown field %q", name)
		}
	}
	return query, nil
}

// watch streams statistics as the gateway would if it called another process: each
// message is a line of JSON, {"result": …}, and an error that ends it {"error": …}.
func (v *v1) watch(w http.ResponseWriter, r *http.Request, query url.Values) {
	var req weirv1.WatchStatsRequest
	if err := gateway.PopulateQueryParameters(&req, query, utilities.NewDoubleArray(nil)); err != nil {
		writeV1Error(w, grpcstatus.Error(codes.InvalidArgument, err.Error()))
		return
	}
	control := http.NewResponseController(w)
	encode, sent := v1JSON(), false
	err := v.api.watch(r.Context(), &req, func(m *weirv1.WatchStatsResponse) error {
		line, err := encode.Marshal(map[string]proto.Message{"result": m})
		if err != nil {
			return err
		}
		if !sent {
			w.Header().Set("Content-Type", "application/json")
		}
		sent = true
		_ = control.SetWriteDeadline(time.Now().Add(stalled))
		if _, err := w.Write(line); err != nil {
			return err
		}
		return control.Flush()
	})
	switch {
	case !sent:
		writeV1Error(w, err)
	case r.Context().Err() == nil:
		writeLine(w, map[string]any{"error": v1Error(grpcstatus.Convert(err))})
	}
}

// recover turns a panic into an answer, if there is none yet.
func (v *v1) recover(w http.ResponseWriter, r *http.Request) {
	p := recover()
	if p == nil {
		return
	}
	if err, ok := p.(error); ok && errors.Is(err, http.ErrAbortHandler) || v.service == nil {
		panic(p)
	}
	v.service.opts.Logger.Error("a handler panicked", "method", r.URL.Path, "panic", p, "stack", string(debug.Stack()))
	writeV1(w, http.StatusInternalServerError, codes.Internal, "the request made the handler fail; the server's log says why")
}

func writeV1Error(w http.ResponseWriter, err error) {
	st := grpcstatus.Convert(err)
	challenge(w, st.Code())
	status := gateway.HTTPStatusFromCode(st.Code())
	if isShed(err) { // a 429 would be taken for a decision
		status = http.StatusServiceUnavailable
	}
	writeV1(w, status, st.Code(), st.Message())
}

// maxMessage is how many bytes the message of an error has at most: those of a decoder
// repeat what is wrong, which may be all of the body.
const maxMessage = 4 << 10

// writeV1 writes an error as the gateway does: a google.rpc.Status.
func writeV1(w http.ResponseWriter, status int, code codes.Code, message string) {
	if len(message) > maxMessage {
		message = strings.ToValidUTF8(message[:maxMessage], "") + "…"
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	writeLine(w, v1Error(grpcstatus.New(code, message)))
}

func v1Error(st *grpcstatus.Status) any {
	return struct {
		Code    codes.Code `json:"code"`
		Message string     `json:"message"`
		Details []any      `json:"details"`
	}{st.Code(), toValid(st.Message()), []any{}}
}

func writeLine(w io.Writer, v any) {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	_ = e.Encode(v) // the client has gone if this fails
}
