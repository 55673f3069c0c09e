# `cpack -G DEB` in a build directory: attnlab, with the library, and libattn-dev.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_CONTACT "The attnlab developers")
set(CPACK_PACKAGE_VENDOR "The attnlab developers")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_COMPONENTS_ALL runtime development)
set(CPACK_COMPONENT_RUNTIME_DESCRIPTION "the attnlab program and libattn
 Exact and efficient attention on CPUs: runs variants, checks their bounds,
 measures time, memory and error, and reports them.")
set(CPACK_COMPONENT_DEVELOPMENT_DESCRIPTION "libattn: headers and packages for builds
 For programs that compute attention, and for variants as plug-ins.")
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${PROJECT_BINARY_DIR}/core ${PROJECT_BINARY_DIR}/core/ring)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_NAME attnlab)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_NAME libattn-dev)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS "attnlab (= ${PROJECT_VERSION})")
include(CPack)
