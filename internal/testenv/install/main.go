// Command install finds or installs the programs that the tests run against, and
// says where they are: `go run ./internal/testenv/install [redis|envoy|chromium|consul|etcd|ratelimit|promtool|python|node]…`,
// by default those that every test run needs.
package main

import (
	"fmt"
	"os"

	"weir/internal/testenv"
)

func main() { os.Exit(run(os.Args[1:])) }

func run(names []string) int {
	finders := map[string]func() (string, error){
		"redis":     testenv.FindRedis,
		"envoy":     testenv.FindEnvoy,
		"chromium":  testenv.FindChromium,
		"consul":    testenv.FindConsul,
		"etcd":      testenv.FindEtcd,
		"ratelimit": testenv.FindRatelimit,
		"promtool":  testenv.FindPromtool,
		"python":    testenv.FindPythonPackages,
		"node":      testenv.FindNodeModules,
	}
	if len(names) == 0 {
		names = []string{"redis", "envoy", "etcd", "promtool", "chromium", "python", "node", "ratelimit", "consul"} // the one that takes longest is last
	}
	for _, name := range names {
		find, ok := finders[name]
		if !ok {
			fmt.Fprintf(os.Stderr, "install: unknown program %q; there are redis, envoy, chromium, consul, etcd, ratelimit, promtool, python, node\n", name)
			return 2
		}
		path, err := find()
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		fmt.Printf("testenv: %s: %s\n", name, path)
	}
	return 0
}
