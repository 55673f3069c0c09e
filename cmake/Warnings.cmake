# Warnings for every target; errors where ATTN_WERROR is on (the dev preset).
option(ATTN_WERROR "Treat warnings as errors" OFF)
add_compile_options(-Wall -Wextra -Wshadow -Wconversion -Wstrict-prototypes -Wmissing-prototypes -Wundef -Wvla
                    -Wdouble-promotion -Wpointer-arith)
if(ATTN_WERROR)
  add_compile_options(-Werror)
endif()
