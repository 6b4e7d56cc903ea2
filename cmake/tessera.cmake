# tessera_part(NAME sources... [DEPS targets...]): a static library tessera_NAME, used as <NAME/...>.
function(tessera_part name)
  cmake_parse_arguments(arg "" "" "DEPS" ${ARGN})
  add_library(tessera_${name} STATIC ${arg_UNPARSED_ARGUMENTS})
  target_link_libraries(tessera_${name} PUBLIC ${arg_DEPS} Threads::Threads)
endfunction()

# tessera_test(NAME sources... [DEPS targets...]): a GoogleTest binary whose tests CTest lists one by one. Not optimised:
# compiling them takes far longer than running them.
function(tessera_test name)
  cmake_parse_arguments(arg "" "" "DEPS" ${ARGN})
  find_package(GTest REQUIRED)
  add_executable(${name} ${arg_UNPARSED_ARGUMENTS})
  target_compile_options(${name} PRIVATE -O0)
  target_link_libraries(${name} PRIVATE ${arg_DEPS} GTest::gtest GTest::gmock GTest::gtest_main Threads::Threads)
  gtest_discover_tests(${name} DISCOVERY_TIMEOUT 60 PROPERTIES TIMEOUT 120)
endfunction()
