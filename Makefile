# Everything here is safe to repeat, and quick when nothing is missing. `make` alone lists the targets.

PREFIX = /usr/local
DESTDIR =

# Modules may only import the rows below them (README, "How it is built"): every build checks it.
CHECKS = --explicit-target-dependency-import-check error
# The Swift runtime is linked in, so that the program runs where no toolchain is; make demo runs what make install lays.
RELEASE = -c release --static-swift-stdlib $(CHECKS)
STRICT = $(CHECKS) -Xswiftc -warnings-as-errors

export PREFIX DESTDIR

.DEFAULT_GOAL := help
.PHONY: help provision peers build demo test soak bench install uninstall docs lint clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## /{printf "make %-10s %s\n", $$1, $$2}' Makefile

provision: ## install what is missing: Debian packages, OpenVINO runtime, model, demo photos
	@Scripts/provision

build: provision ## build .build/release/pipeline
	swift build $(RELEASE)

demo: build ## run pipelines/demo.json on three real photos
	@Scripts/demo

peers: ## make the Python environment with the servers that tests talk to, about 600 MB
	@Scripts/provision --tests
	@Scripts/peers >/dev/null

test: peers ## run all tests
	PIPELINE_HOME="$$(Scripts/home)" PIPELINE_PEERS="$$(Scripts/peers --where)" PIPELINE_TEST_BUILD=1 swift test --disable-xctest $(STRICT)

soak: peers ## run all tests, with the long proofs at full length
	PIPELINE_HOME="$$(Scripts/home)" PIPELINE_PEERS="$$(Scripts/peers --where)" PIPELINE_SOAK=1 PIPELINE_TEST_BUILD=1 swift test --disable-xctest $(STRICT)

bench: build ## compare with other tools; makes a venv and about 1 GB of pictures on first use
	@Tests/Benchmarks/all.sh

install: ## install the program, runtime and model: make install PREFIX=/usr/local
	@Scripts/install

uninstall: ## remove what install laid: make uninstall PREFIX=/usr/local
	@Scripts/install --remove

docs: ## refresh what is made from the stages' declarations: docs/stages, README.md, the schemas in pipelines/
	swift build $(CHECKS)
	@Scripts/docs

lint: ## check the layout of the Swift sources
	swift format lint --strict --parallel --recursive Package.swift Sources Tests

clean: ## remove everything built here and the demo's pictures
	rm -rf .build pipelines/out pipelines/photos pipelines/.pipeline
