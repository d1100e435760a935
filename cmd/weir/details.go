package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	weirv1 "weir/api/weir/v1"
	"weir/rules"
)

// decideDetails is decide by weir.v1.
func decideDetails(ctx context.Context, w io.Writer, c decideConfig, domain string, descriptors [][]rules.Entry) error {
	req := &weirv1.CheckRequest{Domain: domain, Hits: uint64(c.hits)}
	for _, entries := range descriptors {
		d := &weirv1.Descriptor{}
		for _, e := range entries {
			d.Entries = append(d.Entries, weirv1.NewEntry(e.Key, e.Value))
		}
		req.Descriptors = append(req.Descriptors, d)
	}
	conn, err := connect(c.addr, &c.tls)
	if err != nil {
		return err
	}
	defer conn.Close()
	client := weirv1.NewWeirServiceClient(conn)
	for range c.times {
		resp, err := checkOnce(ctx, client, c.timeout, req)
		if grpcstatus.Code(err) == codes.Unimplemented {
			return fmt.Errorf("asking %s: the server has no weir.v1; leave --details out", c.addr)
		}
		if err != nil {
			return askFailed(conn, c.addr, &c.tls, err)
		}
		if _, err := io.WriteString(w, describeCheck(req, resp)); err != nil {
			return err
		}
	}
	return nil
}

func checkOnce(ctx context.Context, client weirv1.WeirServiceClient, timeout time.Duration, req *weirv1.CheckRequest) (*weirv1.CheckResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return client.Check(ctx, req)
}

// describeCheck is the answer as text: the verdict, a line for each limit, and the
// headers.
func describeCheck(req *weirv1.CheckRequest, resp *weirv1.CheckResponse) string {
	var b strings.Builder
	switch {
	case resp.Queue != "":
		fmt.Fprintf(&b, "QUEUED by %s\n", resp.Queue)
	case resp.Allowed:
		b.WriteString("OK\n")
	default:
		b.WriteString("OVER_LIMIT\n")
	}
	if len(resp.Decisions) == 0 {
		b.WriteString("  no limit was checked (`weir explain` says why)\n")
	}
	for _, d := range resp.Decisions {
		fmt.Fprintf(&b, "  %s: %s\n", entriesText(req, int(d.DescriptorIndex)), d.Describe())
	}
	for _, h := range resp.Headers {
		fmt.Fprintf(&b, "  %s: %s\n", h.Name, h.Value)
	}
	for _, h := range resp.UpstreamHeaders {
		fmt.Fprintf(&b, "  to the upstream: %s: %s\n", h.Name, h.Value)
	}
	if len(resp.Body) > 0 {
		fmt.Fprintf(&b, "  %s\n", strings.TrimSpace(string(resp.Body)))
	}
	return b.String()
}

func entriesText(req *weirv1.CheckRequest, descriptor int) string {
	var words []string
	if descriptor < len(req.Descriptors) {
		for _, e := range req.Descriptors[descriptor].Entries {
			words = append(words, e.Key+"="+e.Text())
		}
	}
	return strings.Join(words, " ")
}
