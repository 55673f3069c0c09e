# Helpers of tests/CMakeLists.txt.

# attn_test(NAME COMMAND...): a ctest entry in the environment that all tests run in. More run at once than there are cores, and
# their inputs are small: a command uses one thread unless its test asks for more, what calls the library itself two. Waiting
# threads sleep: some tests run more than there are cores.
function(attn_test name)
  set(threads 1)
  if(name MATCHES "^test_(core|variants|expression|reference|checks|quality|training|theory)_")
    set(threads 2)
  endif()
  add_test(NAME ${name} COMMAND ${ARGN})
  set_tests_properties(${name} PROPERTIES TIMEOUT 1200 SKIP_RETURN_CODE 77
                       ENVIRONMENT "ATTNLAB_CALIBRATION=;OMP_NUM_THREADS=${threads};OPENBLAS_NUM_THREADS=1;OMP_WAIT_POLICY=passive;TSAN_OPTIONS=ignore_noninstrumented_modules=1")
endfunction()

# attn_criterion_test(SOURCE): AREA/NAME.c is one Criterion program and one ctest entry, test_AREA_NAME, and part of the
# target tests_AREA. Those of the core, of variants and of expressions link the library and the shared cases alone; the
# others reach the whole program.
function(attn_criterion_test source)
  string(REGEX REPLACE "^.*/([a-z]+)/([a-z0-9_]+)\\.c$" "test_\\1_\\2" name ${source})
  string(REGEX REPLACE "^test_([a-z]+)_.*$" "\\1" area ${name})
  if(NOT TARGET tests_${area})
    add_custom_target(tests_${area})
  endif()
  add_executable(${name} ${source})
  add_dependencies(tests_${area} ${name})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR})
  target_compile_definitions(${name} PRIVATE TEST_SOURCE_DIR="${PROJECT_SOURCE_DIR}"
                                             TEST_BINARY_DIR="${PROJECT_BINARY_DIR}")
  target_link_libraries(${name} PRIVATE attn_criterion OpenMP::OpenMP_C m)
  if(name STREQUAL "test_core_blocks") # calls what the shared library hides
    target_link_libraries(${name} PRIVATE attn_cases attn_internal)
  elseif(name MATCHES "^test_(core|variants|expression)_")
    target_link_libraries(${name} PRIVATE attn_cases attn)
  else()
    target_link_libraries(${name} PRIVATE attn_experiments attn_files)
  endif()
  if(name MATCHES "^test_(cli|runner)_")
    target_link_libraries(${name} PRIVATE attn_command)
  endif()
  if(name MATCHES "^test_(runner_|cli_check|cli_eval)")
    add_dependencies(${name} attn_fault attn_stale attn_rude)
  endif()
  attn_test(${name} ${name} --jobs 1)
  # Criterion calls an empty run a success, and a test that leaked.
  set_tests_properties(${name} PROPERTIES TIMEOUT 3600 FAIL_REGULAR_EXPRESSION "Tested: 0 ;ERROR: [A-Za-z]+Sanitizer")
endfunction()

# attn_test_plugin(TARGET NAME SOURCE DIRECTORY): a plug-in NAME.so.
function(attn_test_plugin target name source directory)
  add_library(${target} MODULE ${source})
  set_target_properties(${target} PROPERTIES PREFIX "" OUTPUT_NAME ${name} LIBRARY_OUTPUT_DIRECTORY ${directory})
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR})
  target_compile_definitions(${target} PRIVATE ATTN_PLUGIN)
  target_link_libraries(${target} PRIVATE attn)
endfunction()
