package consul

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"time"

	consulapi "github.com/hashicorp/consul/api"

	"weir/rules/kv"
)

// Registration is an instance's entry in Consul's catalog.
type Registration struct {
	Service  string   // its name; "": weir
	ID       string   // tells it from the others of its agent; "": SERVICE-HOST-PORT
	GRPCAddr string   // host:port that it serves; without a host, or with 0.0.0.0 or ::, the entry has the address of the agent's node
	HTTPAddr string   // told in the entry's meta as "http", for `weir rules status`; without a host like GRPCAddr it is told as :port, a port of the entry's address; "": not told
	Version  string   // told in the meta as "version"; "": not told
	Tags     []string // of the entry
	TLS      bool     // GRPCAddr speaks TLS
}

const (
	askEvery    = 5 * time.Second // whether the agent still has the entry
	callTimeout = 5 * time.Second
	leaveWithin = 2 * time.Second // a stop does not wait longer for Consul
	firstPause  = 500 * time.Millisecond
	longPause   = 10 * time.Second
)

// Register keeps an instance registered with the agent that the options name
// until ctx is done; then it takes the entry out, which takes 2 s at the most,
// and returns nil. While the agent is away or refuses it goes on trying, and one
// that lost the entry gets it again, within about 15 s. What happens is logged,
// once for each change. An error is what can never work, such as an address
// without a port, and comes at once.
//
// The agent calls grpc.health.v1 of the instance for the service "ratelimit"
// every 2 s; the entry is critical until it has answered, and is dropped when it
// has not for ten minutes.
func Register(ctx context.Context, options Options, r Registration) error {
	client, err := newClient(options)
	if err != nil {
		return err
	}
	defer client.close()
	g, err := newRegistrar(client, r, options.Logger)
	if err != nil {
		return err
	}
	g.keep(ctx)
	return nil
}

// registrar keeps one entry with one agent.
type registrar struct {
	client *client
	log    *slog.Logger

	entry   consulapi.AgentServiceRegistration // but for its check
	target  string                             // host:port of the check; without a host: this machine, as the agent sees it
	network string                             // of such a host's address: udp, or udp4
	tls     bool

	tried bool   // the agent may have the entry
	ours  bool   // it has said that it has
	wrong string // what kind of thing is, as was logged; "": nothing
}

func newRegistrar(client *client, r Registration, log *slog.Logger) (*registrar, error) {
	host, port, err := splitAddr(r.GRPCAddr)
	if err != nil {
		return nil, fmt.Errorf("register with Consul: gRPC address %q: %w", r.GRPCAddr, err)
	}
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil || number == 0 {
		return nil, fmt.Errorf("register with Consul: gRPC address %q: the port must be a number from 1 to 65535", r.GRPCAddr)
	}
	meta := map[string]string{}
	if r.Version != "" {
		meta["version"] = r.Version
	}
	if r.HTTPAddr != "" {
		httpHost, httpPort, err := splitAddr(r.HTTPAddr)
		if err != nil {
			return nil, fmt.Errorf("register with Consul: HTTP address %q: %w", r.HTTPAddr, err)
		}
		meta["http"] = net.JoinHostPort(httpHost, httpPort)
	}
	g := &registrar{client: client, target: net.JoinHostPort(host, port), network: "udp", tls: r.TLS}
	if strings.HasPrefix(r.GRPCAddr, "0.0.0.0:") { // nobody listens on this machine's IPv6 addresses
		g.network = "udp4"
	}
	g.entry = consulapi.AgentServiceRegistration{
		Name: cmp.Or(r.Service, "weir"), ID: r.ID, Tags: r.Tags, Address: host, Port: int(number), Meta: meta,
	}
	if g.entry.ID == "" {
		// Several machines may share an agent.
		name, _ := os.Hostname()
		g.entry.ID = strings.Join([]string{g.entry.Name, cmp.Or(host, name, "any"), port}, "-")
	}
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	g.log = log.With("service", g.entry.Name, "id", g.entry.ID, "consul", client.addr)
	return g, nil
}

// splitAddr splits host:port. A host that stands for every address is "".
func splitAddr(addr string) (host, port string, err error) {
	if strings.HasPrefix(addr, "unix:") || strings.HasPrefix(addr, "/") {
		return "", "", errors.New("a unix socket cannot be registered, for others could not reach it: serve a TCP address")
	}
	host, port, err = net.SplitHostPort(addr)
	if err != nil {
		return "", "", err
	}
	if ip, err := netip.ParseAddr(host); err == nil && ip.IsUnspecified() {
		host = ""
	}
	return host, port, nil
}

// keep registers, and looks whether it lasts, until ctx is done.
func (g *registrar) keep(ctx context.Context) {
	pause := firstPause
	for ctx.Err() == nil {
		wait := askEvery
		if err := g.ensure(ctx); err != nil && ctx.Err() == nil {
			g.failed(err)
			wait, pause = pause, min(2*pause, longPause)
		} else {
			pause = firstPause
		}
		// Instances that lost their agent at once do not come back at once.
		wait -= rand.N(wait/4 + 1)
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
	if g.tried {
		g.leave(context.WithoutCancel(ctx))
	}
}

// ensure registers what the agent does not have.
func (g *registrar) ensure(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if g.ours {
		_, _, err := g.client.Agent().Service(g.entry.ID, (&consulapi.QueryOptions{}).WithContext(ctx))
		switch {
		case err == nil:
			g.mended()
			return nil
		case statusOf(err) != http.StatusNotFound:
			return g.doing("look for", err)
		}
		g.ours = false
		g.log.Warn("Consul has lost this instance's registration")
	}
	entry, err := g.withCheck(ctx)
	if err != nil {
		return g.doing("register", err)
	}
	g.tried = true
	// Registered anew at each start, since the entry of a start before may say
	// something else, and so may its check.
	opts := consulapi.ServiceRegisterOpts{ReplaceExistingChecks: true}
	if err := g.client.Agent().ServiceRegisterOpts(entry, opts.WithContext(ctx)); err != nil {
		return g.doing("register", err)
	}
	g.ours, g.wrong = true, ""
	g.log.Info("registered in Consul", "address", g.target, "check", entry.Check.GRPC)
	return nil
}

// withCheck is the entry with its check, whose address may be another one each
// time that it is found.
func (g *registrar) withCheck(ctx context.Context) (*consulapi.AgentServiceRegistration, error) {
	target, err := checkTarget(ctx, g.target, g.client.addr, g.network)
	if err != nil {
		return nil, err
	}
	entry := g.entry
	entry.Check = &consulapi.AgentServiceCheck{
		Name:     "gRPC health",
		GRPC:     target + "/ratelimit",
		Interval: "2s",
		Timeout:  "1s",
		// A certificate names what clients call, not the address that the agent
		// calls; what it learns from an impostor is only that something answers.
		GRPCUseTLS: g.tls, TLSSkipVerify: g.tls,
		DeregisterCriticalServiceAfter: "10m",
	}
	return &entry, nil
}

// checkTarget is where the agent reaches an instance that serves target.
func checkTarget(ctx context.Context, target, agent, network string) (string, error) {
	host, port, err := net.SplitHostPort(target)
	if err != nil || host != "" {
		return target, err
	}
	scheme, addr, ok := strings.Cut(agent, "://")
	if !ok {
		scheme, addr = "", agent
	}
	if scheme == "unix" {
		return net.JoinHostPort("127.0.0.1", port), nil
	}
	addr, _, _ = strings.Cut(addr, "/")
	if _, _, err := net.SplitHostPort(addr); err != nil { // an address of a proxy, without a port
		addr = net.JoinHostPort(strings.Trim(addr, "[]"), "80")
	}
	// Connecting UDP sends nothing: it only asks which of this machine's addresses
	// packets to the agent have.
	conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
	if err != nil {
		return "", fmt.Errorf("find this machine's address: %w", err)
	}
	defer conn.Close()
	local, err := netip.ParseAddrPort(conn.LocalAddr().String())
	if err != nil {
		return "", fmt.Errorf("find this machine's address: %w", err)
	}
	if local.Addr().IsLoopback() { // as ::1 it would leave out who listens on IPv4 only
		return net.JoinHostPort("127.0.0.1", port), nil
	}
	return net.JoinHostPort(local.Addr().String(), port), nil
}

// leave takes the entry out. An agent that does not answer now drops it when its
// check has failed for long.
func (g *registrar) leave(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, leaveWithin)
	defer cancel()
	err := g.client.Agent().ServiceDeregisterOpts(g.entry.ID, (&consulapi.QueryOptions{}).WithContext(ctx))
	switch {
	case err == nil:
		g.log.Info("left Consul")
	case statusOf(err) != http.StatusNotFound && g.ours:
		g.log.Warn("not left Consul: its agent drops this instance when it has not answered for ten minutes", "error", g.doing("deregister", err))
	}
}

// doing says what was being done, and names the right that is missing.
func (g *registrar) doing(what string, err error) error {
	what = fmt.Sprintf("%s service %q at Consul's agent %s", what, g.entry.Name, g.client.addr)
	switch {
	case strings.Contains(err.Error(), "ACL not found"):
		return kv.Denied(what, "a token that this Consul knows", err)
	case isDenied(err):
		return kv.Denied(what, fmt.Sprintf("service %q { policy = \"write\" }", g.entry.Name), err)
	}
	return fmt.Errorf("%s: %w", what, err)
}

// failed logs what is wrong, if it is something new. The texts of one failure
// differ from try to try, its kind does not.
func (g *registrar) failed(err error) {
	kind := "away"
	if status := statusOf(err); status != 0 {
		kind = strconv.Itoa(status)
	}
	if kind == g.wrong {
		return
	}
	g.wrong = kind
	g.log.Warn("registration in Consul failed, trying again", "error", err)
}

func (g *registrar) mended() {
	if g.wrong == "" {
		return
	}
	g.wrong = ""
	g.log.Info("Consul answers again, and has kept the registration")
}

// statusOf is the HTTP status that Consul refused with; 0: it did not answer.
func statusOf(err error) int {
	var status consulapi.StatusError
	if errors.As(err, &status) {
		return status.Code
	}
	return 0
}
