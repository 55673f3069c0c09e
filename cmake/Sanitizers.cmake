# -DATTN_SANITIZE=address,undefined (or thread) instruments every target.
set(ATTN_SANITIZE "" CACHE STRING "Value for -fsanitize=, or empty")
if(ATTN_SANITIZE)
  add_compile_options(-fsanitize=${ATTN_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  if(CMAKE_C_COMPILER_ID STREQUAL "GNU") # which loses sight of what is set in instrumented code; the preset dev looks
    add_compile_options(-Wno-maybe-uninitialized)
  endif()
  add_link_options(-fsanitize=${ATTN_SANITIZE})
endif()
