# How our files are compiled, and the operators' library, lapse_ops: of the program's build and of the Python package's
# (python/CMakeLists.txt). Needs LapseTorch.cmake. LAPSE_WARNINGS: -Werror where warnings are to be errors.
get_filename_component(lapse_root ${CMAKE_CURRENT_LIST_DIR} DIRECTORY)

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_COMPILE_OPTIONS_PIE ${CMAKE_CXX_COMPILE_OPTIONS_PIC})  # one precompiled header for libraries and programs

find_program(CCACHE ccache)
if(CCACHE)  # the sloppiness is what ccache asks for precompiled headers; several checkouts share what was compiled
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${lapse_root} CCACHE_NOHASHDIR=1
      CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime ${CCACHE})
endif()

if(LAPSE_OPERATORS_ONLY)
  find_package(hwy QUIET)
else()
  find_package(hwy REQUIRED)
endif()

# How our own files are compiled; libraries' headers are system headers and keep their warnings to themselves.
add_library(lapse_options INTERFACE)
# GCC collects garbage only from 1 GB on, which saves it some percent of its time.
target_compile_options(lapse_options INTERFACE -Wall -Wextra ${LAPSE_WARNINGS} -Wno-missing-field-initializers
  $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict> "$<$<CXX_COMPILER_ID:GNU>:SHELL:--param ggc-min-heapsize=1048576>" -fno-math-errno)
target_compile_definitions(lapse_options INTERFACE HWY_SHARED_DEFINE)  # for one precompiled header: hwy's own
target_include_directories(lapse_options INTERFACE ${lapse_root} ${CMAKE_BINARY_DIR})
file(STRINGS "${lapse_torch}/version.py" lapse_torch_version REGEX "^__version__ = ")
string(REGEX REPLACE "^__version__ = '([0-9]+\\.[0-9]+).*" "\\1" lapse_torch_version "${lapse_torch_version}")
# Makes lapse/ops/aten.h lighter.
if(lapse_torch_version VERSION_EQUAL 2.11)  # the one for which this was tried
  target_include_directories(lapse_options BEFORE INTERFACE ${lapse_root}/cmake/light)
endif()
if(LAPSE_SANITIZE)
  target_compile_options(lapse_options INTERFACE -fsanitize=${LAPSE_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  target_link_options(lapse_options INTERFACE -fsanitize=${LAPSE_SANITIZE})
  # With sanitizers GCC 12 believes that <regex> reads what it has not written.
  target_compile_options(lapse_options INTERFACE $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
  # To save time the sanitizers read vectors of 16, 8 and single numbers; for those of 4 the code is the same.
  target_compile_definitions(lapse_options INTERFACE "HWY_DISABLED_TARGETS=(HWY_SSSE3|HWY_SSE4)")
endif()

file(GLOB_RECURSE OPS_SOURCES CONFIGURE_DEPENDS ${lapse_root}/lapse/ops/*.cpp)
list(FILTER OPS_SOURCES EXCLUDE REGEX "_test\\.cpp$|_testing\\.cpp$|/cuda/|/references_only\\.cpp$")
# The references alone, which need no Highway: compiled once, for the library and for tests/CMakeLists.txt.
set(REFERENCE_SOURCES attention/options.cpp attention/ramp/schema.cpp attention/ramp/reference.cpp attention/ramp/until.cpp
  attention/selective/schema.cpp attention/selective/checks.cpp attention/selective/reference.cpp mix64.cpp cat.cpp graph.cpp waiting.cpp)
list(TRANSFORM REFERENCE_SOURCES PREPEND ${lapse_root}/lapse/ops/)
list(REMOVE_ITEM OPS_SOURCES ${REFERENCE_SOURCES})
if(NOT TARGET hwy::hwy)
  set(OPS_SOURCES ${lapse_root}/lapse/ops/attention/references_only.cpp)
endif()
add_library(lapse_reference_objects OBJECT ${REFERENCE_SOURCES})
target_link_libraries(lapse_reference_objects PRIVATE lapse_options lapse_torch::openmp lapse_torch::torch_cpu lapse_torch::c10)
target_precompile_headers(lapse_reference_objects PRIVATE ${lapse_root}/lapse/ops/aten.h)  # of all that see libtorch
add_library(lapse_ops SHARED ${OPS_SOURCES} $<TARGET_OBJECTS:lapse_reference_objects>)
set_target_properties(lapse_ops PROPERTIES DEFINE_SYMBOL "")  # else it could not share the precompiled header
target_link_libraries(lapse_ops PRIVATE lapse_options lapse_torch::openmp $<TARGET_NAME_IF_EXISTS:hwy::hwy> PUBLIC lapse_torch::torch_cpu lapse_torch::c10)
target_include_directories(lapse_ops PUBLIC $<BUILD_INTERFACE:${lapse_root}> $<INSTALL_INTERFACE:include>)
target_precompile_headers(lapse_ops REUSE_FROM lapse_reference_objects)
