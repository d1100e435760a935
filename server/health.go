package server

import (
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
)

// Health is what grpc.health.v1 answers.
type Health struct{ server *health.Server }

// serviceNames are what clients ask the health of.
var serviceNames = [...]string{"", "ratelimit", rls.RateLimitService_ServiceDesc.ServiceName}

// StoreName is the health of the store: NOT_SERVING while failure policies
// decide in its place. Requests are answered all the same.
const StoreName = "weir.store"

// NewHealth answers NOT_SERVING until told otherwise.
func NewHealth() *Health {
	h := &Health{health.NewServer()}
	h.SetServing(false)
	h.SetStore(false)
	return h
}

// SetServing says whether requests are answered.
func (h *Health) SetServing(serving bool) {
	for _, name := range serviceNames {
		h.server.SetServingStatus(name, servingStatus(serving))
	}
}

// SetStore says whether the store decides.
func (h *Health) SetStore(serving bool) {
	h.server.SetServingStatus(StoreName, servingStatus(serving))
}

func servingStatus(serving bool) healthpb.HealthCheckResponse_ServingStatus {
	if serving {
		return healthpb.HealthCheckResponse_SERVING
	}
	return healthpb.HealthCheckResponse_NOT_SERVING
}
