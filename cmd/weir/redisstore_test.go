package main

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"weir/internal/testenv"
	"weir/server"
)

const hourly = "rules: [{endpoint: /x, limit: 5, window: 1h}]"

func TestInstancesShareCountersInRedis(t *testing.T) {
	redis := testenv.StartRedis(t, testenv.RedisOptions{})
	rules := rulesFile(t, hourly)
	one := serving(t, "--rules", rules, "--store", "redis://"+redis.Addr, "--store-timeout", "5s")
	two := serving(t, "--rules", rules, "--store", "redis://"+redis.Addr, "--store-timeout", "5s")
	if got := one.codes(t, 3, "default", "endpoint=/x"); got != "AAA" {
		t.Errorf("the first instance answers %s", got)
	}
	if got := two.codes(t, 3, "default", "endpoint=/x"); got != "AAD" {
		t.Errorf("the second instance answers %s", got)
	}
}

// A leased rule is one limit for all instances still, and who stops gives back what
// it took.
func TestInstancesShareALeasedLimit(t *testing.T) {
	redis := testenv.StartRedis(t, testenv.RedisOptions{})
	const limit = 400
	rules := rulesFile(t, "rules: [{endpoint: /x, limit: 400, window: 8784h, accuracy: {lease: 50}}]")
	one := serving(t, "--rules", rules, "--store", "redis://"+redis.Addr, "--store-timeout", "5s")
	two := serving(t, "--rules", rules, "--store", "redis://"+redis.Addr, "--store-timeout", "5s")
	passed := strings.Count(one.codes(t, 100, "default", "endpoint=/x"), "A")
	if spent := one.metric(t, "weir_lease_hits_total", `fate="spent"`); spent < 50 {
		t.Errorf("of 100 hits of a hot key, leases covered %v", spent)
	}
	if code := one.stop(); code != 0 {
		t.Errorf("it ends with %d", code)
	}
	passed += strings.Count(two.codes(t, limit, "default", "endpoint=/x"), "A")
	if passed != limit {
		t.Errorf("of a limit of %d passed %d", limit, passed)
	}
}

func TestHealthTellsWhetherTheStoreDecides(t *testing.T) {
	redis := testenv.StartRedis(t, testenv.RedisOptions{})
	s := serving(t, "--rules", rulesFile(t, hourly), "--store", "redis://"+redis.Addr)
	conn, err := grpc.NewClient(s.grpcAddr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	status := func(service string) healthpb.HealthCheckResponse_ServingStatus {
		resp, err := healthpb.NewHealthClient(conn).Check(t.Context(), &healthpb.HealthCheckRequest{Service: service})
		if err != nil {
			t.Fatal(err)
		}
		return resp.Status
	}
	if got := status(server.StoreName); got != healthpb.HealthCheckResponse_SERVING {
		t.Fatalf("with Redis up: %v", got)
	}
	if err := redis.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the store's health to fail", func() bool {
		s.codes(t, 1, "default", "endpoint=/x") // answered, by the failure policy
		return status(server.StoreName) == healthpb.HealthCheckResponse_NOT_SERVING
	})
	if got := status(""); got != healthpb.HealthCheckResponse_SERVING {
		t.Errorf("the server itself is %v while Redis is away", got)
	}
	if err := redis.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the store's health to come back", func() bool {
		return status(server.StoreName) == healthpb.HealthCheckResponse_SERVING
	})
}

func TestAMalformedStoreURLIsWrongUse(t *testing.T) {
	for _, url := range []string{"redis", "http://host", "redis+sentinel://host"} {
		weir(t, "serve", "--store", url).want(t, exitWrongUse, "--store")
	}
}

func TestServeStartsWithoutRedis(t *testing.T) {
	begin := time.Now()
	s := serving(t, "--rules", rulesFile(t, hourly), "--store", "redis://"+testenv.FreeAddr(t))
	if waited := time.Since(begin); waited > time.Minute {
		t.Errorf("it waited %v for a Redis that is not there", waited)
	}
	if got := s.codes(t, 6, "default", "endpoint=/x"); got != "AAAAAD" {
		t.Errorf("without Redis the limit holds on the instance: %s", got)
	}
}
