#include "lapse/train/run_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <functional>
#include <string>

#include "lapse/core/error.h"

namespace lapse {

fs::path run_folder(const fs::path& run_or_file) {
  const fs::path path = fs::absolute(run_or_file).lexically_normal();
  if (is_folder(path)) return path.has_filename() ? path : path.parent_path();
  const fs::path folder = path.parent_path();
  return folder == checkpoints_folder(folder.parent_path()) ? folder.parent_path() : folder;
}

fs::path checkpoints_folder(const fs::path& run) { return run / "checkpoints"; }
fs::path config_path(const fs::path& run) { return run / "config.toml"; }
fs::path metrics_path(const fs::path& run) { return run / "metrics.jsonl"; }
fs::path prune_rounds_path(const fs::path& run) { return run / "prune.json"; }
fs::path pruned_path(const fs::path& run) { return run / "pruned.safetensors"; }

std::vector<fs::path> files_beside_checkpoints(const fs::path& run) {
  return {config_path(run), metrics_path(run), prune_rounds_path(run), pruned_path(run)};
}

fs::path checkpoint_path(const fs::path& run, int64_t update) {
  return checkpoints_folder(run) / fmt::format("update-{:08}.safetensors", update);
}

int64_t update_of(const fs::path& path) {
  const std::string stem = path.stem().string();
  constexpr std::string_view prefix = "update-";
  int64_t update = -1;
  if (path.extension() != ".safetensors" || !stem.starts_with(prefix)) return -1;
  const char* end = stem.data() + stem.size();
  const auto read = std::from_chars(stem.data() + prefix.size(), end, update);
  const bool number = read.ec == std::errc() && read.ptr == end && update >= 0;
  return number && path.filename() == checkpoint_path("", update).filename() ? update : -1;
}

std::vector<fs::path> checkpoints_of(const fs::path& run) {
  const fs::path folder = checkpoints_folder(run);
  std::error_code error;
  if (fs::symlink_status(folder, error).type() == fs::file_type::not_found) return {};
  std::vector<fs::path> files;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    if (update_of(entry->path()) >= 0) files.push_back(entry->path());
  }
  // Taken for an empty folder, a run would begin anew over its own history.
  if (error)
    fail(fmt::format("cannot list '{}', where this run's checkpoints are: {}", folder.string(), error.message()));
  std::ranges::sort(files, std::greater(), update_of);
  return files;
}

void set_aside_damaged(const fs::path& run, int64_t last, int64_t update) {
  std::error_code ignored;
  for (const fs::path& file : checkpoints_of(run))
    if (update_of(file) > last && update_of(file) != update) fs::rename(file, file.string() + ".damaged", ignored);
}

void remove_older_checkpoints(const fs::path& run, int64_t update, int64_t keep) {
  std::error_code ignored;
  for (const fs::path& file : checkpoints_of(run))
    if (update_of(file) <= update && keep-- <= 0) fs::remove(file, ignored);
}

}  // namespace lapse
