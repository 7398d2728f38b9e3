# Removes the file KERNELS if one of SOURCES, separated by commas, is newer.
string(REPLACE "," ";" SOURCES "${SOURCES}")
foreach(source ${SOURCES})
  if(EXISTS ${KERNELS} AND ${source} IS_NEWER_THAN ${KERNELS})
    message("Lapse: ${KERNELS} is older than ${source} and was removed; to compute on a GPU make it anew: scripts/build.sh PRESET cuda_kernels")
    file(REMOVE ${KERNELS})
  endif()
endforeach()
