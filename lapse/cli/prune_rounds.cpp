#include "lapse/cli/prune_rounds.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "lapse/core/error.h"
#include "lapse/core/json.h"
#include "lapse/core/read_limit.h"

namespace lapse {
namespace {

/// Whether a search makes `next` of `before`: one layer has `step` rows fewer, and no fewer than `step`.
bool follows(const std::vector<int64_t>& next, const std::vector<int64_t>& before, int64_t step) {
  int64_t lowered = 0;
  for (size_t l = 0; l < next.size(); ++l) {
    if (next[l] == before[l]) continue;
    if (next[l] != before[l] - step || next[l] < step) return false;
    ++lowered;
  }
  return lowered == 1;
}

/// The rounds of a file; throws nlohmann's exceptions. Empty if no search with these settings can have written them.
std::vector<PruneRound> read_rounds(const Json& rounds, const Json& settings, size_t layers) {
  std::vector<PruneRound> curve;
  const int64_t step = settings.at("step");
  std::vector<int64_t> before;
  for (const Json& json : rounds) {
    const Json& budgets = json.at("budgets");
    const bool whole = std::ranges::all_of(budgets, [](const Json& budget) { return budget.is_number_integer(); });
    PruneRound round{whole ? budgets.get<std::vector<int64_t>>() : std::vector<int64_t>(), json.at("loss")};
    const bool first = curve.empty();
    if (round.budgets.size() != layers || !std::isfinite(round.nats) || round.nats < 0) return {};
    if (first && round.budgets != std::vector<int64_t>(layers, settings.at("context"))) return {};
    if (!first && !follows(round.budgets, before, step)) return {};
    before = round.budgets;
    curve.push_back(std::move(round));
  }
  return curve;
}

/// [{"total", "loss", "budgets"}, ...]
Json to_json(const std::vector<PruneRound>& all) {
  Json rounds = Json::array();
  for (const auto& round : all)
    rounds.push_back({{"total", round.total()}, {"loss", round.nats}, {"budgets", round.budgets}});
  return rounds;
}

/// The first setting in which two searches differ, those that one of them lacks among them; empty if there is none. A
/// text may have another name: its checksum tells.
std::string difference(const Json& before, const Json& now) {
  for (const Json* one : {&now, &before})
    for (const auto& item : one->items())
      if (item.key() != "data" && before.value(item.key(), Json()) != now.value(item.key(), Json())) return item.key();
  return "";
}

/// The name under which a file is kept the i-th time.
fs::path old_name(const fs::path& path, int i) {
  return fs::path(path).replace_extension((i == 1 ? ".old" : fmt::format(".old{}", i)) + path.extension().string());
}

/// The first i for which neither file has a kept one; an empty path has none.
int free_number(const fs::path& one, const fs::path& other) {
  const auto taken = [](const fs::path& path, int i) { return !path.empty() && is_there(old_name(path, i)); };
  int i = 1;
  while (taken(one, i) || taken(other, i)) ++i;
  return i;
}

/// The checkpoint that a file of rounds names, beside that file: the folder may have been moved. Empty: none.
fs::path named_checkpoint(const Json& json, const fs::path& rounds) {
  const Json named = json.value("checkpoint", Json());
  return named.is_string() ? rounds.parent_path() / fs::path(named.get<std::string>()).filename() : fs::path();
}

}  // namespace

// Its rounds may have taken hours. The checkpoint that it names is kept with it: the next search writes another.
void RoundsFile::put_aside(Json json, const std::string& other) const {
  const fs::path checkpoint = named_checkpoint(json, path_);
  const int i = free_number(path_, checkpoint.empty() ? checkpoint_ : checkpoint);
  const fs::path aside = old_name(path_, i);
  const bool moves = !checkpoint.empty() && is_file(checkpoint);
  if (moves) json["checkpoint"] = old_name(checkpoint, i).string();
  write_file(aside, to_text(json, 1) + "\n");
  if (moves) fs::rename(checkpoint, old_name(checkpoint, i));
  fs::remove(path_);
  fmt::print(stderr, "lapse: note: {} is of a search with another \"{}\"; it is kept as {}\n", path_.string(), other,
             aside.string());
}

// `lapse eval` of it would tell another search's result.
void RoundsFile::keep_checkpoint(bool reached) const {
  if (!is_file(checkpoint_) || (reached && wrote_checkpoint_)) return;
  const fs::path aside = old_name(checkpoint_, free_number(checkpoint_, path_));
  fs::rename(checkpoint_, aside);
  fmt::print(stderr, "lapse: note: {} is of a search {}; it is kept as {}\n", checkpoint_.string(),
             wrote_checkpoint_ ? "for another loss" : "that " + path_.filename().string() + " does not tell of",
             aside.string());
}

std::vector<PruneRound> RoundsFile::earlier(size_t layers) {
  if (!is_there(path_)) return {};
  std::vector<PruneRound> curve;
  try {
    if (!is_file(path_)) fail("not a file");
    const Json json = parse_json(read_file(path_, kSmallFile), path_.string());
    if (const std::string other = difference(json.at("settings"), settings_); !other.empty())
      return put_aside(json, other), curve;
    curve = read_rounds(json.at("rounds"), settings_, layers);
    wrote_checkpoint_ = named_checkpoint(json, path_).filename() == checkpoint_.filename();
  } catch (const Error&) {
  } catch (const nlohmann::json::exception&) {
  }
  if (curve.empty()) fail(path_.string() + ": not what `lapse prune` writes; delete it to search anew");
  return curve;
}

Json RoundsFile::save(const std::vector<PruneRound>& rounds, const Json& more) const {
  Json all = {{"settings", settings_}};
  if (wrote_checkpoint_) all["checkpoint"] = checkpoint_.string();  // told too while the search goes on
  all.update(more);
  all["rounds"] = to_json(rounds);
  write_file(path_, to_text(all, 1) + "\n");
  return all;
}

}  // namespace lapse
