// How the program asks OpenMP and malloc for what they read before main: it starts itself anew with the variables set.
//
// OpenMP's threads are to sleep soon where they wait for one another: spinning, the default, makes a run 5 times slower
// as soon as another process wants a core. malloc is to ask for huge pages, and to keep large blocks that were freed
// for the next update, 4 GB at most: from 32 MB on it would else map and clear each anew. The resident size then falls
// later than what is in use. Nothing is done where the user has chosen (GOMP_SPINCOUNT or OMP_WAIT_POLICY), and
// GLIBC_TUNABLES stays if it is set.
#include <limits.h>
#include <unistd.h>

#include <cstring>

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // which want to be first
namespace {

bool sets(const char* entry, const char* name) {
  return std::strncmp(entry, name, std::strlen(name)) == 0 && entry[std::strlen(name)] == '=';
}

void start_anew(int, char** argv, char** environment) {
  constexpr size_t kMost = 4096;
  const char* all[kMost + 3] = {"GOMP_SPINCOUNT=10000",
                                "GLIBC_TUNABLES=glibc.malloc.hugetlb=1:glibc.malloc.mmap_threshold=1073741824:"
                                "glibc.malloc.trim_threshold=4294967296"};
  size_t count = 2;
  for (char** entry = environment; *entry; ++entry) {
    if (sets(*entry, "GOMP_SPINCOUNT") || sets(*entry, "OMP_WAIT_POLICY") || count == kMost) return;
    if (sets(*entry, "GLIBC_TUNABLES"))
      all[1] = *entry;
    else
      all[count++] = *entry;
  }
  char program[PATH_MAX] = "";
  const auto length = readlink("/proc/self/exe", program, sizeof program - 1);
  if (length > 0) execve(program, argv, const_cast<char**>(all));  // returns only if it fails; we go on as we are
}

// Before any library begins: libtorch takes 0.2 s for that, and would take it twice.
__attribute__((section(".preinit_array"), used)) void (*const first)(int, char**, char**) = start_anew;

}  // namespace
#endif
