# What `cmake --install` installs: libraries, headers, pkg-config and CMake packages (component development), the program
# with its manual page, completion and Python module (component runtime). Every path in an installed file is relative: a prefix can move.
include(CMakePackageConfigHelpers)

set(ATTN_PYTHON_DIR lib/python3/dist-packages CACHE STRING "Where the Python module goes, below the prefix")
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/attn)
set(libraries attn)
set(headers core/attn.h core/attn_arithmetic.h core/attn_engines.h core/attn_eviction.h core/attn_features.h core/attn_gradients.h core/attn_lowrank.h core/attn_selector.h
    core/attn_tools.h
    core/attn_variant.h core/cache/attn_kv_cache.h core/expression/attn_expression.h)
if(TARGET attn_check)
  list(APPEND libraries attn_check)
  list(APPEND headers experiments/verification/attn_check.h)
endif()
if(ATTN_MPI)
  list(APPEND libraries attn_ring)
  list(APPEND headers core/ring/attn_ring.h)
endif()
install(TARGETS ${libraries} EXPORT attn
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT runtime NAMELINK_COMPONENT development)
install(FILES ${headers} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT development)
install(EXPORT attn NAMESPACE attn:: FILE attnTargets.cmake DESTINATION ${package_dir} COMPONENT development)
configure_file(cmake/attnConfig.cmake.in attnConfig.cmake @ONLY)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/attnConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/attnConfig.cmake ${PROJECT_BINARY_DIR}/attnConfigVersion.cmake
        DESTINATION ${package_dir} COMPONENT development)

file(RELATIVE_PATH pc_to_prefix /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
# install_pc(NAME TEMPLATE DESCRIPTION REQUIRES)
function(install_pc pc_name template pc_description pc_requires)
  configure_file(cmake/${template} ${pc_name}.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/${pc_name}.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT development)
endfunction()
install_pc(attn attn.pc.in "Attention, exact and approximate, behind one interface" "")
if(TARGET attn_check)
  install_pc(attn_check attn.pc.in "Checks of an attention's output against the bounds of its variant" attn)
endif()
if(ATTN_MPI)
  install_pc(attn_ring attn.pc.in "Exact attention over the processes of an MPI communicator" attn)
endif()

# A system's linker finds its own libraries; anywhere else the program and the other libraries find libattn by its place.
if(NOT CMAKE_INSTALL_PREFIX MATCHES "^/usr/?$")
  file(RELATIVE_PATH to_lib /${CMAKE_INSTALL_BINDIR} /${CMAKE_INSTALL_LIBDIR})
  set_target_properties(${libraries} PROPERTIES INSTALL_RPATH "$ORIGIN")
endif()

if(TARGET attnlab)
  if(to_lib)
    set_target_properties(attnlab PROPERTIES INSTALL_RPATH "$ORIGIN/${to_lib}")
  endif()
  install(TARGETS attnlab DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT runtime)
  install_pc(attnlab attnlab.pc.in "" "")
  set(manual ${PROJECT_BINARY_DIR}/attnlab.1)
  add_custom_command(OUTPUT ${manual}
                     COMMAND ${CMAKE_COMMAND} -DATTNLAB=$<TARGET_FILE:attnlab> -DOUTPUT=${manual}
                             -P ${PROJECT_SOURCE_DIR}/cmake/Manual.cmake
                     DEPENDS attnlab ${PROJECT_SOURCE_DIR}/cmake/Manual.cmake VERBATIM)
  add_custom_target(manual ALL DEPENDS ${manual})
  install(DIRECTORY core/python/attnlab DESTINATION ${ATTN_PYTHON_DIR} COMPONENT runtime FILES_MATCHING PATTERN "*.py"
          PATTERN "py.typed")
  install(FILES ${manual} DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT runtime)
  install(FILES cmake/completion.bash RENAME attnlab
          DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions COMPONENT runtime)
  install(FILES LICENSE README.md CHANGELOG.md DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT runtime)
  install(DIRECTORY experiments/examples DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT runtime)
endif()
