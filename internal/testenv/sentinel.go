package testenv

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// SentinelOptions is how a Redis with sentinels is started.
type SentinelOptions struct {
	Replicas  int // 0: 2
	Sentinels int // 0: 3
}

// Sentinel is a Redis with replicas that sentinels watch. They take the master
// for dead after half a second.
type Sentinel struct {
	Name      string   // of the master
	Nodes     []*Redis // the first was the master at the start
	Sentinels []*Redis
}

// StartSentinel runs a master, its replicas, and sentinels that know all of them.
func StartSentinel(t testing.TB, o SentinelOptions) *Sentinel {
	t.Helper()
	if o.Replicas == 0 {
		o.Replicas = 2
	}
	if o.Sentinels == 0 {
		o.Sentinels = 3
	}
	s := &Sentinel{Name: "main"}
	args := []string{"--repl-diskless-sync-delay", "0"}
	s.Nodes = append(s.Nodes, StartRedis(t, RedisOptions{Args: args}))
	host, port, _ := net.SplitHostPort(s.Nodes[0].Addr)
	for range o.Replicas {
		s.Nodes = append(s.Nodes, StartRedis(t, RedisOptions{Args: append([]string{"--replicaof", host, port}, args...)}))
	}
	await(t, "replicas follow the master", func() bool {
		return s.count(func(r *Redis) bool { return r.Info("master_link_status") == "up" }) == o.Replicas
	})
	for range o.Sentinels {
		s.Sentinels = append(s.Sentinels, s.startSentinel(t, host, port, o.Sentinels/2+1))
	}
	await(t, "the sentinels know each other and the replicas", func() bool {
		for _, sentinel := range s.Sentinels {
			text, err := sentinel.Do("SENTINEL", "MASTER", s.Name)
			if err != nil || !hasPair(text, "num-other-sentinels", fmt.Sprint(o.Sentinels-1)) || !hasPair(text, "num-slaves", fmt.Sprint(o.Replicas)) {
				return false
			}
		}
		return true
	})
	return s
}

func (s *Sentinel) startSentinel(t testing.TB, host, port string, quorum int) *Redis {
	t.Helper()
	addr := FreeAddr(t)
	_, own, _ := net.SplitHostPort(addr)
	dir := t.TempDir()
	config := filepath.Join(dir, "sentinel.conf") // a sentinel writes to it
	text := strings.Join([]string{
		"bind 127.0.0.1", "port " + own, "dir " + dir,
		fmt.Sprintf("sentinel monitor %s %s %s %d", s.Name, host, port, quorum),
		"sentinel down-after-milliseconds " + s.Name + " 500",
		"sentinel failover-timeout " + s.Name + " 5000",
	}, "\n") + "\n"
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(fmt.Errorf("testenv: %w", err))
	}
	return &Redis{Addr: addr, Process: startRedis(t, addr, []string{config, "--sentinel"})}
}

// hasPair tells whether a name and a value follow each other, a line each.
func hasPair(text, name, value string) bool {
	return strings.Contains("\n"+text+"\n", "\n"+name+"\n"+value+"\n")
}

func (s *Sentinel) count(is func(*Redis) bool) int {
	n := 0
	for _, node := range s.Nodes {
		if node.Runs() && is(node) {
			n++
		}
	}
	return n
}

// Addrs are the sentinels' addresses, with commas between them.
func (s *Sentinel) Addrs() string {
	var addrs []string
	for _, sentinel := range s.Sentinels {
		addrs = append(addrs, sentinel.Addr)
	}
	return strings.Join(addrs, ",")
}

// Master is the running node that all sentinels take for the master, once it is
// one.
func (s *Sentinel) Master(t testing.TB) *Redis {
	t.Helper()
	var master *Redis
	await(t, "a master that all sentinels agree on", func() bool {
		master = nil
		for i, sentinel := range s.Sentinels {
			text, err := sentinel.Do("SENTINEL", "GET-MASTER-ADDR-BY-NAME", s.Name)
			host, port, _ := strings.Cut(text, "\n")
			node := s.node(net.JoinHostPort(host, port))
			if err != nil || node == nil || i > 0 && node != master {
				return false
			}
			master = node
		}
		return master.Info("role") == "master"
	})
	return master
}

func (s *Sentinel) node(addr string) *Redis {
	for _, node := range s.Nodes {
		if node.Addr == addr && node.Runs() {
			return node
		}
	}
	return nil
}

// AwaitReplicas waits until so many running replicas have all that the master
// wrote.
func (s *Sentinel) AwaitReplicas(t testing.TB, n int) {
	t.Helper()
	await(t, "replicas follow the master", func() bool {
		return s.count(func(r *Redis) bool { return r.Info("master_link_status") == "up" }) >= n
	})
}
