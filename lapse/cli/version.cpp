#include <ATen/Version.h>
#include <fmt/format.h>
#include <torch/version.h>

#include "lapse/cli/verbs.h"

namespace lapse {
namespace {

constexpr const char* kCommit =
#include "lapse_commit.inc"
    ;

}  // namespace

std::string version_text() {
  return fmt::format("lapse {} (commit {})\ntorch {}, instruction set {}", LAPSE_VERSION, kCommit, TORCH_VERSION,
                     at::get_cpu_capability());
}

}  // namespace lapse
