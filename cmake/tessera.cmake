# Standard headers and those of libraries take longer than most files: the files of a part, and of a test, are compiled
# some at a time. Off, each for itself, it is quicker to build what one changed; the linter reads them so, too.
option(TESSERA_UNITY "compile several files of a part at once" OFF)
# So many that the headers take less than the code, and so few that two processors have their share of a part. Helpers of
# files that are compiled together need names of their own; SKIP_UNITY_BUILD_INCLUSION is for files that cannot have them.
set(CMAKE_UNITY_BUILD ${TESSERA_UNITY})
set(CMAKE_UNITY_BUILD_BATCH_SIZE 16)
option(TESSERA_FUZZ "build the fuzzers; needs clang" OFF)

# tessera_headers(TARGET headers...): headers that most files of the target read, and that take long, are compiled once
# for all of them. Not where each file is compiled for itself, so that a change of a header costs the files that read it
# and no others; nor by g++ 12, which behind such a header warns of the standard library's own code.
function(tessera_headers target)
  if(TESSERA_UNITY AND CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    target_precompile_headers(${target} PRIVATE ${ARGN})
  endif()
endfunction()

# tessera_part(NAME sources... [DEPS targets...]): a static library tessera_NAME, used as <NAME/...>.
function(tessera_part name)
  cmake_parse_arguments(arg "" "" "DEPS" ${ARGN})
  add_library(tessera_${name} STATIC ${arg_UNPARSED_ARGUMENTS})
  target_link_libraries(tessera_${name} PUBLIC ${arg_DEPS} Threads::Threads)
endfunction()

# Tests and benches need GoogleTest and RapidCheck; what is installed needs neither. AUTO: they are configured where both
# are found.
set(TESSERA_TESTS AUTO CACHE STRING "configure tests and benches: ON, OFF or AUTO")
if(TESSERA_TESTS STREQUAL "AUTO")
  find_package(GTest QUIET)
  find_package(rapidcheck QUIET)
  set(TESSERA_TESTS OFF)
  if(GTest_FOUND AND rapidcheck_FOUND)
    set(TESSERA_TESTS ON)
  endif()
elseif(TESSERA_TESTS)
  find_package(GTest REQUIRED)
  find_package(rapidcheck REQUIRED)
endif()
if(NOT TESSERA_TESTS)
  return()
endif()

# Every test reads GoogleTest's headers, which take longer than the test itself: they are compiled once for all.
set(test_headers <gmock/gmock.h> <gtest/gtest.h> <expected> <map> <memory> <optional> <string> <thread> <vector>)
file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/test_headers.cc CONTENT "")
add_executable(tessera_test_headers EXCLUDE_FROM_ALL ${CMAKE_BINARY_DIR}/test_headers.cc)
target_compile_options(tessera_test_headers PRIVATE -O0)
target_link_libraries(tessera_test_headers PRIVATE GTest::gmock GTest::gtest_main Threads::Threads)
target_precompile_headers(tessera_test_headers PRIVATE ${test_headers})

# tessera_test_headers(TARGET headers...): GoogleTest's, and the others as tessera_headers has them.
function(tessera_test_headers target)
  if(ARGN)
    tessera_headers(${target} ${test_headers} ${ARGN})
  endif()
  get_target_property(own ${target} PRECOMPILE_HEADERS)
  if(NOT own)
    target_precompile_headers(${target} REUSE_FROM tessera_test_headers)
  endif()
endfunction()

# tessera_testing(NAME sources... [HEADERS headers...] [DEPS targets...]): a static library that tests share. Not
# optimised, as tests, and for executables only: compiled as they are, so that they can have the same headers. HEADERS: of
# its own, which most of those tests read (tessera_headers).
function(tessera_testing name)
  cmake_parse_arguments(arg "" "" "HEADERS;DEPS" ${ARGN})
  add_library(${name} STATIC ${arg_UNPARSED_ARGUMENTS})
  set_target_properties(${name} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
  target_compile_options(${name} PRIVATE -O0 -fPIE)
  target_link_libraries(${name} PUBLIC ${arg_DEPS} GTest::gmock GTest::gtest Threads::Threads)
  tessera_test_headers(${name} ${arg_HEADERS})
endfunction()

# tessera_test(NAME sources... [HEADERS headers... | HEADERS_OF library] [DEPS targets...]): a GoogleTest binary whose
# tests CTest lists one by one. Not optimised: compiling them takes far longer than running them. HEADERS: its own
# (tessera_headers). HEADERS_OF: those of a library of tessera_testing. A test works more than it waits: it counts as two
# of the tests that run at a time.
function(tessera_test name)
  cmake_parse_arguments(arg "" "HEADERS_OF" "HEADERS;DEPS" ${ARGN})
  add_executable(${name} ${arg_UNPARSED_ARGUMENTS})
  target_compile_options(${name} PRIVATE -O0)
  if(arg_HEADERS_OF)
    get_target_property(other ${arg_HEADERS_OF} PRECOMPILE_HEADERS)
  endif()
  if(other)
    target_precompile_headers(${name} REUSE_FROM ${arg_HEADERS_OF})
  else()
    tessera_test_headers(${name} ${arg_HEADERS})
  endif()
  target_link_libraries(${name} PRIVATE ${arg_DEPS} GTest::gtest GTest::gmock GTest::gtest_main Threads::Threads)
  if(TESSERA_TEST_EMULATOR)
    set_target_properties(${name} PROPERTIES CROSSCOMPILING_EMULATOR ${TESSERA_TEST_EMULATOR})
  endif()
  gtest_discover_tests(${name} DISCOVERY_TIMEOUT 60 PROPERTIES TIMEOUT 120 PROCESSORS 2)
endfunction()
