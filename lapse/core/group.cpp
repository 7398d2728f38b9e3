#include "lapse/core/group.h"

#include <fmt/format.h>

#include <cstdlib>

#include "lapse/core/error.h"
#include "lapse/core/plugin.h"

namespace lapse {
namespace {

class Solo : public Group {
 public:
  int64_t rank() const override { return 0; }
  int64_t size() const override { return 1; }
  void sum(std::span<float>) override {}
  void sum(std::span<double>) override {}
  std::vector<std::string> gather(const std::string& bytes) override { return {bytes}; }
  std::string broadcast(const std::string& bytes) override { return bytes; }
};

}  // namespace

bool Group::any(bool mine) {
  double count = mine ? 1 : 0;
  sum({&count, 1});
  return count > 0;
}

Group& solo() noexcept {
  static Solo group;
  return group;
}

Group& join_group(double patience) {
  static Group& group = [&]() -> Group& {
    const char *size = std::getenv("WORLD_SIZE"), *rank = std::getenv("RANK");
    // Else each of several processes would train alone, and write to the same folder.
    if (size == nullptr && rank != nullptr && std::string(rank) != "0")
      fail(fmt::format("RANK={} without WORLD_SIZE: set WORLD_SIZE, the number of processes, as torchrun does", rank));
    if (size == nullptr || std::string(size) == "1") return solo();
    void* entry = plugin_entry("several processes", "liblapse_group.so", "lapse_join_group", Symbols::kShared);
    return *reinterpret_cast<Group* (*)(double)>(entry)(patience);
  }();
  return group;
}

Share share_of(int64_t n, int64_t part, int64_t parts) {
  const int64_t first = n * part / parts;
  return {first, n * (part + 1) / parts - first};
}

}  // namespace lapse
