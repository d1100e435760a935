package consul

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"

	consulapi "github.com/hashicorp/consul/api"

	"weir/rules/kv"
)

// Instance is an instance of a service, as Consul's catalog has it.
type Instance struct {
	ID      string
	Addr    string // host:port
	HTTP    string // host:port, its meta "http"; "": it says none
	Version string // its meta "version"
	Passing bool   // all its checks pass
}

// Instances returns all instances of a service that are registered, passing or
// not, in the catalog's order.
func (s *Store) Instances(ctx context.Context, service string) ([]Instance, error) {
	doing := fmt.Sprintf("listing the instances of %s in %s", service, s.at)
	const right = `service_prefix "" { policy = "read" } and node_prefix "" { policy = "read" }`
	within, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	entries, meta, err := s.client.Health().Service(service, "", false, (&consulapi.QueryOptions{}).WithContext(within))
	if err != nil {
		return nil, s.failed(ctx, doing, right, patience, err)
	}
	if meta.ResultsFilteredByACLs {
		return nil, kv.Denied(doing, s.needs(right), errFiltered)
	}
	var instances []Instance
	for _, e := range entries {
		if e == nil || e.Service == nil || e.Node == nil {
			return nil, fmt.Errorf("%s: the answer is not Consul's, there is a null in it: is the address right?", doing)
		}
		host := cmp.Or(e.Service.Address, e.Node.Address)
		instances = append(instances, Instance{
			ID:      e.Service.ID,
			Addr:    net.JoinHostPort(host, strconv.Itoa(e.Service.Port)),
			HTTP:    withHost(e.Service.Meta["http"], host),
			Version: e.Service.Meta["version"],
			Passing: e.Checks.AggregatedStatus() == consulapi.HealthPassing,
		})
	}
	return instances, nil
}

// withHost completes an address that is a port of the host.
func withHost(addr, host string) string {
	if port, ok := strings.CutPrefix(addr, ":"); ok {
		return net.JoinHostPort(host, port)
	}
	return addr
}
