# Imported targets for the libtorch that a PyTorch wheel carries. find_package(Torch) is not used: without the CUDA toolkit
# it is a fatal error, and it may mix in another libtorch from /usr/lib.
#
# LAPSE_TORCH_DIR: the folder of the Python package `torch`. Found, in this order, from the cache variable, from the
# environment's LAPSE_TORCH (a Python interpreter or that folder), from .venv.
set(LAPSE_TORCH_DIR "" CACHE PATH "Folder of the Python package torch (>= 2.7)")

function(lapse_torch_of_python python result)
  execute_process(
    COMMAND ${python} -c "import importlib.util as u; print(next(iter(u.find_spec('torch').submodule_search_locations)))"
    OUTPUT_VARIABLE folder OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  set(${result} "${folder}" PARENT_SCOPE)
endfunction()

set(lapse_torch "${LAPSE_TORCH_DIR}")
if(NOT lapse_torch AND DEFINED ENV{LAPSE_TORCH})
  if(EXISTS "$ENV{LAPSE_TORCH}/lib/libtorch_cpu.so")
    set(lapse_torch "$ENV{LAPSE_TORCH}")
  else()
    lapse_torch_of_python("$ENV{LAPSE_TORCH}" lapse_torch)
  endif()
endif()
if(NOT lapse_torch AND EXISTS "${CMAKE_CURRENT_LIST_DIR}/../.venv/bin/python")
  lapse_torch_of_python("${CMAKE_CURRENT_LIST_DIR}/../.venv/bin/python" lapse_torch)
endif()
if(NOT EXISTS "${lapse_torch}/lib/libtorch_cpu.so")
  message(FATAL_ERROR "Lapse: no libtorch found. Run scripts/setup.sh, or give -DLAPSE_TORCH_DIR=<folder of the Python package torch>.")
endif()

foreach(library torch_cpu c10)
  find_library(LAPSE_LIB_${library} ${library} PATHS "${lapse_torch}/lib" NO_DEFAULT_PATH NO_CACHE REQUIRED)
  if(NOT TARGET lapse_torch::${library})
    add_library(lapse_torch::${library} SHARED IMPORTED)
    set_target_properties(lapse_torch::${library} PROPERTIES
      IMPORTED_LOCATION "${LAPSE_LIB_${library}}"
      INTERFACE_INCLUDE_DIRECTORIES "${lapse_torch}/include;${lapse_torch}/include/torch/csrc/api/include")
  endif()
endforeach()

# ATen's parallel_for is a header: without OpenMP our loops would run on one core, with the system's runtime beside the wheel's
# own on too many.
if(NOT TARGET lapse_torch::openmp)
  add_library(lapse_torch::openmp INTERFACE IMPORTED)
  target_compile_options(lapse_torch::openmp INTERFACE -fopenmp)
  if(EXISTS "${lapse_torch}/lib/libgomp.so.1")
    target_link_libraries(lapse_torch::openmp INTERFACE "${lapse_torch}/lib/libgomp.so.1")
  else()
    target_link_libraries(lapse_torch::openmp INTERFACE gomp)
  endif()
endif()
