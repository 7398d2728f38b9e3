// Golden files: numbers that another implementation computed. They are no part of the repository, so a test that needs
// one is skipped where it is absent, and says so.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>

namespace lapse {

/// golden/NAME.safetensors of the folder that the environment's LAPSE_SHARED names, or else of the one that was beside
/// the checkout when it was configured.
inline std::filesystem::path golden_file(const std::string& name) {
  const char* named = std::getenv("LAPSE_SHARED");
  return std::filesystem::path(named != nullptr ? named : LAPSE_SHARED) / "golden" / (name + ".safetensors");
}

/// What the skipped test says; ctest looks for its first words (tests/CMakeLists.txt).
inline std::string no_golden_file(const std::filesystem::path& path) {
  return "no golden file " + path.string() +
         ": nothing was compared. LAPSE_SHARED names the folder that has golden/; the repository does not hold it";
}

}  // namespace lapse
