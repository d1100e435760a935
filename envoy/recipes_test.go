package envoy_test

import (
	"os/exec"
	"testing"

	"weir/internal/testenv"
)

// weirRuns returns what a command prints that succeeds.
func weirRuns(t *testing.T, args ...string) []byte {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), testenv.WeirBinary(t), args...).CombinedOutput()
	if err != nil {
		t.Errorf("weir %v: %v", args, err)
	}
	return out
}

func left(limit, remaining string) map[string]string {
	return map[string]string{"X-Ratelimit-Limit": limit, "X-Ratelimit-Remaining": remaining, "Retry-After": "", "X-Ratelimit-Retry-After": ""}
}

func over(limit string) map[string]string {
	return map[string]string{"X-Ratelimit-Limit": limit, "X-Ratelimit-Remaining": "0"}
}

func TestRecipesLimitByWhatTheySay(t *testing.T) {
	t.Parallel()
	var (
		unlimited = map[string]string{"X-Ratelimit-Limit": "", "Retry-After": ""}
		key       = func(k string) []string { return []string{"X-Api-Key", k} }
		tenant    = func(name, user string) []string { return []string{"X-Tenant", name, "X-User", user} }
	)
	steps := map[string][]step{
		"address": {
			{remark: "the first of two", path: "/by-address/a", code: 200, want: left("2", "1")},
			{remark: "whatever the path", path: "/by-address/b?x=1", code: 200, want: left("2", "0")},
			{remark: "over", path: "/by-address/a", code: 429, want: over("2")},
			{remark: "a forged address", path: "/by-address/a", header: []string{"X-Forwarded-For", "192.0.2.1"}, code: 429},
			{remark: "another client", client: bob, path: "/by-address/a", code: 200, want: left("2", "1")},
			{remark: "another path of the route table", path: "/elsewhere", code: 200, want: unlimited},
		},
		"API key": {
			{remark: "the first of three", path: "/by-key", header: key("k1"), code: 200, want: left("3", "2")},
			{remark: "from anywhere", client: bob, path: "/by-key", header: key("k1"), code: 200, want: left("3", "1")},
			{remark: "the last", path: "/by-key", header: key("k1"), code: 200, want: left("3", "0")},
			{remark: "over", path: "/by-key", header: key("k1"), code: 429, want: over("3")},
			{remark: "case counts", path: "/by-key", header: key("K1"), code: 200, want: left("3", "2")},
			{remark: "no key: one for each address", path: "/by-key", code: 200, want: left("1", "0")},
			{remark: "no key, over", path: "/by-key", code: 429, want: over("1")},
			{remark: "no key, from elsewhere", client: bob, path: "/by-key", code: 200, want: left("1", "0")},
		},
		"path": {
			{remark: "the first of two", path: "/by-path/a?page=1", code: 200, want: left("2", "1")},
			{remark: "the query is no part of it", path: "/by-path/a?page=2", code: 200, want: left("2", "0")},
			{remark: "over, for all clients", client: bob, path: "/by-path/a", code: 429, want: over("2")},
			{remark: "another spelling", path: "/by-path//a", code: 429, want: over("2")},
			{remark: "another path", path: "/by-path/b", code: 200, want: left("2", "1")},
			{remark: "a limit of its own", path: "/by-path/search?q=a", code: 200, want: left("1", "0")},
			{remark: "its own, over", path: "/by-path/search?q=b", code: 429, want: over("1")},
		},
		"method": {
			{remark: "a write", method: "POST", path: "/by-method", code: 200, want: left("2", "1")},
			{remark: "a read", path: "/by-method", code: 200, want: unlimited},
			{remark: "another write", method: "POST", path: "/by-method", code: 200, want: left("2", "0")},
			{remark: "over", method: "POST", path: "/by-method", code: 429, want: over("2")},
			{remark: "each method by itself", method: "DELETE", path: "/by-method", code: 200, want: left("2", "1")},
			{remark: "reads go on", path: "/by-method", code: 200, want: unlimited},
		},
		"parameter": {
			{remark: "the first of two", path: "/by-parameter?city=Rome&x=1", code: 200, want: left("2", "1")},
			{remark: "wherever it stands", path: "/by-parameter?x=2&city=Rome", code: 200, want: left("2", "0")},
			{remark: "over", path: "/by-parameter?city=Rome", code: 429, want: over("2")},
			{remark: "another value", path: "/by-parameter?city=Oslo", code: 200, want: left("2", "1")},
			{remark: "without it", path: "/by-parameter?x=1", code: 200, want: unlimited},
		},
		"several descriptors": {
			{remark: "user has 1 of 2", path: "/by-tenant", header: tenant("acme", "ann"), code: 200, want: left("2", "1")},
			{remark: "user has 0 of 2, tenant 1 of 3", path: "/by-tenant", header: tenant("acme", "ann"), code: 200, want: left("2", "0")},
			{remark: "the user is over, the tenant not charged", path: "/by-tenant", header: tenant("acme", "ann"), code: 429, want: over("2")},
			{remark: "another user takes the tenant's last", path: "/by-tenant", header: tenant("acme", "ben"), code: 200, want: left("3", "0")},
			{remark: "the tenant is over, the user not charged", path: "/by-tenant", header: tenant("acme", "cem"), code: 429, want: over("3")},
			{remark: "another tenant: 1 of 5 left for the service", path: "/by-tenant", header: tenant("umbrella", "ann"), code: 200, want: left("2", "1")},
			{remark: "no user: that descriptor is left out", path: "/by-tenant", header: []string{"X-Tenant", "globex"}, code: 200, want: left("5", "0")},
			{remark: "the service is over", path: "/by-tenant", header: tenant("hooli", "ann"), code: 429, want: over("5")},
		},
		"a limit of the route": {
			{remark: "the first of two", path: "/own-limit", code: 200, want: left("2", "1")},
			{remark: "the last", path: "/own-limit", code: 200, want: left("2", "0")},
			{remark: "over", path: "/own-limit", code: 429, want: over("2")},
			{remark: "another client", client: bob, path: "/own-limit", code: 200, want: left("2", "1")},
		},
		"a domain of the route": {
			{remark: "4 here, 2 in the other domain", client: carol, path: "/own-domain", code: 200, want: left("4", "3")},
			{remark: "another counter than the other domain's", client: carol, path: "/by-address", code: 200, want: left("2", "1")},
		},
	}
	for _, protocol := range protocols {
		t.Run(protocol, func(t *testing.T) {
			t.Parallel()
			r := startRecipe(t, "recipes", recipeOptions{})
			for name, steps := range steps { // in any order: no recipe meets another's counters
				t.Run(name, func(t *testing.T) { r.play(t, protocol, steps) })
			}
		})
	}
}
