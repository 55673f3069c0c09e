# Writes copies of the files of core/, variants/, experiments/ and data/ that have mutants, in which mutants.cmake's faults can be
# switched on at run time: the environment's ATTN_MUTANT names one, and without it the copies compute what the originals do.
# take_mutants(LIST) puts the copies into a list of sources, in the places of their originals; mutants_copies is where headers
# are to be looked for first.
#
# A text that is an expression becomes  (attn_mutant(7) ? (broken) : (original)),  one that ends in ; or } becomes
# { if (attn_mutant(7)) { broken } else { original } };  a second mutant of the same text takes the original's place.
set(mutants_copies ${PROJECT_BINARY_DIR}/mutants)
set(mutants_list "")
set(mutants_count 0)
set(mutants_sites "") # texts that mutants replace, by hash

file(GLOB_RECURSE mutants_sources RELATIVE ${PROJECT_SOURCE_DIR} CONFIGURE_DEPENDS
     ${PROJECT_SOURCE_DIR}/core/*.[ch] ${PROJECT_SOURCE_DIR}/core/*.inc ${PROJECT_SOURCE_DIR}/variants/*.c
     ${PROJECT_SOURCE_DIR}/core/*.def ${PROJECT_SOURCE_DIR}/variants/*.def ${PROJECT_SOURCE_DIR}/experiments/*.c ${PROJECT_SOURCE_DIR}/data/*.c)
foreach(source IN LISTS mutants_sources)
  file(READ ${PROJECT_SOURCE_DIR}/${source} "mutants_text_${source}")
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${source})
endforeach()
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/mutants/mutants.cmake)

# mutant(NAME FILE CATCHER SETTING WHAT ORIGINAL BROKEN): see mutants.cmake.
function(mutant name source catcher setting what original broken)
  math(EXPR index "${mutants_count} + 1")
  set(before "")
  set(after "")
  if(original MATCHES "^(.*)@(.*)@(.*)$")
    set(before "${CMAKE_MATCH_1}")
    set(after "${CMAKE_MATCH_3}")
    set(original "${CMAKE_MATCH_2}")
  endif()
  string(MD5 site "${source} ${before}@${original}@${after}")
  if(NOT site IN_LIST mutants_sites)
    # The place is marked, and the text of the mark grows apart: no mutant's text is looked for in that of another.
    set(text "${mutants_text_${source}}")
    set(place "${before}${original}${after}")
    string(FIND "${text}" "${place}" first)
    string(FIND "${text}" "${place}" last REVERSE)
    if(first EQUAL -1 OR NOT first EQUAL last)
      message(SEND_ERROR "mutant ${name}: its original text does not stand in ${source} exactly once, apart from other "
                         "mutants' texts:\n${place}\n")
      return()
    endif()
    string(REPLACE "${place}" "${before}@${site}@${after}" text "${text}")
    set("mutants_text_${source}" "${text}" PARENT_SCOPE)
    set(mutants_sites ${mutants_sites} ${site} PARENT_SCOPE)
    set(mutants_site_${site} "${original}")
  endif()
  if(original MATCHES "[;}]$")
    set(choice "{ if (attn_mutant(${index})) { ${broken} } else { ${mutants_site_${site}} } }")
  else()
    set(choice "(attn_mutant(${index}) ? (${broken}) : (${mutants_site_${site}}))")
  endif()
  set(mutants_site_${site} "${choice}" PARENT_SCOPE)
  set(mutants_count ${index} PARENT_SCOPE)
  set(mutants_list "${mutants_list}MUTANT(\"${name}\", \"${catcher}\", \"${setting}\", \"${what}\")\n" PARENT_SCOPE)
  if(catcher MATCHES "^(.*)/" AND NOT CMAKE_MATCH_1 STREQUAL "cases")
    set_property(GLOBAL APPEND PROPERTY MUTANTS_TESTS test_${CMAKE_MATCH_1}) # for the bench to depend on
  endif()
endfunction()
include(${CMAKE_CURRENT_LIST_DIR}/mutants.cmake)

function(write_if_changed path text)
  set(old "")
  if(EXISTS ${path})
    file(READ ${path} old)
  endif()
  if(NOT text STREQUAL old)
    file(WRITE ${path} "${text}")
  endif()
endfunction()
foreach(source IN LISTS mutants_sources)
  set(text "${mutants_text_${source}}")
  foreach(site IN LISTS mutants_sites)
    string(REPLACE "@${site}@" "${mutants_site_${site}}" text "${text}")
  endforeach()
  if(NOT text MATCHES "attn_mutant")
    list(REMOVE_ITEM mutants_sources ${source})
    continue()
  endif()
  write_if_changed(${mutants_copies}/${source} "_Bool attn_mutant(int); ${text}")
endforeach()
set_property(GLOBAL PROPERTY MUTANTS_SOURCES ${mutants_sources})
file(GLOB_RECURSE stale RELATIVE ${mutants_copies} ${mutants_copies}/core/* ${mutants_copies}/variants/*
     ${mutants_copies}/experiments/* ${mutants_copies}/data/*)
list(REMOVE_ITEM stale ${mutants_sources})
foreach(source IN LISTS stale)
  file(REMOVE ${mutants_copies}/${source})
endforeach()
write_if_changed(${mutants_copies}/mutants.inc "${mutants_list}")

macro(take_mutants sources)
  set(mutants_copies ${PROJECT_BINARY_DIR}/mutants)
  get_property(mutated GLOBAL PROPERTY MUTANTS_SOURCES)
  foreach(source IN LISTS mutated)
    if(${PROJECT_SOURCE_DIR}/${source} IN_LIST ${sources})
      list(REMOVE_ITEM ${sources} ${PROJECT_SOURCE_DIR}/${source})
      list(APPEND ${sources} ${mutants_copies}/${source})
      set_source_files_properties(${mutants_copies}/${source} PROPERTIES COMPILE_OPTIONS -w) # broken texts leave things unused
    endif()
  endforeach()
endmacro()
