# Writes the commit of the checkout SOURCE as a C++ string to the file OUT, only if it has changed: then nothing is
# compiled again. Run at each build: cmake -DSOURCE=... -DOUT=... -P Commit.cmake
set(commit unknown)
if(EXISTS ${SOURCE}/.git)  # else git could find another project's commit in a folder above
  execute_process(COMMAND git -C ${SOURCE} describe --always --exclude=* --abbrev=10 --dirty=+changes
    OUTPUT_VARIABLE found OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
  if(NOT failed AND found)
    set(commit ${found})
  endif()
endif()
file(CONFIGURE OUTPUT ${OUT} CONTENT "\"${commit}\"\n")  # leaves a file as it is that has this content already
