package testenv

import (
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// RedisClusterOptions is how a Redis Cluster is started.
type RedisClusterOptions struct {
	Masters  int // 0: 3
	Replicas int // of each master
	Args     []string
}

// RedisCluster is a Redis Cluster that runs. It takes a dead master for dead
// after a second, so that tests need not wait long.
type RedisCluster struct {
	Nodes []*Redis // the masters first, as they were at the start
}

// StartRedisCluster runs the nodes of a Redis Cluster on 127.0.0.1, and returns
// when all of them hold it for whole.
func StartRedisCluster(t testing.TB, o RedisClusterOptions) *RedisCluster {
	t.Helper()
	if o.Masters == 0 {
		o.Masters = 3
	}
	n := o.Masters * (1 + o.Replicas)
	c := &RedisCluster{}
	// The nodes' own bus listens on another port. Its default, 10000 above, may
	// be one of an outgoing connection, so each has a port of ours.
	buses := FreePorts(t, n)
	for i := range n {
		args := []string{"--cluster-enabled", "yes", "--cluster-node-timeout", "1000", "--cluster-port", strconv.Itoa(buses[i]), "--repl-diskless-sync-delay", "0"}
		c.Nodes = append(c.Nodes, StartRedis(t, RedisOptions{Args: append(args, o.Args...)}))
	}
	const slots = 16384
	for i, node := range c.Nodes {
		node.MustDo(t, "CLUSTER", "SET-CONFIG-EPOCH", strconv.Itoa(i+1))
		if i < o.Masters {
			node.MustDo(t, "CLUSTER", "ADDSLOTSRANGE", strconv.Itoa(i*slots/o.Masters), strconv.Itoa((i+1)*slots/o.Masters-1))
		}
		for j, other := range c.Nodes[:i] { // to hear of them from others takes seconds
			host, port, _ := net.SplitHostPort(other.Addr)
			node.MustDo(t, "CLUSTER", "MEET", host, port, strconv.Itoa(buses[j]))
		}
	}
	await(t, "every node knows every other", func() bool {
		return c.all(func(r *Redis) bool { return clusterInfo(r, "cluster_known_nodes") == strconv.Itoa(n) })
	})
	for i, node := range c.Nodes[o.Masters:] {
		id := c.Nodes[i%o.Masters].MustDo(t, "CLUSTER", "MYID")
		await(t, "a replica knows its master", func() bool {
			_, err := node.Do("CLUSTER", "REPLICATE", id)
			return err == nil
		})
	}
	c.awaitWhole(t, n-o.Masters)
	return c
}

// awaitWhole waits until every living node holds the cluster for whole, with so
// many replicas that keep up.
func (c *RedisCluster) awaitWhole(t testing.TB, replicas int) {
	t.Helper()
	await(t, fmt.Sprintf("the cluster is whole with %d replicas", replicas), func() bool {
		following := 0
		whole := c.all(func(r *Redis) bool {
			if r.Info("master_link_status") == "up" {
				following++
			}
			return clusterInfo(r, "cluster_state") == "ok"
		})
		if !whole || following < replicas {
			return false
		}
		return c.all(func(r *Redis) bool { // they agree who is whose
			text, err := r.Do("CLUSTER", "NODES")
			seen := 0
			for _, node := range clusterNodes(text) {
				if strings.Contains(node[2], "slave") && !strings.Contains(node[2], "fail") && node[7] == "connected" {
					seen++
				}
			}
			return err == nil && seen >= replicas
		})
	})
}

// all tells whether a condition holds for every node that runs.
func (c *RedisCluster) all(is func(*Redis) bool) bool {
	for _, node := range c.Nodes {
		if node.Runs() && !is(node) {
			return false
		}
	}
	return true
}

func clusterInfo(r *Redis, field string) string {
	text, err := r.Do("CLUSTER", "INFO")
	if err != nil {
		return ""
	}
	return infoField(text, field)
}

// Addrs are the nodes' addresses, with commas between them.
func (c *RedisCluster) Addrs() string {
	var addrs []string
	for _, node := range c.Nodes {
		addrs = append(addrs, node.Addr)
	}
	return strings.Join(addrs, ",")
}

// Master is the running master that holds the key's slot, Replica one of its
// running replicas.
func (c *RedisCluster) Master(t testing.TB, key string) *Redis {
	t.Helper()
	var master *Redis
	await(t, "a master of "+key, func() bool {
		master = c.find(key, "master")
		return master != nil
	})
	return master
}

// Replica is a running replica of the key's master.
func (c *RedisCluster) Replica(t testing.TB, key string) *Redis {
	t.Helper()
	var replica *Redis
	await(t, "a replica of "+key, func() bool {
		replica = c.find(key, "slave")
		return replica != nil
	})
	return replica
}

func (c *RedisCluster) find(key, role string) *Redis {
	for _, node := range c.Nodes {
		if !node.Runs() {
			continue
		}
		slot, err := node.Do("CLUSTER", "KEYSLOT", key)
		if err != nil {
			continue
		}
		nodes, err := node.Do("CLUSTER", "NODES")
		if err != nil {
			continue
		}
		for _, addr := range holders(nodes, slot, role) {
			for _, n := range c.Nodes {
				if n.Addr == addr && n.Runs() && n.Info("role") == role {
					return n
				}
			}
		}
	}
	return nil
}

// clusterNodes reads CLUSTER NODES, with the fields of a node a line: id,
// host:port@bus, flags, the master's id, …, link, slots. CLUSTER SLOTS is
// tidier, but leaves a replica out for seconds.
func clusterNodes(text string) (nodes [][]string) {
	for line := range strings.Lines(text) {
		if f := strings.Fields(line); len(f) > 7 {
			nodes = append(nodes, f)
		}
	}
	return nodes
}

// holders are the addresses of a slot's master, or of that one's replicas.
func holders(text, slot, role string) (addrs []string) {
	want, _ := strconv.Atoi(slot)
	nodes := clusterNodes(text)
	for _, master := range nodes {
		if !slices.ContainsFunc(master[8:], func(r string) bool { return holds(r, want) }) {
			continue
		}
		for _, node := range nodes {
			if role == "master" && node[0] == master[0] || role == "slave" && node[3] == master[0] {
				addr, _, _ := strings.Cut(node[1], "@")
				addrs = append(addrs, addr)
			}
		}
	}
	return addrs
}

// holds tells whether a range, such as 0-5460 or 7, has the slot.
func holds(r string, slot int) bool {
	first, last, ok := strings.Cut(r, "-")
	if !ok {
		last = first
	}
	from, err1 := strconv.Atoi(first)
	to, err2 := strconv.Atoi(last)
	return err1 == nil && err2 == nil && from <= slot && slot <= to
}

// AwaitFailover waits until another node has taken the place of the killed
// master of that key's slot, and all running nodes hold the cluster for whole.
func (c *RedisCluster) AwaitFailover(t testing.TB, key string) *Redis {
	t.Helper()
	var master *Redis
	await(t, "a failover", func() bool {
		master = c.find(key, "master")
		return master != nil && c.all(func(r *Redis) bool { return clusterInfo(r, "cluster_state") == "ok" })
	})
	return master
}
