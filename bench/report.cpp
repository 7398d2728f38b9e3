#include "bench/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <iostream>

namespace lapse::bench {

Json paths_json(const std::vector<Measured>& paths, double peak_flops) {
  Json all = Json::object();
  const double fused = median(paths.front().seconds);
  for (const auto& path : paths) {
    const double time = median(path.seconds);
    Json& json = all[path.name];
    json["ms"] = time * 1e3;
    json["ms_min"] = *std::min_element(path.seconds.begin(), path.seconds.end()) * 1e3;
    json["repeats"] = path.seconds.size();
    json["gflops"] = path.flops / time * 1e-9;
    json["of_peak"] = path.flops / time / peak_flops;
    if (&path != &paths.front()) json["fused_over_this"] = fused / time;
    if (path.peak_memory > 0) json["peak_memory"] = path.peak_memory;
  }
  return all;
}

std::string paths_table(const Json& paths) {
  std::string text = fmt::format("  {:10} {:>10} {:>10} {:>8} {:>8} {:>10} {:>11}\n", "path", "median ms", "least ms",
                                 "GFLOP/s", "of peak", "fused/this", "peak memory");
  for (const auto& [name, path] : paths.items()) {
    const std::string ratio =
        path.contains("fused_over_this") ? fmt::format("{:.3f}", path["fused_over_this"].get<double>()) : std::string();
    const std::string memory = path.contains("peak_memory")
                                   ? fmt::format("{:.0f} MB", path["peak_memory"].get<double>() * 1e-6)
                                   : std::string();
    text += fmt::format("  {:10} {:>10.2f} {:>10.2f} {:>8.1f} {:>6.1f} % {:>10} {:>11}\n", name,
                        path["ms"].get<double>(), path["ms_min"].get<double>(), path["gflops"].get<double>(),
                        path["of_peak"].get<double>() * 100, ratio, memory);
  }
  return text;
}

void note(const std::string& text) { std::cerr << text << std::endl; }

}  // namespace lapse::bench
