#include "lapse/serve/library.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "lapse/core/error.h"

namespace lapse {
namespace {

void require_watchable(const Opened& opened) {
  const Vocabulary& vocabulary = opened.reader.vocabulary();
  if (opened.reader.config().environment()) return;
  if (opened.model->reads_source())
    fail(opened.name + ": a model with an encoder fills in gaps, and there is no stream to watch; see lapse generate");
  if (vocabulary.outputs() != vocabulary.size())
    fail(fmt::format("{}: the run's task, {}, asks for labels; there is no text to go on", opened.name,
                     opened.reader.config().task_name));
}

void require_alike(const Opened& a, const Opened& b) {
  const Config &one = a.reader.config(), &other = b.reader.config();
  if ((one.environment() || other.environment()) && one.task_name != other.task_name)
    fail(
        fmt::format("{} and {}: runs side by side read the same text, or act in the same environment", a.name, b.name));
  const Vocabulary &ours = a.reader.vocabulary(), &theirs = b.reader.vocabulary();
  if (ours.to_json() == theirs.to_json()) return;
  std::string why = "read different tokens";
  if ((ours.bos() < 0) != (theirs.bos() < 0))
    why = fmt::format("do not both begin with a token for the beginning: of these {} has one, since it reads windows",
                      ours.bos() < 0 ? b.name : a.name);
  fail(fmt::format("{} and {} {}; runs side by side need the same vocabulary", a.name, b.name, why));
}

}  // namespace

Json environment_options(const Opened& opened) {
  const Config& config = opened.reader.config();
  return read_by(config, {})[config.task_name];
}

Library::Library(const ReadingOptions& reading, const std::vector<std::string>& runs) : reading_(reading) {
  std::set<std::string> folders;
  const std::set<std::string> paths(runs.begin(), runs.end());
  for (const auto& path : paths) folders.insert(run_folder(path).filename().string());
  const bool alike = folders.size() < paths.size();  // then paths tell them apart
  for (const auto& run : runs) {
    reading_.run = run;
    Reader reader = open_reader(reading_);
    auto model = reader.model();
    reader.checkpoint.close();
    std::string name = alike ? run : run_folder(reader.checkpoint.path()).filename().string();
    // One run given twice.
    if (std::ranges::any_of(default_, [&](const auto& one) { return one->name == name; })) name += " (2)";
    default_.push_back(
        std::make_shared<const Opened>(Opened{std::move(reader), std::move(model), name, reading_.of_method}));
    require_watchable(*default_.back());
    require_alike(*default_.front(), *default_.back());
  }
}

std::shared_ptr<const Opened> Library::open_anew(const LaneSettings& settings) const {
  const Opened& opened = run(settings.run);
  ReadingOptions reading = reading_;
  if (settings.method) reading.method = settings.method, reading.of_method.clear();
  for (const auto& [name, value] : settings.options) reading.of_method[name] = value;
  Reader reader = reopened(opened.reader, reading);
  auto model = reader.model(*opened.model);
  return std::make_shared<const Opened>(Opened{std::move(reader), std::move(model), opened.name, reading.of_method});
}

std::shared_ptr<const Opened> Library::open(const LaneSettings& settings) {
  if (settings.run < 0 || settings.run >= runs())
    fail(fmt::format("there is no run {}; there are {}", settings.run, runs()));
  if (!settings.method && settings.options.empty()) return default_[settings.run];
  std::erase_if(others_, [](const auto& one) { return one.second.expired(); });
  auto found = others_[settings].lock();
  if (!found) others_[settings] = found = open_anew(settings);
  return found;
}

}  // namespace lapse
