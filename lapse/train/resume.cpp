#include "lapse/train/resume.h"

#include <fmt/format.h>

#include <set>

#include "lapse/core/error.h"
#include "lapse/core/file.h"
#include "lapse/train/run_folder.h"

namespace lapse {
namespace {

/// The file's values, as TOML that lapse writes; empty if they cannot be read.
std::string settings_in(const fs::path& file) {
  try {
    Config config;
    read_config(config.sections(), file.string());
    return config.to_toml();
  } catch (const Error&) {
    return "";
  }
}

/// Error if there is such a file that lapse did not write just so.
void require_own_settings(const fs::path& file) {
  if (!is_there(file) || settings_in(file) == read_file(file)) return;
  fail(
      fmt::format("{}: training would write the run's configuration in this file's place, and lapse did not write it; "
                  "move it, or give another --out",
                  file.string()));
}

}  // namespace

void write_settings(const fs::path& run, const Config& config) {
  const fs::path file = config_path(run);
  const std::string settings = config.to_toml();
  if (!is_there(file) || settings_in(file) != settings) write_file(file, settings);
}

void require_same_run(const Checkpoint& checkpoint, const Config& config) {
  static const std::set<std::string> free = {"train.updates",
                                             "train.threads",
                                             "train.device",
                                             "train.log_every",
                                             "train.validate_every",
                                             "train.keep",
                                             "train.validation_blocks",
                                             "train.checkpoint_every",
                                             "train.validation_streams",
                                             "actor_critic.validation_episodes"};
  for (const auto& [section, key, was, is, is_path] : Config::differences(checkpoint.config(), config)) {
    const std::string name = section + "." + key;
    if (!is_path && !free.contains(name))
      fail(
          fmt::format("{}: the run has {} = {}, not {}; a resumed run keeps its configuration, so give the same (it is "
                      "in the run's config.toml) or another --out",
                      checkpoint.file().path().string(), name, was, is));
  }
}

void require_no_history(const fs::path& run) {
  require_own_settings(config_path(run));
  const fs::path metrics = metrics_path(run);
  std::error_code none;
  const auto size = fs::file_size(metrics, none);
  if (none || size == 0) return;
  fail(
      fmt::format("{}: there are metrics of a run, but no checkpoints to go on from; put its folder checkpoints/ back, "
                  "give another --out, or begin anew by removing {}",
                  run.string(), metrics.string()));
}

void require_no_run(const fs::path& run) {
  if (!checkpoints_of(run).empty())
    fail(run.string() + ": there is a run in this folder; --resume continues it, or give another folder");
  require_no_history(run);
}

}  // namespace lapse
