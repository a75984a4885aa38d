# CUDA kernels: found compiler, flags, and the objects that join the library. Without nvcc everything else builds.
#
# nvcc is called through custom commands, so that a machine without it configures (enable_language would fail), and so that each unit
# is one short command: `nvcc -c unit.cu -o unit.o`.
option(SWORDFISH_CUDA "Build the CUDA kernels (needs nvcc 13)" ON)
set(SWORDFISH_CUDA_ARCHS "90a" CACHE STRING "Architectures with machine code in the library, such as 80;90a;100a")
set(SWORDFISH_CUDA_OBJECTS "")

find_program(SWORDFISH_NVCC nvcc HINTS ENV CUDA_HOME ENV CUDA_PATH PATHS /usr/local/cuda PATH_SUFFIXES bin)
if(NOT SWORDFISH_CUDA)
  message(STATUS "Swordfish: SWORDFISH_CUDA is off, CUDA kernels are left out")
elseif(NOT SWORDFISH_NVCC)
  message(STATUS "Swordfish: no nvcc, CUDA kernels are left out")
else()
  get_filename_component(SWORDFISH_CUDA_ROOT ${SWORDFISH_NVCC} REALPATH)
  get_filename_component(SWORDFISH_CUDA_ROOT ${SWORDFISH_CUDA_ROOT}/../.. ABSOLUTE)
  find_library(SWORDFISH_CUDART cudart_static HINTS ${SWORDFISH_CUDA_ROOT} PATH_SUFFIXES lib64 lib targets/x86_64-linux/lib REQUIRED)
  set(cuda_codes "")
  foreach(arch ${SWORDFISH_CUDA_ARCHS})
    list(APPEND cuda_codes -gencode arch=compute_${arch},code=sm_${arch})
  endforeach()
  set(SWORDFISH_NVCC_FLAGS -std=c++20 -O3 --expt-relaxed-constexpr ${cuda_codes} -Xcompiler=-fPIC,-fvisibility=hidden,-Wall,-Wextra
      -I${CMAKE_SOURCE_DIR}/src -I${CMAKE_SOURCE_DIR}/include)
  file(GLOB_RECURSE cuda_units CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/kernels/cuda/sm80_mma/*.cu)
  foreach(unit ${cuda_units})
    file(RELATIVE_PATH name ${CMAKE_SOURCE_DIR}/src ${unit})
    set(object ${CMAKE_BINARY_DIR}/cuda/${name}.o)
    get_filename_component(folder ${object} DIRECTORY)
    file(MAKE_DIRECTORY ${folder})
    add_custom_command(OUTPUT ${object} COMMAND ${SWORDFISH_NVCC} ${SWORDFISH_NVCC_FLAGS} -MD -MF ${object}.d -c ${unit} -o ${object}
                       DEPENDS ${unit} DEPFILE ${object}.d COMMENT "nvcc ${name} (${SWORDFISH_CUDA_ARCHS})" VERBATIM)
    list(APPEND SWORDFISH_CUDA_OBJECTS ${object})
  endforeach()
  add_custom_target(swordfish_cuda_units DEPENDS ${SWORDFISH_CUDA_OBJECTS})
  message(STATUS "Swordfish: CUDA kernels for ${SWORDFISH_CUDA_ARCHS} with ${SWORDFISH_NVCC}")
endif()

# Joins the kernels (where they are built) to a target that links the library's objects.
function(swordfish_add_cuda target)
  if(SWORDFISH_CUDA_OBJECTS)
    target_sources(${target} PRIVATE ${SWORDFISH_CUDA_OBJECTS})
    set_source_files_properties(${SWORDFISH_CUDA_OBJECTS} PROPERTIES EXTERNAL_OBJECT TRUE GENERATED TRUE)
    add_dependencies(${target} swordfish_cuda_units)
    target_compile_definitions(${target} PRIVATE SWORDFISH_WITH_CUDA=1)
    target_link_libraries(${target} PRIVATE ${SWORDFISH_CUDART} ${CMAKE_DL_LIBS} rt)
  endif()
endfunction()
