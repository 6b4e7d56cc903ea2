# The watch: its BPF program is compiled here and lies inside the library, so that the daemon needs libbpf only.
find_package(PkgConfig REQUIRED)
pkg_check_modules(libbpf REQUIRED IMPORTED_TARGET libbpf)
find_program(TESSERA_BPF_CLANG NAMES clang-19 clang REQUIRED)
find_program(TESSERA_BPFTOOL NAMES bpftool HINTS /usr/sbin REQUIRED)

set(watch_dir ${CMAKE_CURRENT_BINARY_DIR}/watch)
file(MAKE_DIRECTORY ${watch_dir})
# clang for BPF does not look where Debian has the architecture's headers.
add_custom_command(
  OUTPUT ${watch_dir}/watch.skel.h
  DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/watch.bpf.c ${CMAKE_CURRENT_SOURCE_DIR}/watch_record.h
  COMMAND ${TESSERA_BPF_CLANG} -target bpf -O2 -g -Wall -Wextra -Werror -Wno-unused-parameter
          -ffile-prefix-map=${CMAKE_SOURCE_DIR}=. -I${CMAKE_SOURCE_DIR}/src -isystem /usr/include/x86_64-linux-gnu
          -c ${CMAKE_CURRENT_SOURCE_DIR}/watch.bpf.c -o watch.debug.o
  # Links, which drops the debugger's information and keeps the types.
  COMMAND ${TESSERA_BPFTOOL} gen object watch.bpf.o watch.debug.o
  COMMAND ${TESSERA_BPFTOOL} gen skeleton watch.bpf.o name watch_bpf > watch.skel.h
  WORKING_DIRECTORY ${watch_dir}
  COMMENT "BPF program of the watch"
  VERBATIM)

tessera_part(guard_watch
  watch.cc
  watch_memory.cc
  watch_scan.cc
  watch_table.cc
  ${watch_dir}/watch.skel.h
  DEPS tessera_base tessera_channel PkgConfig::libbpf)
# As a system's, because its warnings are not ours.
target_include_directories(tessera_guard_watch SYSTEM PRIVATE ${watch_dir})

find_package(GTest REQUIRED)
find_package(rapidcheck REQUIRED)
tessera_test(guard_watch_table_test watch_memory_test.cc watch_scan_test.cc watch_table_test.cc
  DEPS tessera_guard_watch rapidcheck)
# Not tessera_test: what one of these does, all that run at the time see, and it may fill their rings.
add_executable(guard_watch_test watch_test.cc)
target_link_libraries(guard_watch_test PRIVATE tessera_guard_watch GTest::gtest GTest::gmock GTest::gtest_main)
gtest_discover_tests(guard_watch_test DISCOVERY_TIMEOUT 60 PROPERTIES TIMEOUT 120 RUN_SERIAL TRUE)
