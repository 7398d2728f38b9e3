# Writes the header OUT: of which files, below ROOT, the GPU kernels must have been compiled. lapse/ops/cuda/fingerprint.py
# says the same. SOURCES: separated by commas.
string(REPLACE "," ";" SOURCES "${SOURCES}")
list(SORT SOURCES)
set(all "")
foreach(source ${SOURCES})
  file(SHA256 ${ROOT}/${source} hash)
  string(APPEND all "${source} ${hash}\n")
endforeach()
string(SHA256 hash "${all}")
file(WRITE ${OUT} "#pragma once\n\nnamespace lapse::cuda {\nconstexpr char kKernelSources[] = \"${hash}\";\n}  // namespace lapse::cuda\n")
