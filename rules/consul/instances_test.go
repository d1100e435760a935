package consul

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	consulapi "github.com/hashicorp/consul/api"

	"weir/internal/testenv"
	"weir/rules/kv/kvtest"
)

func TestInstancesAreThoseOfTheCatalog(t *testing.T) {
	t.Parallel()
	c := testenv.StartConsul(t, testenv.ConsulOptions{})
	s := open(t, Options{Addr: c.Addr})
	for _, entry := range []consulapi.AgentServiceRegistration{
		{Name: "weir", ID: "a", Address: "10.0.0.1", Port: 8081, Meta: map[string]string{"http": "10.0.0.2:8080", "version": "1.2.3"}},
		{Name: "weir", ID: "b", Port: 8082, Meta: map[string]string{"http": ":8080"}, Check: &consulapi.AgentServiceCheck{TTL: "1h", Status: "passing"}},
		{Name: "weir", ID: "c", Address: "2001:db8::1", Port: 8083, Check: &consulapi.AgentServiceCheck{TTL: "1h", Status: "critical"}},
		{Name: "other", ID: "d", Port: 1},
	} {
		kvtest.Must(t, s.client.Agent().ServiceRegister(&entry))
	}
	got, err := s.Instances(t.Context(), "weir")
	kvtest.Must(t, err)
	slices.SortFunc(got, func(a, b Instance) int { return strings.Compare(a.ID, b.ID) })
	want := []Instance{
		{ID: "a", Addr: "10.0.0.1:8081", HTTP: "10.0.0.2:8080", Version: "1.2.3", Passing: true},
		{ID: "b", Addr: "127.0.0.1:8082", HTTP: "127.0.0.1:8080", Passing: true},
		{ID: "c", Addr: "[2001:db8::1]:8083"},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got, err := s.Instances(t.Context(), "unknown"); err != nil || len(got) != 0 {
		t.Errorf("of an unknown service: %+v, %v", got, err)
	}
	c.Kill()
	_, err = s.Instances(t.Context(), "weir")
	kvtest.Wants(t, err, "weir", c.Addr, "connection refused")
}
