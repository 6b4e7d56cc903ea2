# The commands of the project; `make help` lists them. Missing Debian packages are installed, by group
# (tools/packages.txt).

JOBS ?= $(shell nproc)
PREFIX ?= /usr/local
RELEASE := build/release

# ccache takes files that use precompiled headers only if it may assume that no macro changes between them.
export CCACHE_SLOPPINESS ?= pch_defines,time_macros

.PHONY: help build demo test lint sanitize check format bench dist image systems deb rpm install arm64 arm64-test clean
# The recipes themselves use all processors.
.NOTPARALLEL:

help:
	@echo "                                                                     packages installed if missing"
	@echo "make demo      programs share one GPU, for a minute: a real one if   build"
	@echo "               there is one, else the soft one"
	@echo "make build     binaries in $(RELEASE)/bin, libraries in lib/tessera   build"
	@echo "make install   into PREFIX=$(PREFIX)                                build"
	@echo "make dist      one relocatable folder, dist/                         build dist"
	@echo "make systems   runs dist/ in Debian 11, 12 and 13, from a mirror     build dist systems"
	@echo "make image     of dist/, for nodes of a cluster; IMAGE= is its name,  build dist image"
	@echo "               BASE= what it is built on"
	@echo "make deb       Debian packages, build/deb                            build deb"
	@echo "make rpm       RPM packages of the same, build/rpm                   build dist rpm"
	@echo "make test      builds and runs all tests that need no GPU            build deb dist rpm test e2e"
	@echo "make lint      formatting, includes, clang-tidy                      build lint"
	@echo "make sanitize  unit tests with AddressSanitizer and ThreadSanitizer  build test sanitize"
	@echo "make check     test, lint and sanitize, as continuous integration    all of these three"
	@echo "make bench     figures against a baseline of the same run            build test bench"
	@echo "make format    mends the formatting                                  lint"
	@echo "make arm64     the product for 64-bit ARM, in build/arm64            build arm64"
	@echo "make arm64-test  and its tests, under qemu-user                      build arm64 e2e"

# $(call configure_as,PRESET,OPTIONS): prints nothing unless it fails.
configure_as = @mkdir -p build/$(1) && cmake --preset $(1) -DCMAKE_CXX_COMPILER_LAUNCHER=ccache \
  -DCMAKE_C_COMPILER_LAUNCHER=ccache $(2) >build/$(1)/configure.log 2>&1 || { cat build/$(1)/configure.log; exit 1; }
configure = $(call configure_as,release,$(1))
compile = @cmake --build --preset release -j $(JOBS)

build:
	@tools/install_packages.sh build
	$(call configure)
	$(compile) --target tessera-product

demo: build
	@$(RELEASE)/bin/tessera demo

# End-to-end tests wait most of their time, hence three at a time for each processor. A unit test counts as two of them
# (cmake/tessera.cmake). A test that is skipped without a reason fails, too.
test:
	@tools/install_packages.sh build deb dist rpm test e2e
	$(call configure,-DTESSERA_TESTS=ON)
	$(compile)
	@rm -f $(RELEASE)/tests.xml
	@status=0; \
	ctest --preset release -j $$((3 * $(JOBS))) --output-junit tests.xml --test-output-size-passed 1000000 || status=1; \
	tools/check_skips.py --whole $(RELEASE)/tests.xml || status=1; exit $$status

lint:
	@tools/install_packages.sh build lint
	tools/lint.sh

# Parsers and protocols under AddressSanitizer, what has threads under ThreadSanitizer.
sanitize:
	@tools/install_packages.sh build test sanitize
	tools/sanitize.sh asan
	tools/sanitize.sh tsan

check: test lint sanitize

format:
	@tools/install_packages.sh lint
	git ls-files '*.cc' '*.h' '*.cu' | xargs clang-format-19 -i

bench:
	@tools/install_packages.sh build test bench
	$(call configure,-DTESSERA_TESTS=ON)
	$(compile)
	@python3 bench/run.py --build $(RELEASE)
	@python3 bench/faces.py --build $(RELEASE)
	@python3 bench/plan.py --tessera $(RELEASE)/bin/tessera

dist: build
	@tools/install_packages.sh dist
	$(compile) --target swap_churn tessera_glibc
	tools/dist.sh

# Programs on the soft GPU, in root file systems that are fetched from Debian's mirror once (build/systems).
systems: dist
	@tools/install_packages.sh systems
	tests/run_unittest.py tests/packages/test_systems.py

image: dist
	@tools/install_packages.sh image
	@tools/image.sh

deb: build
	@tools/install_packages.sh deb
	@tools/deb.sh

rpm: build
	@tools/install_packages.sh dist rpm
	$(compile) --target swap_churn tessera_glibc
	@tools/rpm.sh

install: build
	cmake --install $(RELEASE) --prefix $(PREFIX)

# The libraries come without any change to this system's packages: tools/arm64_sysroot.sh.
arm64:
	@tools/install_packages.sh build arm64
	@tools/arm64_sysroot.sh build/arm64/sysroot
	$(call configure_as,arm64)
	@cmake --build --preset arm64 -j $(JOBS) --target tessera-product

arm64-test:
	@tools/install_packages.sh build arm64 e2e
	@tools/arm64_sysroot.sh build/arm64/sysroot
	$(call configure_as,arm64,-DTESSERA_TESTS=ON)
	@cmake --build --preset arm64 -j $(JOBS)
	@tools/arm64_test.py -j $(JOBS)

clean:
	rm -rf build dist
