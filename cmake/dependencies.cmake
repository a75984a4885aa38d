# Third-party libraries, all from Debian 12 packages (scripts/setup lists them).
find_package(Threads REQUIRED)
find_package(fmt REQUIRED)
find_package(simdjson REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(PCRE2 REQUIRED IMPORTED_TARGET libpcre2-8)
pkg_check_modules(HWY REQUIRED IMPORTED_TARGET libhwy)

add_library(swordfish_dependencies INTERFACE)
target_link_libraries(swordfish_dependencies INTERFACE Threads::Threads fmt::fmt simdjson::simdjson nlohmann_json::nlohmann_json
                      PkgConfig::PCRE2 PkgConfig::HWY)
