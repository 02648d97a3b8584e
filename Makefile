URL ?= http://127.0.0.1:8000
DURATION ?= 10s

.PHONY: run test compose bench load

# The service on port 8000, by .env if there is one.
run:
	cargo run -- serve $(ARGS)

# Everything that a change must pass; STEPS="fmt clippy" runs some of it.
test:
	scripts/test $(STEPS)

# The service and a Redis in containers.
COMPOSE ?= $(shell docker compose version >/dev/null 2>&1 && echo docker compose || echo docker-compose)
compose:
	$(COMPOSE) -f compose.yaml $(or $(ARGS),up --build)

bench:
	scripts/bench $(ARGS)

# What wrk measures of a service that runs already.
load:
	wrk -t2 -c64 -d$(DURATION) -s load_tests/gateway.lua $(URL)
