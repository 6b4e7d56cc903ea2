# The commands of the project; `make help` lists them. Missing Debian packages are installed (tools/packages.txt).

JOBS ?= $(shell nproc)
PREFIX ?= /usr/local
RELEASE := build/release

# ccache takes files that use precompiled headers only if it may assume that no macro changes between them.
export CCACHE_SLOPPINESS ?= pch_defines,time_macros

.PHONY: help packages build test unit sanitize lint format demo bench dist deb install clean

help:
	@echo "make demo      programs share one GPU, for a minute (real GPU if there is one, else the soft one)"
	@echo "make test      everything that a machine without a GPU can check"
	@echo "make build     binaries in $(RELEASE)/bin, libraries in $(RELEASE)/lib/tessera"
	@echo "make bench     figures against a baseline of the same run"
	@echo "make dist      one relocatable folder, dist/"
	@echo "make deb       Debian packages, build/deb"
	@echo "make install   into PREFIX=$(PREFIX)"
	@echo "make lint      formatting and clang-tidy;  make format  mends the formatting"

packages:
	@tools/install_packages.sh

build: packages
	@cmake --preset release -DCMAKE_CXX_COMPILER_LAUNCHER=ccache -DCMAKE_C_COMPILER_LAUNCHER=ccache >build-configure.log 2>&1 \
	  || { cat build-configure.log; rm -f build-configure.log; exit 1; }; rm -f build-configure.log
	@cmake --build --preset release -j $(JOBS)

# Most tests wait most of their time.
unit: build
	ctest --preset release -j $$((2 * $(JOBS)))

# Parsers and protocols under AddressSanitizer, what has threads under ThreadSanitizer.
sanitize: packages
	tools/sanitize.sh asan
	tools/sanitize.sh tsan

lint: packages
	tools/lint.sh

format: packages
	git ls-files '*.cc' '*.h' '*.cu' | xargs clang-format-19 -i

test: lint unit sanitize

demo: build
	@$(RELEASE)/bin/tessera demo

bench: build
	@python3 bench/run.py --build $(RELEASE)
	@python3 bench/faces.py --build $(RELEASE)

dist: build
	tools/dist.sh

deb: build
	@tools/deb.sh

install: build
	cmake --install $(RELEASE) --prefix $(PREFIX)

clean:
	rm -rf build dist
