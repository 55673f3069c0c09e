# Writes the manual page of attnlab from the output of its --help:
#   cmake -DATTNLAB=<program> -DOUTPUT=<page> -P Manual.cmake
function(ask answer)
  execute_process(COMMAND ${CMAKE_COMMAND} -E env --unset=ATTN_PLUGIN_PATH --unset=ARGP_HELP_FMT ${ATTNLAB} ${ARGN}
                  OUTPUT_VARIABLE text COMMAND_ERROR_IS_FATAL ANY)
  set(${answer} "${text}" PARENT_SCOPE)
endfunction()

# A text as it is: nothing in it is a request to the formatter.
function(verbatim text answer)
  string(REPLACE "\\" "\\e" text "\n${text}")
  string(REPLACE "-" "\\-" text "${text}")
  string(REPLACE "\n." "\n\\&." text "${text}")
  string(REPLACE "\n'" "\n\\&'" text "${text}")
  string(REGEX REPLACE "[ \n]+$" "" text "${text}")
  set(${answer} ".nf${text}\n.fi\n" PARENT_SCOPE)
endfunction()

ask(version --version)
string(STRIP "${version}" version)
ask(help --help)
# "Usage: ...\nSummary.\n\n  COMMAND  what it does\n ...\n\n the rest"
string(REGEX MATCH "\n([^\n]+)\\.\n\n(.*)$" matched "${help}")
string(TOLOWER "${CMAKE_MATCH_1}" summary)
set(body "${CMAKE_MATCH_2}")
string(FIND "${body}" "\n\n" end)
string(SUBSTRING "${body}" 0 ${end} table)
string(REGEX MATCHALL "(^|\n)  [a-z]+" commands "${table}")
verbatim("${body}" body)

set(page ".TH ATTNLAB 1 \"\" \"${version}\" \"User Commands\"\n.SH NAME\nattnlab \\- ${summary}\n")
string(APPEND page ".SH SYNOPSIS\n.B attnlab\n.I COMMAND\n.RI [ ARGUMENT ...]\n.SH DESCRIPTION\n${body}.SH COMMANDS\n")
foreach(command IN LISTS commands)
  string(STRIP "${command}" command)
  ask(help ${command} --help)
  verbatim("${help}" body)
  string(APPEND page ".SS attnlab ${command}\n${body}")
endforeach()
ask(keys help config)
verbatim("${keys}" body)
string(APPEND page ".SH CONFIGURATION\n${body}")
file(WRITE ${OUTPUT} "${page}")
