# `cmake --install`: shared library, headers, program, and the CMake and pkg-config packages.
