package testenv

import (
	"testing"
	"time"
)

func TestRedisTakesUsersSocketsAndTLS(t *testing.T) {
	t.Parallel()
	files, err := MakeTLSFiles(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		opts RedisOptions
	}{
		{"password and user", RedisOptions{Password: "secret", Users: []string{"weir on >hidden ~weir:* +@all"}}},
		{"TLS", RedisOptions{TLS: files}},
		{"socket", RedisOptions{Socket: true, MaxMemory: "10mb"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := StartRedis(t, c.opts)
			if got := r.MustDo(t, "PING"); got != "PONG" {
				t.Errorf("PING answered %q", got)
			}
			if c.opts.Password != "" {
				if _, err := redisDo(r.Addr, nil, nil, []string{"PING"}); err == nil {
					t.Error("it answers without its password")
				}
				if got, err := redisDo(r.Addr, nil, []string{"AUTH", "weir", "hidden"}, []string{"ACL", "WHOAMI"}); got != "weir" {
					t.Errorf("the user is %q (%v)", got, err)
				}
			}
			if c.opts.Socket && !accepts(r.Socket) {
				t.Errorf("nothing listens on %q", r.Socket)
			}
		})
	}
}

func TestRedisClusterFailsOver(t *testing.T) {
	t.Parallel()
	c := StartRedisCluster(t, RedisClusterOptions{Masters: 3, Replicas: 1})
	old := c.Master(t, "key")
	replica := c.Replica(t, "key")
	old.MustDo(t, "SET", "key", "value")
	old.MustDo(t, "WAIT", "1", "5000")
	begin := time.Now()
	old.Kill()
	if master := c.AwaitFailover(t, "key"); master != replica {
		t.Errorf("%s took the place of %s, want its replica %s", master.Addr, old.Addr, replica.Addr)
	}
	t.Logf("it took %v", time.Since(begin).Round(time.Millisecond))
	if got := replica.MustDo(t, "GET", "key"); got != "value" {
		t.Errorf("after the failover the key holds %q", got)
	}
}

func TestSentinelsPromoteAReplica(t *testing.T) {
	t.Parallel()
	s := StartSentinel(t, SentinelOptions{})
	old := s.Master(t)
	begin := time.Now()
	old.Kill()
	master := s.Master(t)
	if master == old {
		t.Error("the killed master is still one")
	}
	t.Logf("it took %v", time.Since(begin).Round(time.Millisecond))
	master.MustDo(t, "SET", "key", "value")
}
