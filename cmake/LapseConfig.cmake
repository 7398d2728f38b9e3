# find_package(Lapse) gives Lapse::lapse (the library) and Lapse::lapse_ops (the operators alone). libtorch is the one that Lapse
# was built with, unless LAPSE_TORCH_DIR or the environment's LAPSE_TORCH says otherwise. lapse/train/metrics.h needs nlohmann-json.
cmake_policy(PUSH)
cmake_policy(VERSION 3.20...3.25)  # CMP0126: a cache entry that is made leaves the variable of its name alone
if(NOT LAPSE_TORCH_DIR AND NOT DEFINED ENV{LAPSE_TORCH})
  set(LAPSE_TORCH_DIR "@lapse_torch@")
endif()
include(${CMAKE_CURRENT_LIST_DIR}/LapseTorch.cmake)
include(${CMAKE_CURRENT_LIST_DIR}/LapseTargets.cmake)
cmake_policy(POP)
