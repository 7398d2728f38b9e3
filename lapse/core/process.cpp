#include "lapse/core/process.h"

#include <fcntl.h>
#include <malloc.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <string>

namespace lapse {
namespace {

// Set by signals on any thread, read by others: Ctrl-C, another that asks the process to end, a pipe without a reader.
std::atomic<bool> pressed = false, told = false, unread = false;
static_assert(std::atomic<bool>::is_always_lock_free);

void note_signal(int signal) { (signal == SIGINT ? pressed : signal == SIGPIPE ? unread : told) = true; }

/// Such signals are noted; what was done at them before goes to `before`.
void note(int signal, int flags, struct sigaction* before = nullptr) {
  struct sigaction action {};
  action.sa_handler = note_signal;
  action.sa_flags = flags | SA_RESTART;
  ::sigaction(signal, &action, before);
}

/// The first such signal is noted, the second ends the process.
void catch_once(int signal) { note(signal, SA_RESETHAND); }

// "MemAvailable:   123 kB" of a file of such lines, in bytes.
int64_t kilobytes_of(const char* file, const std::string& name) {
  std::ifstream lines(file);
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with(name + ":")) return 1024 * std::strtoll(line.c_str() + name.size() + 1, nullptr, 10);
  return 0;
}

// Pages of files that a control group can drop, in bytes: "inactive_file 123" of its statistics.
int64_t droppable(const char* file) {
  std::ifstream lines(file);
  std::string name;
  for (int64_t bytes = 0; lines >> name >> bytes;)
    if (name == "inactive_file" || name == "total_inactive_file") return bytes;
  return 0;
}

// The number in a control group's file; none if there is no such file or no limit ("max").
std::optional<int64_t> number_in(const char* file) {
  std::ifstream content(file);
  int64_t number = 0;
  return content >> number ? std::optional(number) : std::nullopt;
}

}  // namespace

int64_t peak_memory() {
  // Not ru_maxrss, which outlives exec: a program that was started by a large one would begin with that one's peak.
  if (const int64_t peak = kilobytes_of("/proc/self/status", "VmHWM"); peak > 0) return peak;
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

int64_t available_memory() {
  int64_t least = kilobytes_of("/proc/meminfo", "MemAvailable") + kilobytes_of("/proc/meminfo", "SwapFree");
  const std::string folders[] = {"/sys/fs/cgroup/", "/sys/fs/cgroup/memory/"};  // of version 2 and of version 1
  for (const auto& folder : folders) {
    auto most = number_in((folder + "memory.max").c_str());
    if (!most) most = number_in((folder + "memory.limit_in_bytes").c_str());
    auto used = number_in((folder + "memory.current").c_str());
    if (!used) used = number_in((folder + "memory.usage_in_bytes").c_str());
    if (most && used) least = std::min(least, *most - *used + droppable((folder + "memory.stat").c_str()));
  }
  rlimit space{};
  if (getrlimit(RLIMIT_AS, &space) == 0 && space.rlim_cur != RLIM_INFINITY)
    least = std::min(least, static_cast<int64_t>(space.rlim_cur) - kilobytes_of("/proc/self/status", "VmSize"));
  return std::max<int64_t>(least, 0);
}

void save_addresses() {
  rlimit space{};
  if (getrlimit(RLIMIT_AS, &space) == 0 && space.rlim_cur != RLIM_INFINITY) mallopt(M_ARENA_MAX, 1);
}

void hold_standard_streams() {
  for (int number = 0; number <= 2; ++number)
    if (::fcntl(number, F_GETFD) < 0 && ::open("/dev/null", number == 2 ? O_WRONLY : O_RDONLY) < 0) return;
}

void leave(int status) {
  std::fflush(nullptr);
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)  // they report at exit
  std::exit(status);
#else
  _exit(status);
#endif
}

void outlive_file_limit() { std::signal(SIGXFSZ, SIG_IGN); }

void catch_interrupts() {
  catch_once(SIGINT);
  catch_once(SIGTERM);
  struct sigaction now {};
  ::sigaction(SIGHUP, nullptr, &now);
  if (now.sa_handler != SIG_IGN) catch_once(SIGHUP);  // of nohup: goes on
}

bool interrupted() { return pressed || told; }

Interruptible::Interruptible() {
  pressed = false;
  note(SIGINT, 0, &before_);
}

Interruptible::~Interruptible() {
  pressed = false;  // first: one that comes now is not lost
  ::sigaction(SIGINT, &before_, nullptr);
}

void outlive_readers() { note(SIGPIPE, 0); }

void end_with_readers() {
  if (!unread) return;
  std::signal(SIGPIPE, SIG_DFL);
  std::raise(SIGPIPE);
}

}  // namespace lapse
