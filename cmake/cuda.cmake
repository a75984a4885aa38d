# CUDA kernels: finds nvcc, sets its flags, and builds the archive of kernels that goes into the library. Without nvcc everything else
# builds.
#
# nvcc is called through custom commands, so that a machine without it still configures (enable_language would fail), and so that each unit
# is one short command: `nvcc -c unit.cu -o unit.o`. One at a time: a unit takes up to a minute, and the two cores have other work.
#   SWORDFISH_CUDA        OFF leaves the kernels out
#   SWORDFISH_CUDA_ARCHS  architectures with machine code in the library, separated by semicolons; nothing is compiled at run time (no
#                         PTX). 100f is code for sm_100 and 103, 120f for sm_120 and 121; an `a` is for one architecture
include(${CMAKE_CURRENT_LIST_DIR}/blockscaled.cmake)
option(SWORDFISH_CUDA "Build the CUDA kernels where nvcc 13 is found" ON)
set(SWORDFISH_CUDA_ARCHS "90a" CACHE STRING "Architectures with machine code in the library, such as 80;90a;100a")
set(cuda_known 80 86 89 90a 100a 100f 103a 110a 120a 120f 121a)

find_program(SWORDFISH_NVCC nvcc HINTS ENV CUDA_HOME ENV CUDA_PATH PATHS /usr/local/cuda PATH_SUFFIXES bin)
set(SWORDFISH_WITH_CUDA OFF)
if(NOT SWORDFISH_CUDA)
  message(STATUS "Swordfish: SWORDFISH_CUDA is off, CUDA kernels are left out")
elseif(NOT SWORDFISH_NVCC)
  message(STATUS "Swordfish: no nvcc, CUDA kernels are left out")
else()
  set(SWORDFISH_WITH_CUDA ON)
endif()
if(NOT SWORDFISH_WITH_CUDA)
  return()
endif()

# The toolkit's folder from nvcc itself: what was found may be a link or a script.
execute_process(COMMAND ${SWORDFISH_NVCC} --dryrun -c none.cu OUTPUT_QUIET ERROR_VARIABLE cuda_dryrun)
if(NOT cuda_dryrun MATCHES "#\\$ TOP=([^\r\n]*)")
  message(FATAL_ERROR "Swordfish: ${SWORDFISH_NVCC} does not tell its toolkit's folder; -DSWORDFISH_CUDA=OFF leaves the CUDA kernels out")
endif()
get_filename_component(cuda_root ${CMAKE_MATCH_1} ABSOLUTE)
find_library(SWORDFISH_CUDART cudart_static HINTS ${cuda_root} PATH_SUFFIXES lib64 lib targets/x86_64-linux/lib REQUIRED)
find_path(SWORDFISH_CUDA_INCLUDE cuda_runtime_api.h HINTS ${cuda_root} PATH_SUFFIXES include targets/x86_64-linux/include REQUIRED)

set(cuda_flags -std=c++20 -O3 --expt-relaxed-constexpr -Xcompiler=-fPIC,-fvisibility=hidden,-Wall,-Wextra
    -I${CMAKE_SOURCE_DIR}/src -I${CMAKE_SOURCE_DIR}/include)
foreach(arch ${SWORDFISH_CUDA_ARCHS})
  if(NOT arch IN_LIST cuda_known)
    list(JOIN cuda_known " " names)
    message(FATAL_ERROR "Swordfish: SWORDFISH_CUDA_ARCHS has '${arch}'; it may have ${names}")
  endif()
endforeach()

set_property(GLOBAL APPEND PROPERTY JOB_POOLS nvcc=1)
file(GLOB_RECURSE cuda_units CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/*.cu)
list(FILTER cuda_units EXCLUDE REGEX "/blockscaled/cutlass/")  # blockscaled.cmake
set(cuda_objects "")
# One unit: its source, the architectures it is compiled for, and more flags for nvcc.
function(swordfish_cuda_unit unit archs)
  file(RELATIVE_PATH name ${CMAKE_SOURCE_DIR}/src ${unit})
  set(object ${CMAKE_BINARY_DIR}/cuda/${name}.o)
  get_filename_component(folder ${object} DIRECTORY)
  file(MAKE_DIRECTORY ${folder})
  set(targets "")
  foreach(arch ${archs})
    list(APPEND targets -gencode arch=compute_${arch},code=sm_${arch})
  endforeach()
  add_custom_command(OUTPUT ${object}
                     COMMAND ${CMAKE_CXX_COMPILER_LAUNCHER} ${SWORDFISH_NVCC} ${cuda_flags} ${targets} ${ARGN} -MD -MF ${object}.d
                             -c ${unit} -o ${object}
                     DEPENDS ${unit} DEPFILE ${object}.d JOB_POOL nvcc COMMENT "nvcc ${name} (${archs})" VERBATIM)
  set(cuda_objects ${cuda_objects} ${object} PARENT_SCOPE)
endfunction()
foreach(unit ${cuda_units})
  swordfish_cuda_unit(${unit} "${SWORDFISH_CUDA_ARCHS}")
endforeach()
swordfish_blockscaled_units()
# The runtime is static, and opens the driver (libcuda.so.1) at its first call: what links this starts on machines without one.
add_library(swordfish_cuda STATIC ${cuda_objects})
set_target_properties(swordfish_cuda PROPERTIES LINKER_LANGUAGE CXX)
target_link_libraries(swordfish_cuda INTERFACE ${SWORDFISH_CUDART} ${CMAKE_DL_LIBS} rt)
message(STATUS "Swordfish: CUDA kernels for ${SWORDFISH_CUDA_ARCHS} with ${SWORDFISH_NVCC}")
