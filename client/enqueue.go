package client

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	grpcstatus "google.golang.org/grpc/status"

	weirv1 "weir/api/weir/v1"
)

// enqueueTimeout bounds what it takes to put a request into a queue: it is there
// or not when the client is told, so it may take longer than a decision.
const enqueueTimeout = 5 * time.Second

// idempotencyHeader is the header that names a request to be done once.
const idempotencyHeader = "Idempotency-Key"

// enqueue puts a request into the queue that the decision names. Answers and their
// statuses are those of Weir's ingest.
func (h *handler) enqueue(w http.ResponseWriter, r *http.Request, descriptors []*weirv1.Descriptor, decision *weirv1.CheckResponse) {
	about := queuing(descriptors, decision)
	switch {
	case about == nil:
		h.answer(w, http.StatusServiceUnavailable, "no descriptor has the rule that queues")
		return
	case !strings.HasPrefix(r.RequestURI, "/") || tokens(r.Header, "Connection")["upgrade"]:
		h.answer(w, http.StatusNotImplemented, "this request cannot be queued")
		return
	case len(r.Header.Values(idempotencyHeader)) > 1 || len(r.Header.Get(idempotencyHeader)) > 255:
		h.answer(w, http.StatusBadRequest, idempotencyHeader+" is to be one, of up to 255 bytes")
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, h.opts.MaxBody))
	if tooLarge := new(http.MaxBytesError); errors.As(err, &tooLarge) {
		h.answer(w, http.StatusRequestEntityTooLarge, "a queued request's body may have "+strconv.FormatInt(tooLarge.Limit, 10)+" bytes")
		return
	}
	if err != nil {
		h.answer(w, http.StatusBadRequest, "the request's body ended early")
		return
	}
	resp, err := h.client.enqueue(r.Context(), &weirv1.EnqueueRequest{
		Domain: h.opts.Domain, Entries: about.Entries, Hits: about.GetHits(), IdempotencyKey: scopedKey(r.Header),
		Request: &weirv1.HttpRequest{Method: r.Method, Authority: r.Host, Path: []byte(r.RequestURI), Headers: kept(r.Header), Body: body},
	})
	if err != nil {
		h.notQueued(w, err)
		return
	}
	w.Header().Set("Location", "/queue/"+resp.Id)
	w.Header().Set("Retry-After", wholeSeconds(resp.DepartsAfter.AsDuration()))
	h.answerJSON(w, http.StatusAccepted, map[string]any{"id": resp.Id, "state": "waiting", "ahead": resp.Ahead, "duplicate": resp.Duplicate})
}

func (h *handler) notQueued(w http.ResponseWriter, err error) {
	st := grpcstatus.Convert(err)
	switch st.Code() {
	case codes.ResourceExhausted:
		h.answer(w, http.StatusTooManyRequests, st.Message())
	case codes.AlreadyExists:
		h.answer(w, http.StatusUnprocessableEntity, "another request was sent with this "+idempotencyHeader)
	case codes.InvalidArgument:
		h.answer(w, http.StatusBadRequest, st.Message())
	default: // a token that is wrong, too: that is the operator's business
		h.client.failures.note(err)
		w.Header().Set("Retry-After", "1")
		h.answer(w, http.StatusServiceUnavailable, "it is not known whether the queue has the request; send it again with the same "+idempotencyHeader)
	}
}

// enqueue calls Enqueue with the admin token, which no other call needs.
func (c *Client) enqueue(ctx context.Context, req *weirv1.EnqueueRequest) (*weirv1.EnqueueResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, enqueueTimeout)
	defer cancel()
	if c.token != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+c.token)
	}
	return c.api.Enqueue(ctx, req)
}

// queuing is the descriptor whose rule queues.
func queuing(descriptors []*weirv1.Descriptor, decision *weirv1.CheckResponse) *weirv1.Descriptor {
	for _, d := range decision.Decisions {
		if d.Rule == decision.Queue && int(d.DescriptorIndex) < len(descriptors) {
			return descriptors[d.DescriptorIndex]
		}
	}
	return nil
}

// scopedKey is the request's idempotency key, of its client alone: two clients may
// choose the same, and Weir sees only one, this service. Empty: there is none.
func scopedKey(header http.Header) string {
	key := header.Get(idempotencyHeader)
	if key == "" {
		return ""
	}
	client := sha256.Sum256([]byte(header.Get("Authorization")))
	sum := sha256.Sum256(append(client[:], key...))
	return hex.EncodeToString(sum[:])
}

// dropped are the headers that belong to a connection (RFC 9110, 7.6.1), and those
// that are made anew when the request is sent.
var dropped = []string{
	"Connection", "Proxy-Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Te", "Trailer", "Transfer-Encoding", "Upgrade",
	"Content-Length", "Expect",
}

func kept(header http.Header) (out []*weirv1.HttpHeader) {
	named := tokens(header, "Connection") // once: of many names and many headers, the product takes seconds
	for name, values := range header {
		if slices.Contains(dropped, name) || strings.HasPrefix(name, "X-Weir-") || named[strings.ToLower(name)] {
			continue
		}
		for _, v := range values {
			out = append(out, &weirv1.HttpHeader{Name: name, Value: []byte(v)})
		}
	}
	return out
}

// tokens are the words of a header that is a list, in lower case.
func tokens(h http.Header, name string) map[string]bool {
	found := map[string]bool{}
	for _, line := range h.Values(name) {
		for t := range strings.SplitSeq(line, ",") {
			found[strings.ToLower(strings.TrimSpace(t))] = true
		}
	}
	return found
}

// wholeSeconds is a wait for Retry-After: rounded up, at least 1.
func wholeSeconds(d time.Duration) string {
	return strconv.FormatInt(max(1, int64(math.Ceil(d.Seconds()))), 10)
}

func (h *handler) answer(w http.ResponseWriter, code int, why string) {
	h.answerJSON(w, code, map[string]any{"error": why})
}

func (h *handler) answerJSON(w http.ResponseWriter, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(body) // who left needs no answer
}
