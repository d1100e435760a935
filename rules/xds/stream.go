package xds

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	ads "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"

	"weir/rules"
)

// client is one Run.
type client struct {
	*Source
	apply func(rules.Snapshot) error

	seen    fingerprint     // what apply was last called with; zero: nothing yet
	refusal string          // why apply did not take it; "": it did
	last    rules.Snapshot  // of then
	taken   *atomic.Bool    // it is in force, if only since another source changed
	good    *rules.Snapshot // that apply took last; nil: none yet
	told    map[string]bool // kinds of problems that apply was told of since then
}

// follow is one stream, from the connect on, and tells why it ended. It returns
// whether it was a sound one, after which the next is not put off for long.
func (c *client) follow(ctx context.Context) (lasting bool) {
	began := time.Now()
	answered, err := c.stream(ctx)
	switch {
	case ctx.Err() != nil:
	case answered:
		// That a server restarts, or bounds the age of connections, is no news yet:
		// the rules are its newest.
		c.log.Info("the stream of rules ended, connecting anew", "error", err)
	default:
		c.tell(c.reason(err))
	}
	return answered && time.Since(began) > c.times.backoffTo
}

// stream connects, and takes what the server pushes until the stream ends, for
// which it returns why. It tells whether the server answered at all.
func (c *client) stream(ctx context.Context) (answered bool, err error) {
	conn, err := c.dial()
	if err != nil {
		return false, err
	}
	defer func() { _ = conn.Close() }()
	ctx, cancel := context.WithCancel(ctx)
	wire, err := ads.NewAggregatedDiscoveryServiceClient(conn).StreamAggregatedResources(ctx)
	if err != nil {
		cancel()
		return false, err
	}
	x := &exchange{client: c, wire: wire, responses: make(chan *ads.DiscoveryResponse), ended: make(chan error, 1)}
	received := make(chan struct{})
	go func() {
		defer close(received)
		x.receive(ctx)
	}()
	defer func() {
		cancel()
		<-received
	}()
	err = x.run(ctx)
	return x.answered, err
}

// exchange is one stream.
type exchange struct {
	*client
	wire      ads.AggregatedDiscoveryService_StreamAggregatedResourcesClient
	responses chan *ads.DiscoveryResponse
	ended     chan error

	answered bool
	nack     *ads.DiscoveryRequest // that is to be sent; nil: none
	nackAt   <-chan time.Time
}

// receive hands over what comes, until the stream ends.
func (x *exchange) receive(ctx context.Context) {
	for {
		resp, err := x.wire.Recv()
		if err != nil {
			x.ended <- err
			return
		}
		select {
		case x.responses <- resp:
		case <-ctx.Done():
			return
		}
	}
}

// run asks, and answers what comes.
//
// A new stream begins with the version that is in force, and a server that has it
// too may stay silent. But versions are often just numbers, which begin anew when
// the server does (Envoy Gateway's do): the same version may be other rules. So
// after a moment of silence the server is asked once more, as if nothing were
// known.
func (x *exchange) run(ctx context.Context) error {
	if err := x.send(x.request()); err != nil {
		return err
	}
	var reask <-chan time.Time
	if x.version() != "" {
		reask = time.After(x.times.reask)
	}
	quiet := time.After(x.times.quiet)
	for {
		var err error
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-x.ended:
			return err
		case resp := <-x.responses:
			if resp.GetTypeUrl() != typeURL && resp.GetTypeUrl() != "" {
				x.log.Warn("the control plane sent what it was not asked for", "type", resp.GetTypeUrl())
				continue
			}
			if !x.answered {
				x.log.Info("the control plane sends rules", "addr", x.addr, "identifier", resp.GetControlPlane().GetIdentifier())
			}
			x.answered, reask, quiet = true, nil, nil
			err = x.answer(resp)
		case <-x.nackAt:
			err = x.send(x.nack)
			x.nack, x.nackAt = nil, nil
		case <-reask:
			again := x.request()
			again.VersionInfo = ""
			err = x.send(again)
		case <-quiet:
			x.silent()
		}
		if err != nil {
			return err
		}
	}
}

// answer takes what a response says, and sends the ACK, or after a pause the
// NACK. A go-control-plane server answers a NACK at once with the same again:
// without the pause the two would spin. Another response during the pause takes
// the place of the one that was refused; it does not prolong the pause, or else a
// server that repeats itself were never told. Nor is the pause long, for until its
// end a go-control-plane server keeps what is newer to itself.
func (x *exchange) answer(resp *ads.DiscoveryResponse) error {
	refusal := x.take(resp)
	reply := x.request()
	reply.ResponseNonce = resp.GetNonce()
	if refusal == "" {
		x.nack, x.nackAt = nil, nil
		return x.send(reply)
	}
	reply.ErrorDetail = &rpcstatus.Status{Code: int32(codes.InvalidArgument), Message: bounded(refusal)}
	x.nack = reply
	if x.nackAt == nil {
		x.nackAt = time.After(jitter(x.times.pause))
	}
	return nil
}

// send leaves it to receive to tell why the stream has ended, if it has.
func (x *exchange) send(request *ads.DiscoveryRequest) error {
	if err := x.wire.Send(request); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	return nil
}

// request asks for all rules, and says which version is in force.
func (c *client) request() *ads.DiscoveryRequest {
	return &ads.DiscoveryRequest{
		Node:        &core.Node{Id: c.options.NodeID, UserAgentName: "weir"},
		TypeUrl:     typeURL,
		VersionInfo: c.version(),
	}
}

// version is that of the rules in force.
func (c *client) version() string {
	if c.good == nil {
		return ""
	}
	return c.good.Version
}

// take applies what a response says, if that is new, and returns why it is
// refused; "" if it is not. After a problem it is applied even if it is not new,
// so that the problem is known to be over.
func (c *client) take(resp *ads.DiscoveryResponse) (refusal string) {
	if c.refusal != "" && c.taken.Load() {
		c.refusal, c.good = "", &c.last
	}
	set := decode(resp.GetResources())
	if len(c.told) == 0 && set.print == c.seen && (c.refusal != "" || c.version() == resp.GetVersionInfo()) {
		return c.refusal
	}
	files, faults := set.convert(c.url)
	for _, name := range set.unknown {
		c.log.Warn("a resource has fields that this version of Weir does not know; they are ignored", "resource", name)
	}
	snap := rules.ParseSnapshot(files, c.last.Documents...)
	snap.Faults = append(faults, snap.Faults...)
	snap.Version = resp.GetVersionInfo()
	taken := new(atomic.Bool)
	snap.Taken = func() { taken.Store(true) }
	c.seen, c.last, c.taken, c.told, c.refusal = set.print, snap, taken, nil, ""
	if err := c.apply(snap); err != nil {
		c.refusal = err.Error()
		return c.refusal
	}
	c.good = &snap
	return ""
}

// silent deals with a server that takes the stream and sends nothing.
func (c *client) silent() {
	if c.good != nil && c.good.Version == "" && len(c.good.Documents) == 0 {
		// A go-control-plane server that has no rules has no version either, and so
		// nothing new to say.
		if len(c.told) > 0 {
			c.told = nil
			_ = c.apply(*c.good)
		}
		return
	}
	c.tell("silent", fmt.Sprintf("connected, but the server has sent no rules yet; it may have none for the node id %q", c.options.NodeID))
}

// tell applies why there are no rules, once for each kind of problem until there
// are some again.
func (c *client) tell(kind, problem string) {
	if c.told[kind] {
		return
	}
	if c.told == nil {
		c.told = map[string]bool{}
	}
	c.told[kind] = true
	if c.good != nil {
		problem += "; the last good rules stay"
	}
	_ = c.apply(rules.Snapshot{Faults: rules.Faults{{File: c.url, Msg: problem}}}) // whoever applies tells of it
}

// bounded cuts a text to what a request may carry: servers log it as it is, and
// the headers of some must hold it.
func bounded(text string) string {
	const most = 4 << 10
	text = strings.ToValidUTF8(text, "\uFFFD")
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most-len("…")], "") + "…"
	}
	return text
}
