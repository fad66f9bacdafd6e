# make demo and make test are all that a newcomer needs. What they install goes into the cache folder.

SHELL       = bash
.SHELLFLAGS = -o pipefail -c

CACHE   ?= $(or $(ARBE_CACHE),$(or $(XDG_CACHE_HOME),$(HOME)/.cache)/arbe-runner)
BIN     ?= bin

# The commit of this source, ".dirty" behind it where files differ: a source archive has it in .commit, a clone in git.
COMMIT  := $(or $(word 1,$(shell grep -v Format .commit)),$(shell [ -e .git ] && git rev-parse HEAD 2>/dev/null))
COMMIT  := $(COMMIT)$(and $(COMMIT),$(shell [ -e .git ] && [ -n "$$(git status --porcelain 2>/dev/null)" ] && echo .dirty))
export ARBE_CACHE := $(CACHE)

STATICCHECK = honnef.co/go/tools/cmd/staticcheck@v0.8.2
GOFUMPT     = mvdan.cc/gofumpt@v0.12.0
GOVULNCHECK = golang.org/x/vuln/cmd/govulncheck@v1.9.0

# Both binaries go without the library's documentation generator. The box's goes without HTTP/2, too, which a runner's
# few requests have no use for.
LDFLAGS     = -s -w -X arbe.0sk.ar/runner.commit=$(COMMIT)
HOST_TAGS   = urfave_cli_no_docs
RUNNER_TAGS = urfave_cli_no_docs,nethttpomithttp2
# Functions begin at multiples of 16 bytes, not 32: 1 % less to upload into each box.
RUNNER_LD   = $(LDFLAGS) -funcalign=16
FUZZTIME   ?= 20s

# What a user has set for go build would make other bytes from the same commit. An empty variable would be looked for in
# the file of "go env -w".
GOBUILD = env CGO_ENABLED=0 GOFLAGS=-buildvcs=false GOAMD64=v1 GOARM64=v8.0 GOFIPS140=off GOEXPERIMENT= go build -trimpath
ARBE    = $(GOBUILD) -tags $(HOST_TAGS) -ldflags '$(LDFLAGS)'
RUNNER  = $(GOBUILD) -tags $(RUNNER_TAGS) -ldflags '$(RUNNER_LD)'

.PHONY: help
help: ## this list
	@awk -F':.*## ' '/^[a-z-]+:.*## / {printf "make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: runner arbe ## both binaries, static, into bin/

.PHONY: runner arbe
runner:
	$(RUNNER) -o $(BIN)/arbe-pi-runner ./cmd/arbe-pi-runner
arbe:
	$(ARBE) -o $(BIN)/arbe ./cmd/arbe

.PHONY: reproduce
reproduce: ## builds this commit in two ways, and compares the programs
	@internal/test/release/reproduce.sh

# The commit's time is that of all files. Changed files and another Go would make other bytes.
DIST    ?= $(BIN)/dist
TARGETS ?=
KEY     ?=
GO      := $(shell sed -n 's/^toolchain //p' go.mod)
EPOCH    = $(or $(word 2,$(shell grep -v Format .commit)),$(shell git log -1 --format=%ct))
.PHONY: dist releasable
dist: releasable build ## the files of a release, into bin/dist; TARGETS=linux/amd64,darwin/arm64 KEY=key of ssh
	@go run -trimpath ./internal/dist -version "$$(cat VERSION)" -commit $(COMMIT) -time $(EPOCH) \
		$(if $(TARGETS),-targets $(TARGETS)) $(if $(KEY),-key $(KEY)) $(BIN) $(DIST)
releasable:
	@case '$(COMMIT)' in '' | *.dirty) echo 'files differ from the commit, or it is not known: commit them' >&2; exit 1;; esac
	@[ "$$(go env GOVERSION)" = $(GO) ] || { echo "this is $$(go env GOVERSION): install $(GO)" >&2; exit 1; }

.PHONY: man
man: build ## the manual pages, into bin/man
	@mkdir -p $(BIN)/man
	$(BIN)/arbe manual >$(BIN)/man/arbe.1
	$(BIN)/arbe-pi-runner manual >$(BIN)/man/arbe-pi-runner.1

PREFIX ?= /usr/local

# DESTDIR is for packages.
.PHONY: install
install: build runners man ## programs, manual pages and completion, below PREFIX (/usr/local)
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/share/man/man1
	install $(BIN)/arbe $(BIN)/arbe-pi-runner $(BIN)/arbe-pi-runner-linux-* $(DESTDIR)$(PREFIX)/bin
	install -m 644 $(BIN)/man/*.1 $(DESTDIR)$(PREFIX)/share/man/man1
	@set -e; to() { mkdir -p $$(dirname $(DESTDIR)$(PREFIX)/share/$$1); cat >$(DESTDIR)$(PREFIX)/share/$$1; }; \
	for p in arbe arbe-pi-runner; do \
		$(BIN)/$$p completion bash | to bash-completion/completions/$$p; \
		$(BIN)/$$p completion zsh | to zsh/site-functions/_$$p; \
		$(BIN)/$$p completion fish | to fish/vendor_completions.d/$$p.fish; done

.PHONY: runners
runners: ## the box's binary for each architecture, for arbe to find beside itself, into bin/
	@set -e; for arch in amd64 arm64; do \
		GOOS=linux GOARCH=$$arch $(RUNNER) -o $(BIN)/arbe-pi-runner-linux-$$arch ./cmd/arbe-pi-runner; done

.PHONY: demo
demo: build $(CACHE)/pi-0.78.0/.installed ## one run of the real pi, live, against a scripted model
	@go run -trimpath ./internal/test/demo $(BIN)

STAY ?=
PG   = $(CACHE)/postgres-18.4/.installed
.PHONY: demo-house
demo-house: build $(CACHE)/pi-0.78.0/.installed $(PG) ## a house on a Postgres of its own, a run of its bot, and an answer; STAY=1
	@go run -trimpath ./internal/test/demohouse $(if $(STAY),-stay) $(BIN)

.PHONY: demo-bots
demo-bots: build $(CACHE)/pi-0.78.0/.installed $(PG) ## bots that run a command, delegate a task and tell each other; STAY=1
	@go run -trimpath ./internal/test/demobots $(if $(STAY),-stay) $(BIN)

# make test leaves out the race detector, and the tests whose names begin with TestFull or TestLarge. make test-full has
# these, and all others under the race detector. Both go through internal/test/report, which counts skips and prints what
# took longest.
#
# TestFull: the cells of a matrix for which make test has no time, long load.
FULL    = ^TestFull
# TestLarge: the race detector makes a test that moves megabytes through one goroutine ten times as slow, and finds
# nothing there.
LARGE   = ^TestLarge
# Nor does it look into the built programs, which these packages drive.
DRIVERS = ./internal/test/e2e ./internal/test/faults ./internal/test/page ./internal/test/scripts
# With -trimpath each checkout of the same code shares what is compiled; without cgo "make build" does, too.
GOTEST  = go test -json -vet=off -trimpath -shuffle=on -timeout 40m
PLAIN   = env CGO_ENABLED=0 $(GOTEST)
# Several packages at once (-p): many tests wait. At the end of a program the race detector would sleep for a second.
RACED   = env GORACE=atexit_sleep_ms=0 $(GOTEST) -race -p 3
# By exec: a signal for make's shell would not reach a command of the shell.
REPORT  = exec env ARBE_BIN=$(abspath $(BIN)) go run -trimpath ./internal/test/report
# The packages that have tests whose names match a pattern, below some folders.
HAVING  = $$(grep -rlP --include='*_test.go' '^func $(2)' $(1) | xargs -n 1 dirname | sort -u | tr '\n' ' ')
SHORT   = Test(?!Full|Large|Main\()
OTHERS  = $$(go list ./... | grep -vFx "$$(go list $(DRIVERS:%=%/...))" | tr '\n' ' ')

.PHONY: test
test: build agents ## all packages, the scripts, a sample of the fault table, a run of each agent: 4 minutes
	@driving="$(call HAVING,$(DRIVERS),$(SHORT))"; others="$(OTHERS)"; \
	$(REPORT) "$(PLAIN) -p 4 -skip '$(FULL)|$(LARGE)' -parallel 8 $$driving $$others"

.PHONY: test-full
test-full: build runners agents browser shells debian cross ## the same under the race detector, and all matrices
	@driving="$(call HAVING,$(DRIVERS),TestFull)"; large="$(call HAVING,.,TestLarge)"; others="$(OTHERS)"; \
	$(REPORT) "$(PLAIN) -run $(FULL) -parallel 4 $$driving" \
		"$(RACED) -skip $(LARGE) -parallel 4 $$others" \
		"$(PLAIN) -run $(LARGE) $$large"

# Where apt-get is missing or refuses, the tests of completion are skipped, and CI fails on that. Without systemd the
# units are not analyzed, but parsed.
.PHONY: shells
shells: ## the shells that completion is tested in, and what analyzes units
	@for p in zsh fish groff systemd-analyze; do command -v $$p >/dev/null || { \
		p=$${p/groff/groff-base}; missing="$$missing $${p/systemd-analyze/systemd}"; }; done; \
	[ -z "$$missing" ] || { sudo=; [ $$(id -u) = 0 ] || sudo="sudo -n"; \
		$$sudo apt-get -qq update && $$sudo apt-get -qq install -y --no-install-recommends $$missing >/dev/null; } || true

# Programs of Debian's that nobody installs. Where apt-get is missing or refuses, the tests that run them are skipped.
DEBS = docker.io containerd runc tini busybox-static rpm rpm-common librpm9 librpmio9 liblua5.3-0 libpopt0
.PHONY: debian
debian: ## a Docker engine, rpm and busybox for tests, unpacked into the cache folder
	@internal/test/debian/unpack.sh $(CACHE)/debian-1 $(DEBS) || echo "not unpacked: $(DEBS)"

# The client's commands and the launch at Daytona work on these, too.
.PHONY: cross
cross: ## arbe for macOS and Windows
	@set -e; for os in darwin windows; do for arch in amd64 arm64; do \
		echo "GOOS=$$os GOARCH=$$arch go build, go vet ./cmd/arbe"; \
		GOOS=$$os GOARCH=$$arch $(ARBE) -o /dev/null ./cmd/arbe; \
		CGO_ENABLED=0 GOOS=$$os GOARCH=$$arch go vet ./cmd/arbe; done; done

# The linter of docs/openapi.yaml, with a Node that can run it. It reports to nobody, and looks for no newer one.
REDOCLY = $(CACHE)/redocly-cli-2.77.0

.PHONY: lint
lint: $(REDOCLY)/.installed ## vet, staticcheck, gofumpt, redocly
	PATH=$(REDOCLY)/node_modules/.bin:$$PATH REDOCLY_TELEMETRY=off REDOCLY_SUPPRESS_UPDATE_NOTICE=true \
		redocly lint --config testdata/tools/redocly.yaml docs/openapi.yaml
	go vet ./...
	go run $(STATICCHECK) ./...
	@out=$$(go run $(GOFUMPT) -l .); [ -z "$$out" ] || { echo "not formatted (gofumpt -w):"; echo "$$out"; exit 1; }

.PHONY: house
house: ## the largest files, functions, interfaces and packages, and the highest complexities
	@go run ./internal/test/house

.PHONY: fuzz
fuzz: ## each fuzz target for FUZZTIME (20s)
	@set -e; for f in $$(grep -rhoE --include='*_test.go' '^func Fuzz[A-Za-z]+' . | cut -c6-); do \
		dir=$$(dirname $$(grep -rlE --include='*_test.go' "^func $$f\(" .)); \
		go test -run '^$$' -fuzz "^$$f\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 5x $$dir; done

# Tests hold the parts that this writes: internal/test/generated lists them.
.PHONY: docs
docs: build $(PG) ## the generated parts of the documents
	go test -count=1 -trimpath ./internal/test/wire ./host/dispatch/tools -update
	ARBE_BIN=$(abspath $(BIN)) go test -count=1 -trimpath -run TestDoors ./internal/test/scripts -update
	ARBE_BIN=$(abspath $(BIN)) go test -count=1 -trimpath -run TestTable ./internal/test/providers -update
	ARBE_BIN=$(abspath $(BIN)) go test -count=1 -trimpath -run TestDocCommands ./internal/test/e2e/docs -update

.PHONY: captures
captures: build agents ## docs/SCREENS.md: what a terminal shows of real runs; needs tmux
	go run ./internal/test/captures $(BIN) docs/SCREENS.md

.PHONY: newcomer
newcomer: ## seconds from a clone to the demo's verdict, without any cache
	@internal/test/newcomer.sh

.PHONY: bench
bench: agents browser ## the figures in docs/PERFORMANCE.md
	go test -run '^$$' -bench 'Start|Latency|Delegate' -benchtime 500x ./internal/test/e2e/figures
	go test -run '^$$' -bench 'Mirror|Hydrate|Idle|Load|RunMemory|Live' -benchtime 3x ./internal/test/e2e/figures
	go test -run '^$$' -bench Restart -benchtime 1x ./internal/test/e2e/figures
	go test -run '^$$' -bench Mention -benchtime 100x ./internal/test/e2e/bots
	go test -run '^$$' -bench Stop -benchtime 20x ./internal/test/e2e/bots
	ARBE_RESUME_MB=91 ARBE_UPLOAD_SECONDS=60 go test -count=1 -v -run Traffic ./internal/test/e2e/figures | grep traffic_test
	go test -run '^$$' -bench . -benchmem ./mirror ./hydrate
	go test -run '^$$' -bench Fronts -benchtime 5000x ./host/server
	go test -run '^$$' -bench 'Append|Redis|Threads' -benchtime 1x -timeout 30m ./host/server
	go test -run '^$$' -bench 'Replay|FanOut' ./host/server
	go test -run '^$$' -bench StateAdd ./host/index
	go test -run '^$$' -bench 'ListThreads|AppendIndexed|Deltas|Fold' -benchtime 1x -timeout 30m ./host/index
	go test -run '^$$' -bench . -benchtime 1x -timeout 30m ./host/reconcile
	go test -run '^$$' -bench Projector -benchtime 1x ./host/control
	go test -run '^$$' -bench Delegate -benchtime 500x ./host/control
	go test -run '^$$' -bench Indexed -benchtime 1x ./host/server
	go test -run '^$$' -bench Before -benchtime 1x -timeout 30m ./host/server
	go test -run '^$$' -bench Page -benchtime 10x ./internal/test/page
	go test -run '^$$' -bench Append -benchtime 1x ./host/log/jetstream
	go test -run '^$$' -bench Replay -benchtime 62x -timeout 30m ./host/log/jetstream
	ARBE_READERS=10000 go test -count=1 -v -run TestIdleReaders ./host/server | grep -v '^=== '
	go test -run '^$$' -bench Growth -benchtime 1x -v -timeout 60m ./host/server ./host/log/pebble ./host/log/jetstream | grep -v level=

.PHONY: conformance
conformance: agents ## the Durable Streams protocol's own suite, all of it, on both engines
	ARBE_CONFORMANCE=1 go test -count=1 -v -run 'Test(Full)?Conformance|TestOfficialClient' ./host/server | grep -vE '^=== |level='

N    ?= 500
SEED ?=
HARNESS ?=
FAULTS_REPORT ?= $(abspath $(BIN))/FAULTS.md

.PHONY: faults
faults: build ## each fault at each moment, and the table of them in bin/FAULTS.md
	ARBE_BIN=$(abspath $(BIN)) ARBE_FAULTS=$(FAULTS_REPORT) ARBE_SERVER_KILLS=100 go test -count=1 -v -parallel 8 -run 'TestFullFaults|TestServer|TestSecrets' ./internal/test/faults | grep -vE '^=== |--- PASS: TestFullFaults/'
	ARBE_NATS_FAULTS=1 ARBE_NATS_PARTITIONS=10 go test -count=1 -v -run 'Test(Cluster|Doubt|Partition|DeleteTwice)' \
		-timeout 30m ./host/log/jetstream | grep -vE '^=== |level='
	go test -count=1 -v -run 'TestDeliver' ./runner | grep -v '^=== '
	go test -count=1 -v -run 'TestRenew' ./thread/client | grep -v '^=== '

.PHONY: soak
soak: build ## N (500) random runs against random faults; SEED plays one again
	ARBE_BIN=$(abspath $(BIN)) ARBE_SOAK=$(N) ARBE_SOAK_SEED=$(SEED) go test -count=1 -timeout 60m -v -run TestFullSoak ./internal/test/faults | grep -vE '^=== |--- PASS: TestFullSoak/'

# Each error leaves a store that has failed in memory, so a process tries 50.
.PHONY: diskerrors
diskerrors: ## N (500) random disk errors under the log; SEED is the first one's
	go test -c -o $(BIN)/pebble.test ./host/log/pebble
	@set -e; left=$(N); seed=$(or $(SEED),1); cd host/log/pebble; while [ $$left -gt 0 ]; do \
		n=$$((left < 50 ? left : 50)); \
		ARBE_DISK_ERRORS=$$n ARBE_DISK_ERRORS_SEED=$$seed $(CURDIR)/$(BIN)/pebble.test -test.v -test.run TestDiskErrors \
			| grep -vE '^=== |--- PASS: TestDiskErrors/'; \
		left=$$((left - n)); seed=$$((seed + 1000)); done

.PHONY: chaos
chaos: ## N (500) random schedules of the host's side, in virtual time; SEED is the first one (1)
	ARBE_CHAOS=$(N) ARBE_CHAOS_SEED=$(SEED) go test -count=1 -timeout 60m -v -run TestSchedules ./internal/test/chaos | grep -vE '^=== |--- PASS: TestSchedules/'

# A schedule takes some 15 s: play them in parts, by N and the seed of the first one.
.PHONY: live-chaos
live-chaos: build agents ## N (500) random schedules of live runs of the real agents; SEED is the first one (1); HARNESS
	ARBE_BIN=$(abspath $(BIN)) ARBE_LIVE_CHAOS=$(N) ARBE_LIVE_CHAOS_SEED=$(SEED) ARBE_LIVE_CHAOS_HARNESS=$(HARNESS) go test -count=1 -timeout 0 -v -parallel 4 \
		-run TestFullLiveChaos ./internal/test/e2e/live | grep -vE '^=== |--- PASS: TestFullLiveChaos/'

.PHONY: bots-schedules
bots-schedules: build $(PG) ## N (500) random schedules of mentions against three killed hosts; SEED is the first one (1)
	ARBE_BIN=$(abspath $(BIN)) ARBE_BOTS=$(N) ARBE_BOTS_SEED=$(SEED) go test -count=1 -timeout 0 -v -run TestFullBotSchedules ./internal/test/e2e/dispatch | grep -v '^=== '

MINUTES ?= 30

COUNT ?= 20
PKGS  ?= ./...
RUN   ?=

.PHONY: stress
stress: build agents ## the tests of PKGS, COUNT (20) times in random order, beside two busy loops; RUN, RACE=1
	@exec env ARBE_BIN=$(abspath $(BIN)) go run -trimpath ./internal/test/stress $(if $(RACE),-race) \
		$(if $(RUN),-run '$(RUN)') -commit '$(shell printf %.12s '$(COMMIT)')$(findstring .dirty,$(COMMIT))' $(COUNT) $(PKGS)

.PHONY: siege
siege: build ## hostile and honest load on a thread server of 512 MiB for MINUTES (30)
	ARBE_BIN=$(abspath $(BIN)) ARBE_SIEGE=$(MINUTES) go test -count=1 -timeout 0 -v -run TestFullSiege ./internal/test/faults | grep -v '^=== '

.PHONY: vuln
vuln: ## known vulnerabilities in what we link; needs the Go vulnerability database
	go run $(GOVULNCHECK) ./...

# A Chromium for the tests of the page, and the libraries and fonts that it needs. One on PATH is as good.
CHROMIUM = $(CACHE)/chromium-147.0.2
FOUND    = $(or $(ARBE_CHROMIUM),$(shell command -v chromium-headless-shell chromium chromium-browser google-chrome))
.PHONY: browser
browser: $(if $(FOUND),,$(CHROMIUM)/unpacked/.done) ## a Chromium for the tests of the page, where none is on PATH
$(CHROMIUM)/unpacked/.done: $(CHROMIUM)/.installed
	@set -e; rm -rf $(@D); mkdir -p $(@D); \
	node internal/test/browser/unpack.js $(CHROMIUM)/node_modules/@sparticuz/chromium/bin $(@D); \
	cd $(@D); for f in *.tar; do tar -xf $$f; rm $$f; done; mv fonts.xml fonts.conf; chmod 755 chromium; touch $(@F)

.PHONY: shots
shots: build agents browser ## pictures of the page, into bin/shots
	mkdir -p $(BIN)/shots
	ARBE_BIN=$(abspath $(BIN)) ARBE_SHOTS=$(abspath $(BIN))/shots go test -count=1 -run 'TestFullPage(Pictures|Recorded|Export)' \
		./internal/test/page

# The real agents, and a Node that can run them, at the versions of their lock files. An installed one of the same lock
# stays.
.PHONY: agents
agents: $(patsubst testdata/npm/%/package-lock.json,$(CACHE)/%/.installed,$(filter-out testdata/npm/chromium-% testdata/npm/redocly-%,$(wildcard testdata/npm/*/package-lock.json))) ## all that the tests run: agents, SDKs
$(CACHE)/%/.installed: testdata/npm/%/package-lock.json
	@set -e; if [ -e $@ ] && cmp -s $< $(@D)/package-lock.json; then touch $@; exit; fi; \
	echo "installing $* into $(CACHE)"; \
	mkdir -p $(@D); cp testdata/npm/$*/package.json testdata/npm/$*/package-lock.json $(@D); \
	cd $(@D); npm ci --ignore-scripts --no-audit --no-fund --loglevel=error; \
	touch $@
