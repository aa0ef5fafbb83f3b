# install.cmake - what `cmake --install` lays down: command, libraries, header, and what pkg-config and find_package need.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/holdfast)

set_target_properties(holdfast-shared PROPERTIES EXPORT_NAME holdfast)
set_target_properties(holdfast-static PROPERTIES EXPORT_NAME static)
install(TARGETS holdfast)
install(TARGETS holdfast-shared holdfast-static EXPORT holdfast)
install(FILES include/holdfast.h include/holdfast.hpp TYPE INCLUDE)
install(DIRECTORY include/holdfast TYPE INCLUDE)
install(FILES docs/cpp.md docs/json.md docs/json-schema.json docs/guarantees.md docs/redlock.md docs/postgres.md docs/serve.md docs/serve.png
        TYPE DOC)
# A group and a directory for a table that several users share.
install(FILES packaging/sysusers.d/holdfast.conf DESTINATION lib/sysusers.d)
install(FILES packaging/tmpfiles.d/holdfast.conf DESTINATION lib/tmpfiles.d)
install(DIRECTORY packaging/serve DESTINATION ${CMAKE_INSTALL_DOCDIR})

install(EXPORT holdfast FILE holdfast-targets.cmake NAMESPACE holdfast:: DESTINATION ${package_dir})
configure_package_config_file(packaging/holdfast-config.cmake.in ${CMAKE_BINARY_DIR}/holdfast-config.cmake
    INSTALL_DESTINATION ${package_dir})
# Before 1.0 the interface may change with every minor version.
write_basic_package_version_file(${CMAKE_BINARY_DIR}/holdfast-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/holdfast-config.cmake ${CMAKE_BINARY_DIR}/holdfast-config-version.cmake
    DESTINATION ${package_dir})

# The prefix is known for certain only when it is installed: `cmake --install --prefix` may name another one.
foreach(name PROJECT_VERSION static_libraries CMAKE_INSTALL_LIBDIR CMAKE_INSTALL_INCLUDEDIR)
    install(CODE "set(${name} \"${${name}}\")")
endforeach()
install(CODE "set(prefix \"\${CMAKE_INSTALL_PREFIX}\")
configure_file(\"${CMAKE_SOURCE_DIR}/packaging/holdfast.pc.in\" \"${CMAKE_BINARY_DIR}/holdfast.pc\" @ONLY)")
install(FILES ${CMAKE_BINARY_DIR}/holdfast.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
