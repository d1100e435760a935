# The few commands of this repository; `make help` lists them.
#
# Go and make are all that run, build and test need. With a C compiler at hand
# the tests run under the race detector, which needs one.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# What `weir version` says. Outside a git work tree (an archive, an image's
# build) it is dev, unless given: make build VERSION=1.2.3
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)

BUILD_FLAGS := -trimpath -ldflags "-s -w -X main.version=$(VERSION)"

RACE ?= $(if $(shell command -v "$$(go env CC)"),-race)
FUZZTIME ?= 30s
PACKAGES ?= ./...
TOOLS := bin/tools

.PHONY: help
help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 20

.PHONY: run
run: build ## build bin/weir and serve the sample rules on 127.0.0.1
	bin/weir serve

.PHONY: build
build: ## build bin/weir, static
	CGO_ENABLED=0 go build $(BUILD_FLAGS) -o bin/weir ./cmd/weir

# Installing is a step of its own, because go test shows what a test prints only
# when its package is done.
.PHONY: test
test: build ## vet, install what the tests run against, go test
	@echo "== vet"
	@go vet $(PACKAGES)
	@echo "== programs that the tests run against"
	@go run ./internal/testenv/install
	@echo "== go test $(RACE)"
	@go test -vet=off $(RACE) -timeout 8m $(PACKAGES)
ifeq ($(PACKAGES),./...)
	@echo "== go test of the manifests, in a module of their own"
	@go test -C internal/manifests -count=1 ./... # it reads files outside of its module, which go does not notice
	@echo "== go test of the benchmark, in a module of its own"
	@go vet -C bench ./...
	@go test -C bench -vet=off -count=1 ./...
endif

.PHONY: cover
cover: ## go test with coverage: bin/cover.html
	go run ./internal/testenv/install
	@mkdir -p bin
	go test -vet=off -coverpkg=./... -coverprofile=bin/cover.out $(PACKAGES)
	go tool cover -html=bin/cover.out -o bin/cover.html
	go tool cover -func=bin/cover.out | tail -1

.PHONY: lint
lint: $(TOOLS)/golangci-lint $(TOOLS)/buf ## gofmt, golangci-lint, buf lint and breaking
	@echo "== gofmt"
	@unformatted=$$(gofmt -l .); if [ -n "$$unformatted" ]; then echo "run gofmt -w on:"; echo "$$unformatted"; exit 1; fi
	@echo "== golangci-lint"
	@$(TOOLS)/golangci-lint run $(PACKAGES)
ifeq ($(PACKAGES),./...)
	@cd bench && $(CURDIR)/$(TOOLS)/golangci-lint run ./...
endif
	@echo "== buf"
	@$(TOOLS)/buf format --diff --exit-code
	@$(TOOLS)/buf lint
	@$(TOOLS)/buf breaking --against api/baseline.binpb

# The database is at vuln.go.dev; where that cannot be reached, name a copy:
# make scan VULNDB=file:///path/to/vulndb. gosec is among the linters of make lint.
VULNDB ?= https://vuln.go.dev

.PHONY: scan
scan: $(TOOLS)/golangci-lint $(TOOLS)/govulncheck ## gosec, and govulncheck: known vulnerabilities in what is called
	@echo "== gosec"
	@$(TOOLS)/golangci-lint run --enable-only gosec $(PACKAGES)
	@echo "== govulncheck"
	@$(TOOLS)/govulncheck -db $(VULNDB) $(PACKAGES)

.PHONY: generate
generate: $(TOOLS)/buf $(TOOLS)/protoc-gen-go $(TOOLS)/protoc-gen-go-grpc $(TOOLS)/protoc-gen-grpc-gateway $(TOOLS)/protoc-gen-openapiv2 ## the Go code and the OpenAPI file of api/
	$(TOOLS)/buf generate

# api/baseline.binpb is the API as it was last released: `make lint` refuses what
# breaks its callers. Renew it with each release, never to get lint to pass.
.PHONY: generate-baseline
generate-baseline: $(TOOLS)/buf ## the API that buf breaking compares with, at a release
	$(TOOLS)/buf build --exclude-source-info -o api/baseline.binpb

# What a decision costs, beside envoyproxy/ratelimit: 12 minutes, on a machine
# that does nothing else, and docs/performance.md has new figures. BENCH=quick
# (under two minutes) only prints. More: make bench BENCH_FLAGS="-limitador PATH",
# and bin/bench matrix -h.
BENCH ?= full
BENCH_MATRIX = $(if $(filter-out quick full,$(BENCH)),$(error BENCH is quick or full; one benchmark of Go's is MICRO=regexp of make microbench))$(if $(filter quick,$(BENCH)),-quick -json bin/bench-quick.json,-json bench/results.json -page docs/performance.md -svg docs/performance.svg)

.PHONY: bench
bench: build bin/bench ## measures Weir beside envoyproxy/ratelimit, and renews docs/performance.md; BENCH=quick only prints
	bin/bench matrix $(BENCH_MATRIX) $(BENCH_FLAGS)

# BASE=main runs those of another revision in turn with this tree's, and has
# benchstat compare them. MICRO=regexp picks some, COUNT=n is how often each runs.
.PHONY: microbench
microbench: bin/bench ## Go's benchmarks by benchstat; BASE=main compares with a revision, MICRO=regexp picks some
	bin/bench micro $(if $(BASE),-base $(BASE)) -bench '$(or $(MICRO),.)' -count $(or $(COUNT),6)

# Two runs write the same bytes; make test plays a part of it.
.PHONY: study
study: ## how accurate the algorithms are, by simulation: renews docs/accuracy.md, its charts and the table of docs/choosing.md
	@go run ./internal/testenv/install redis
	go test -vet=off -count=1 -timeout 30m -v -run '^TestThePagesAreWhatTheStudyFinds$$' ./internal/study -update

# The compiler lays out the code by this profile (profile-guided optimisation).
# Renew it when what a decision runs through has changed much; look with
# make bench whether it gained.
.PHONY: pgo
pgo: build bin/bench ## renews cmd/weir/default.pgo, the CPU profile under load that the compiler reads
	bin/bench profile -o cmd/weir/default.pgo

# An hour, unless SOAK says otherwise: make soak SOAK=10m. More: SOAK_FLAGS="-rate 1000
# -redis-restarts 2", and bin/bench soak -h. What is found lies in bin/soak.
SOAK ?= 1h

.PHONY: soak
soak: build bin/bench ## Weir for an hour (SOAK=10m) under a mixed load, with rules that change: fails if anything grows or drifts
	bin/bench soak -d $(SOAK) $(SOAK_FLAGS)

.PHONY: bin/bench
bin/bench:
	CGO_ENABLED=0 go build -C bench -trimpath -o $(CURDIR)/$@ .

# What takes minutes and gigabytes: 100,000 rules and 10 million counters.
.PHONY: scale
scale: ## memory, load time and lock times of 100,000 rules and 10 million counters
	WEIR_SCALE=1 go test -count=1 -timeout 20m -v -run '^TestScale' ./rules ./limiter

# Schedules of 20 s of faults: networks, Redis, Consul, etcd, clients and Weir's own
# processes. Each is known by its seed; CHAOS_SEED=n begins with that one, else by
# chance. CHAOS_PARALLEL at once take about as many cores.
CHAOS ?= 200
CHAOS_PARALLEL ?= 3

.PHONY: chaos
chaos: build ## CHAOS=200 random schedules of faults under load, CHAOS_PARALLEL=3 at once, from CHAOS_SEED on
	@go vet ./internal/chaos
	@go run ./internal/testenv/install
	CHAOS=$(CHAOS) CHAOS_SEED=$(CHAOS_SEED) CHAOS_SECONDS=$(CHAOS_SECONDS) WEIR_BINARY=$(or $(WEIR_BINARY),$(CURDIR)/bin/weir) \
		go test -vet=off -count=1 -timeout 0 -parallel $(CHAOS_PARALLEL) -v -run '^TestSchedules$$' ./internal/chaos

# make test has the short form of it.
.PHONY: linear
linear: ## histories of many clients at once, 30 times as many as in make test, against the definition of each algorithm
	WEIR_LINEAR=$(or $(LINEAR),30) go test -vet=off $(RACE) -count=1 -timeout 60m -v -run 'Linearizable|Seen$$|TakenBack$$|MorePass|DayEndsUnderLoad|BeginsTheLimit|AResetAdds' ./limiter ./limiter/redis

# FUZZ=regexp picks some, as package.FuzzName; FUZZBUDGET=2h is for all together, in
# place of FUZZTIME for each. It goes on after a finding, and fails at the end.
.PHONY: fuzz
fuzz: ## every fuzz target for FUZZTIME (30s) each, or all in FUZZBUDGET; FUZZ=regexp picks some
	@go run ./internal/testenv/install
	@go run ./internal/fuzz -time $(FUZZTIME) $(if $(FUZZBUDGET),-total $(FUZZBUDGET)) -targets '$(FUZZ)' $(PACKAGES)

# The tools are pinned by a go.mod each, apart from Weir's: their hundreds of
# dependencies are not Weir's, and must not raise the versions that it uses.
tool = @echo "building $(notdir $@)…"; go build -C $(1) -o $(CURDIR)/$@ $(2) && touch $@

$(TOOLS)/golangci-lint: $(wildcard internal/tools/golangci-lint/go.*) # a minute, the first time
	$(call tool,internal/tools/golangci-lint,github.com/golangci/golangci-lint/v2/cmd/golangci-lint)

$(TOOLS)/govulncheck: $(wildcard internal/tools/govulncheck/go.*)
	$(call tool,internal/tools/govulncheck,golang.org/x/vuln/cmd/govulncheck)

$(TOOLS)/buf: $(wildcard internal/tools/buf/go.*) # a minute, the first time
	$(call tool,internal/tools/buf,github.com/bufbuild/buf/cmd/buf)

$(TOOLS)/protoc-gen-go: $(wildcard internal/tools/protoc-gen/go.*)
	$(call tool,internal/tools/protoc-gen,google.golang.org/protobuf/cmd/protoc-gen-go)

$(TOOLS)/protoc-gen-go-grpc: $(wildcard internal/tools/protoc-gen/go.*)
	$(call tool,internal/tools/protoc-gen,google.golang.org/grpc/cmd/protoc-gen-go-grpc)

$(TOOLS)/protoc-gen-grpc-gateway: $(wildcard internal/tools/protoc-gen/go.*)
	$(call tool,internal/tools/protoc-gen,github.com/grpc-ecosystem/grpc-gateway/v2/protoc-gen-grpc-gateway)

$(TOOLS)/protoc-gen-openapiv2: $(wildcard internal/tools/protoc-gen/go.*)
	$(call tool,internal/tools/protoc-gen,github.com/grpc-ecosystem/grpc-gateway/v2/protoc-gen-openapiv2)
