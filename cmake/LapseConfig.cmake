# find_package(Lapse) gives Lapse::lapse (the library) and Lapse::lapse_ops (the operators alone). The application finds
# the same libtorch by LAPSE_TORCH_DIR or the environment's LAPSE_TORCH.
include(${CMAKE_CURRENT_LIST_DIR}/LapseTorch.cmake)
include(${CMAKE_CURRENT_LIST_DIR}/LapseTargets.cmake)
