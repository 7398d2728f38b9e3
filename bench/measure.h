// Times of several paths in one run, and the memory of each in a process of its own.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace lapse::bench {

using Json = nlohmann::ordered_json;

/// One way of doing a piece of work. `prepare` makes what it needs and returns the work itself, so that a process that
/// measures one path holds nothing of the others.
struct Path {
  std::string name;
  std::function<std::function<void()>()> prepare;
  int64_t repeats = 10;
  int64_t warm = 1;
};

double median(std::vector<double> values);

/// Seconds of one call.
double seconds(const std::function<void()>& work);

/// Seconds of every repeat of each path, in the order of `paths`. The repeats are spread evenly over the run and the
/// paths take turns, so that a disturbance hits all of them alike.
std::vector<std::vector<double>> take_turns(const std::vector<Path>& paths);

/// What a child process prints and its parent reads: bytes resident at most (VmHWM).
Json own_memory();

/// Runs this program anew with these arguments and returns the JSON in the last line that it prints. Error if it fails.
Json run_child(const std::vector<std::string>& arguments);

/// The processor, from /proc/cpuinfo, with the widest instruction set that matters here.
std::string processor();

}  // namespace lapse::bench
