# -DATTN_SANITIZE=address,undefined (or thread) instruments every target.
set(ATTN_SANITIZE "" CACHE STRING "Value for -fsanitize=, or empty")
if(ATTN_SANITIZE)
  add_compile_options(-fsanitize=${ATTN_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${ATTN_SANITIZE})
endif()
