# `cmake --install`: shared library, headers, program, and the CMake and pkg-config packages; relocatable.
include(CMakePackageConfigHelpers)

install(TARGETS swordfish EXPORT swordfish LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(TARGETS swordfish_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(DIRECTORY ${CMAKE_SOURCE_DIR}/include/swordfish DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")
install(FILES ${CMAKE_SOURCE_DIR}/LICENSE ${CMAKE_SOURCE_DIR}/NOTICE DESTINATION ${CMAKE_INSTALL_DOCDIR})

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/swordfish)
install(EXPORT swordfish NAMESPACE swordfish:: FILE swordfish-targets.cmake DESTINATION ${package_dir})
configure_package_config_file(${CMAKE_SOURCE_DIR}/cmake/swordfish-config.cmake.in ${CMAKE_BINARY_DIR}/swordfish-config.cmake
                              INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${CMAKE_BINARY_DIR}/swordfish-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/swordfish-config.cmake ${CMAKE_BINARY_DIR}/swordfish-config-version.cmake DESTINATION ${package_dir})

configure_file(${CMAKE_SOURCE_DIR}/cmake/swordfish.pc.in ${CMAKE_BINARY_DIR}/swordfish.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/swordfish.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
