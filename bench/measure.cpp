#include "bench/measure.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <malloc.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <utility>

#include "lapse/core/error.h"

namespace lapse::bench {
namespace {

/// What is freed stays for the next repeat, on every path: `lapse` too keeps it (cli/early.cpp).
void keep_freed_memory() {
  mallopt(M_MMAP_MAX, 0);         // every block lies in the heap,
  mallopt(M_TRIM_THRESHOLD, -1);  // whose end is not given back
}

/// The value after "name:" in a file of such lines; empty if there is none.
std::string value_of(const char* file, const std::string& name) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    if (line.rfind(name, 0) != 0) continue;
    const auto colon = line.find(':'), first = line.find_first_not_of(" \t", colon + 1);
    return colon == std::string::npos || first == std::string::npos ? "" : line.substr(first);
  }
  return "";
}

std::string read_all(int file) {
  std::string text;
  char buffer[4096];
  for (;;) {
    const ssize_t n = read(file, buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return text;
    text.append(buffer, static_cast<size_t>(n));
  }
}

/// What the program prints on stdout until it ends, and its status as waitpid gives it.
std::pair<std::string, int> output_of(std::string program, std::vector<std::string> arguments) {
  std::vector<char*> argv = {program.data()};
  for (auto& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);

  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) fail(fmt::format("cannot make a pipe: {}", std::strerror(errno)));
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  pid_t child = 0;
  const int failed = posix_spawn(&child, program.c_str(), &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  const std::string text = failed ? "" : read_all(ends[0]);
  close(ends[0]);
  if (failed) fail(fmt::format("cannot start {}: {}", program, std::strerror(failed)));

  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
  return {text, status};
}

std::string last_line(std::string text) {
  while (!text.empty() && text.back() == '\n') text.pop_back();
  const auto end = text.rfind('\n');
  return end == std::string::npos ? text : text.substr(end + 1);
}

}  // namespace

double median(std::vector<double> values) {
  if (values.empty()) fail("the median of no values");
  std::sort(values.begin(), values.end());
  const size_t n = values.size();
  return n % 2 == 1 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

double seconds(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

std::vector<std::vector<double>> take_turns(const std::vector<Path>& paths) {
  keep_freed_memory();
  std::vector<std::function<void()>> work;
  int64_t rounds = 0;
  for (const auto& path : paths) {
    work.push_back(path.prepare());
    for (int64_t i = 0; i < path.warm; ++i) work.back()();
    rounds = std::max(rounds, path.repeats);
  }
  std::vector<std::vector<double>> times(paths.size());
  for (int64_t round = 0; round < rounds; ++round)
    for (size_t i = 0; i < paths.size(); ++i)  // after `round` rounds, round * repeats / rounds repeats, rounded up
      if (static_cast<int64_t>(times[i].size()) * rounds <= round * paths[i].repeats && paths[i].repeats > 0)
        times[i].push_back(seconds(work[i]));
  return times;
}

// Not lapse::peak_memory: getrusage's ru_maxrss outlives exec, so that a child would begin with its parent's.
Json own_memory() {
  const std::string peak = value_of("/proc/self/status", "VmHWM");
  if (peak.empty()) fail("/proc/self/status: no VmHWM, the peak memory of a process");
  return {{"peak_memory", std::stoll(peak) * 1024}};
}

Json run_child(const std::vector<std::string>& arguments) {
  const std::string program = std::filesystem::read_symlink("/proc/self/exe").string();
  const std::string command = fmt::format("`{} {}`", program, fmt::join(arguments, " "));
  const auto [text, status] = output_of(program, arguments);
  if (WIFSIGNALED(status))
    fail(fmt::format("{} was ended by signal {}{}", command, WTERMSIG(status),
                     WTERMSIG(status) == SIGKILL ? " (out of memory?)" : ""));
  if (WEXITSTATUS(status) != 0) fail(fmt::format("{} failed with status {}", command, WEXITSTATUS(status)));
  const Json json = Json::parse(last_line(text), nullptr, false);
  if (json.is_discarded()) fail(fmt::format("{} printed no JSON in its last line", command));
  return json;
}

std::string processor() {
  std::string name = value_of("/proc/cpuinfo", "model name");
  if (name.empty()) name = "unknown processor";
  const std::string flags = " " + value_of("/proc/cpuinfo", "flags") + " ";
  for (const char* set : {"amx_bf16", "avx512_bf16", "avx512f", "avx2", "ssse3"})  // widest first
    if (flags.find(fmt::format(" {} ", set)) != std::string::npos) return fmt::format("{} ({})", name, set);
  return name;
}

}  // namespace lapse::bench
