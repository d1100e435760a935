package envoy_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"weir/internal/testenv"
)

// instance runs `weir serve` as two-instances.yaml says, on an address that
// another may have had.
func instance(t *testing.T, grpcAddr string) *testenv.Weir {
	t.Helper()
	return testenv.StartWeir(t, testenv.WeirOptions{GRPCAddr: grpcAddr, Rules: []string{"rules/two-instances.yaml"}, Args: []string{"--drain-delay", "2s"}})
}

// startTwo runs two instances behind Envoy, which finds both healthy.
func startTwo(t *testing.T, oldNew ...string) (*loaded, []*testenv.Weir) {
	t.Helper()
	instances := []*testenv.Weir{instance(t, ""), instance(t, "")}
	l := startLoaded(t, "two-instances.yaml", append([]string{
		"port_value: 8081}", "port_value: " + port(t, instances[0].GRPCAddr) + "}",
		"port_value: 8082}", "port_value: " + port(t, instances[1].GRPCAddr) + "}",
	}, oldNew...)...)
	l.ready(t)
	l.healthy(t, 2)
	return l, instances
}

func (l *loaded) healthy(t *testing.T, n int) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d healthy instances", n), func() bool { return l.stat(t, "cluster.weir.membership_healthy") == n })
}

// Each instance is stopped as an orchestrator does it, and another takes its
// place, for as long as -load-time says and twice at least.
func TestRollingRestartUnderLoadLosesNoRequest(t *testing.T) {
	t.Parallel()
	l, instances := startTwo(t)
	l.send(t, "/")
	restarts := 0
	for begin := time.Now(); restarts < 2 || time.Since(begin) < *loadTime; restarts++ {
		i := restarts % len(instances)
		if code := instances[i].Stop(t); code != 0 {
			t.Errorf("exit code %d", code)
		}
		if strings.Contains(instances[i].Output(), "stopped before all calls were answered") {
			t.Error("calls were cut off")
		}
		instances[i] = instance(t, instances[i].GRPCAddr)
		l.pass(t, 2*time.Second) // for Envoy to find it: minReadySeconds, to Kubernetes
	}
	t.Logf("%d restarts", restarts)
	l.allDecided(t)
	if l.stat(t, "cluster.weir.health_check.failure") == 0 {
		t.Error("no health check has failed: Envoy did not know of a stop")
	}
}

// A crash costs what was under way, and what comes until Envoy knows.
func TestAnInstanceThatDiesUnderLoadIsLeftAlone(t *testing.T) {
	t.Parallel()
	l, instances := startTwo(t)
	l.send(t, "/")
	l.pass(t, time.Second)
	instances[0].Kill()
	l.healthy(t, 1)
	lost := l.sent()
	l.pass(t, 2*time.Second)
	answers := l.end(t)
	for answer, n := range answers {
		if answer != "200" && (answer != "503" || n > lost/4) { // a dozen, when the machine is idle
			t.Errorf("%d × %s", n, answer)
		}
	}
	if answers["200"] < l.sent()/2 {
		t.Errorf("%d of %d decided", answers["200"], l.sent())
	}
}
