#include "lapse/core/process.h"

#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace lapse {
namespace {

volatile std::sig_atomic_t stop = 0;

void on_signal(int signal) {
  stop = 1;
  std::signal(signal, SIG_DFL);
}

}  // namespace

int64_t peak_memory() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<int64_t>(usage.ru_maxrss) * 1024;
}

int64_t resident_memory() {
  std::ifstream statm("/proc/self/statm");
  int64_t size = 0, resident = 0;
  statm >> size >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

void wait_politely(char** argv) {
  if (std::getenv("GOMP_SPINCOUNT") || std::getenv("OMP_WAIT_POLICY")) return;
  setenv("GOMP_SPINCOUNT", "10000", 0);
  // Every update allocates the same tensors: from 32 MB on, malloc would otherwise map and clear each anew.
  setenv("GLIBC_TUNABLES",
         "glibc.malloc.hugetlb=1:glibc.malloc.mmap_threshold=1073741824:glibc.malloc.trim_threshold=4294967296", 0);
  std::error_code failed;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", failed);
  if (!failed) execv(program.c_str(), argv);  // returns only if it fails; then we go on as we are
}

void catch_interrupts() {
  std::signal(SIGINT, on_signal);
  std::signal(SIGTERM, on_signal);
}

bool interrupted() { return stop != 0; }

Interruptible::Interruptible() {
  stop = 0;
  std::signal(SIGINT, on_signal);
}

Interruptible::~Interruptible() {
  std::signal(SIGINT, SIG_DFL);
  stop = 0;
}

}  // namespace lapse
