#include "lapse/train/run_record.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "lapse/core/process.h"
#include "lapse/core/progress.h"

namespace lapse {

void RunRecord::add(const Update& made, double seconds) {
  if (made.score.scored > 0) sums_.loss += made.loss, ++sums_.losses;
  sums_.cost += made.cost, sums_.norm += made.gradient_norm, ++sums_.updates;
  sums_.score += made.score;
  sums_.seconds += seconds, ++sums_.timed;
  sums_.steps += made.steps, sums_.exchange += made.exchange_seconds;
  const auto figures = problem_.figures(sums_.score);
  note_ = figures.empty() ? "nothing scored" : said(figures, 3);
}

std::string RunRecord::said(const std::vector<Figure>& figures, int digits) const {
  std::vector<std::string> parts;
  const auto tags = problem_.shown();
  const auto say = [&](const Figure& figure) {
    parts.push_back(fmt::format("{:.{}f} {}", figure.value, digits, figure.tag));
  };
  for (const Figure& figure : figures)
    if (std::ranges::count(tags, figure.tag) > 0) say(figure);
  if (parts.empty()) say(figures.at(0));
  return fmt::format("{}", fmt::join(parts, "  "));
}

Json RunRecord::layers_of(const std::vector<std::vector<LayerReport>>& own) const {
  Json parts = Json::array();
  for (const auto& text : group_.gather(summaries(own).dump()))
    for (auto& part : parse_json(text, "what a rank tells of its memory")) parts.push_back(std::move(part));
  return summarise(parts);
}

Json RunRecord::memory_of_processes() const {
  std::vector<double> all(group_.size());
  all[group_.rank()] = static_cast<double>(resident_memory());
  group_.sum(all);
  return all;
}

void RunRecord::training(int64_t update, const Update& newest, bool whole) {
  const Json layers = layers_of(newest.reports);
  const auto n = static_cast<double>(sums_.updates);
  const double seconds = sums_.seconds / static_cast<double>(sums_.timed);
  const double pace = static_cast<double>(sums_.steps) / sums_.seconds;
  Json line = Json::object();
  if (sums_.losses > 0) line["loss"] = sums_.loss / static_cast<double>(sums_.losses);
  for (const auto& figure : problem_.figures(sums_.score)) line[figure.tag] = figure.value;
  line.update({{"cost", sums_.cost / n},
               {"rate", newest.rate},
               {"gradient_norm", sums_.norm / n},
               {"layers", layers},
               {"ms_per_update", seconds * 1000},
               {per_second(), pace},
               {"resident_memory", resident_memory()},
               {"peak_memory", peak_memory()}});
  if (!group_.alone()) {
    line["exchange_ms_per_update"] = sums_.exchange / static_cast<double>(sums_.timed) * 1000;
    line["memory_of_processes"] = memory_of_processes();
  }
  if (metrics_) metrics_->record(update, "train", line);
  pace_ = fmt::format("  {} {}s/s", three_digits(pace), problem_.unit());
  double memory = 0;
  for (const auto& layer : layers) memory += layer["memory_mean"].get<double>() / static_cast<double>(layers.size());
  if (!layers.empty()) pace_ += fmt::format("  memory {:.1f}", memory);
  if (whole) sums_ = {};
}

void RunRecord::validation(int64_t update, const EvaluationResult& result) {
  const auto figures = problem_.figures(result.score);
  const Figure& main = figures.at(0);
  Json layers = Json::array();
  for (const auto& layer : result.layers) layers.push_back(to_json(layer));
  Json line = Json::object(), entry = {{"update", update}};
  if (result.score.scored > 0) line["loss"] = entry["loss"] = result.nats;
  if (std::isfinite(main.value)) entry[main.tag] = main.value;  // a perplexity may be beyond all numbers
  for (const auto& figure : figures) line[figure.tag] = figure.value;
  line.update({{"layers", layers},
               {fmt::format("{}s", problem_.unit()), result.tokens},
               {"whole", result.whole},
               {per_second(), static_cast<double>(result.tokens) / result.seconds}});
  if (metrics_) metrics_->record(update, "valid", line);
  validations_.push_back(entry);
  valid_note_ = fmt::format("  valid {:.3f} {}", main.value, main.tag);
  newest_validation_ = said(figures, 4);
}

Json RunRecord::sums() const {
  return {{"loss", sums_.loss},
          {"cost", sums_.cost},
          {"norm", sums_.norm},
          {"updates", sums_.updates},
          {"losses", sums_.losses},
          {"nats", sums_.score.nats},
          {"scored", sums_.score.scored},
          {"bytes", sums_.score.bytes.all},
          {"unknown_bytes", sums_.score.bytes.unknown},
          {"right", sums_.score.right},
          {"more", sums_.score.more}};
}

void RunRecord::restore(const JsonObject& sums, const Json& validations) {
  sums_ = {sums.number("loss"), sums.number("cost"), sums.number("norm"), sums.whole("updates", 0, kMostUpdates)};
  sums_.losses = sums.has("losses") ? sums.whole("losses", 0, sums_.updates) : sums_.updates;
  const auto count = [&](const char* key) { return sums.has(key) ? sums.whole(key, 0) : 0; };  // older ones lack some
  sums_.score = {sums.has("nats") ? sums.number("nats") : 0,
                 count("scored"),
                 {count("bytes"), count("unknown_bytes")},
                 count("right")};
  if (sums.has("more")) sums_.score.more = sums.object("more").numbers();
  validations_ = validations;
}

}  // namespace lapse
