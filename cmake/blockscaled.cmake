# The block-scaled GEMMs of CUTLASS (src/kernels/cuda/blockscaled/cutlass). Off by default: a unit takes minutes and 4 to 6 GB of memory
# per architecture. They have been compiled (MEASURED.md says which units and for what), not run: no Blackwell GPU was available.
#   SWORDFISH_BLOCKSCALED   ON compiles the family of each architecture in SWORDFISH_CUDA_ARCHS: 100a, 100f, 103a, 110a (tcgen05), 120a,
#                           120f, 121a (warp-level)
#   SWORDFISH_CUTLASS       CUTLASS: the folder with include/cutlass; empty: the package nvidia-cutlass in build/venv
# Their tests need CUTLASS's headers whether the kernels are built or not, so the folder is looked for in any case.
option(SWORDFISH_BLOCKSCALED "Build CUTLASS's block-scaled GEMMs for the Blackwell architectures asked for" OFF)
set(SWORDFISH_CUTLASS "" CACHE PATH "CUTLASS: the folder with include/cutlass; empty: the one in build/venv")

set(SWORDFISH_CUTLASS_DIR ${SWORDFISH_CUTLASS})
if(NOT SWORDFISH_CUTLASS_DIR)
  file(GLOB SWORDFISH_CUTLASS_DIR ${CMAKE_SOURCE_DIR}/build/venv/lib/python3*/site-packages/cutlass_library/source)
endif()
if(SWORDFISH_CUTLASS_DIR AND NOT EXISTS ${SWORDFISH_CUTLASS_DIR}/include/cutlass/detail/sm100_blockscaled_layout.hpp)
  set(SWORDFISH_CUTLASS_DIR "")
endif()

# Adds the units to the kernels' objects.
macro(swordfish_blockscaled_units)
  set(blockscaled_defines "")
  if(SWORDFISH_BLOCKSCALED)
    if(NOT SWORDFISH_CUTLASS_DIR)
      message(FATAL_ERROR "Swordfish: SWORDFISH_BLOCKSCALED needs CUTLASS 4.2 or newer: run scripts/setup test, or set SWORDFISH_CUTLASS to "
                          "the folder that has include/cutlass")
    endif()
    set(tcgen05_known 100a 100f 103a 110a)
    set(warp_known 120a 120f 121a)
    foreach(family tcgen05 warp)
      set(archs ${SWORDFISH_CUDA_ARCHS})
      foreach(arch ${archs})
        if(NOT arch IN_LIST ${family}_known)
          list(REMOVE_ITEM archs ${arch})
        endif()
      endforeach()
      if(archs)
        file(GLOB units CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/kernels/cuda/blockscaled/cutlass/${family}_*.cu)
        foreach(unit ${units})
          swordfish_cuda_unit(${unit} "${archs}" -DNDEBUG -isystem ${SWORDFISH_CUTLASS_DIR}/include)
        endforeach()
        string(TOUPPER ${family} upper)
        string(REPLACE ";" " " text "${archs}")
        list(APPEND blockscaled_defines "SWORDFISH_${upper}_ARCHS=\"${text}\"")
        message(STATUS "Swordfish: block-scaled GEMMs (${family}) for ${text} with CUTLASS in ${SWORDFISH_CUTLASS_DIR}: never run")
      endif()
    endforeach()
    if(NOT blockscaled_defines)
      message(FATAL_ERROR "Swordfish: SWORDFISH_BLOCKSCALED needs one of ${tcgen05_known} ${warp_known} in SWORDFISH_CUDA_ARCHS, which is "
                          "'${SWORDFISH_CUDA_ARCHS}'")
    endif()
  endif()
endmacro()
