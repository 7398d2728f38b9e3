#include "lapse/train/trainer.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>

#include "lapse/core/error.h"
#include "lapse/core/json.h"
#include "lapse/core/process.h"
#include "lapse/core/progress.h"
#include "lapse/ops/aten.h"
#include "lapse/train/checkpoint.h"
#include "lapse/train/history.h"
#include "lapse/train/metrics.h"
#include "lapse/train/resume.h"
#include "lapse/train/run_lock.h"
#include "lapse/train/setup.h"
#include "lapse/train/shares.h"
#include "lapse/train/threads.h"

namespace lapse {
namespace {

using Clock = std::chrono::steady_clock;

/// What the updates since the last line of metrics sum up to. Losses are part of a checkpoint, times are not.
struct Sums {
  double loss = 0, cost = 0, norm = 0;
  int64_t updates = 0, losses = 0;  // all of them, and those in which something was scored
  Score score;
  double seconds = 0, exchange = 0;
  int64_t timed = 0, steps = 0;
};

class Run {
 public:
  Run(Config& config, Group& group, std::unique_ptr<Problem> problem, const Checkpoint* resumed,
      const Checkpoint* tuned)
      : config_(config),
        group_(group),
        problem_(std::move(problem)),
        learner_(make_learner(config, *problem_, tuned, group)),
        feed_(problem_->feed(group)) {
    require_validation(config, *problem_);
    if (resumed) resumed_ = true, restore(*resumed);
    require_agreement(group, fmt::format("{}update = {}\nstreams = {}\n", config_to_toml(config.sections()), update(),
                                         feed_->state().dump()));
  }

  /// To the end, recorded in `folder`.
  Outcome run(const fs::path& folder, bool quiet) {
    folder_ = folder;
    // Of a run that is complete already nothing changes.
    const bool complete = resumed_ && update() >= config_.train.updates && !validation_due_;
    if (group_.first()) {
      if (!complete) metrics_.emplace(folder, update(), validation_due_);
      if (!resumed_ || update() < config_.train.updates)
        write_file(folder / "config.toml", config_to_toml(config_.sections()));
      // What a process left that was killed between writing one checkpoint and removing another.
      if (resumed_) remove_older_checkpoints(folder, update(), config_.train.keep);
    }
    const int64_t total = config_.train.updates;
    progress_.emplace("train", "update", total, update(), quiet);
    if (!quiet) describe();
    // So that a run which is killed early has something to go on from, and a full disk is found at once.
    if (update() == 0 && config_.train.checkpoint_every > 0) save();
    if (validation_due_ && validates()) {
      if (!validate()) return leave();
      if (update() == total) save();  // it was the last thing to do
    }
    while (update() < total) {
      step();
      const int64_t every = config_.train.validate_every;
      validation_due_ = validates() && (update() % every == 0 || update() == total);
      bool stop = group_.any(interrupted());
      if (validation_due_ && !stop) stop = !validate();
      if (stop) return leave();
      const int64_t save_every = config_.train.checkpoint_every;
      if (update() == total || (save_every > 0 && update() % save_every == 0)) save();
      progress_->update(update(), note_ + valid_note_ + pace_);
    }
    progress_->finish();
    return Outcome::kFinished;
  }

  /// Nothing but the first checkpoint.
  void begin(const fs::path& folder, const std::function<void(Transformer&)>& load_weights) {
    folder_ = folder;
    load_weights(learner_->model());
    write_file(folder / "config.toml", config_to_toml(config_.sections()));
    save();  // last: a folder with a checkpoint is a run, and is not begun again
  }

 private:
  void describe() {
    const at::Device device = learner_->model().device();
    std::string where = device.is_cpu() ? fmt::format("{} threads", at::get_num_threads()) : device.str();
    if (!group_.alone()) where = fmt::format("{} processes, each with {}", group_.size(), where);
    progress_->print(fmt::format("{} parameters, {}; {}; run in {}", learner_->model().parameter_count(),
                                 problem_->describe(), where, folder_.string()));
    if (!resumed_) return;
    progress_->print(fmt::format("resumed after update {}", update()));
    if (update() >= config_.train.updates)
      progress_->print(
          fmt::format("the run is complete: it has {} updates, and train.updates = {}; to go on, give more (--set "
                      "train.updates=N)",
                      update(), config_.train.updates));
  }

  bool validates() const { return lapse::validates(config_, *problem_); }

  int64_t update() const { return learner_->updates(); }

  /// One update, and what is recorded of it.
  void step() {
    const auto start = Clock::now();
    const bool log = (update() + 1) % config_.train.log_every == 0;
    const Update made = feed_->update(*learner_, log);
    if (!std::isfinite(made.loss)) diverged(update() + 1, "loss", made.loss, update());
    if (!std::isfinite(made.gradient_norm)) diverged(update() + 1, "gradient norm", made.gradient_norm, update() + 1);
    if (made.score.scored > 0) sums_.loss += made.loss, ++sums_.losses;
    sums_.cost += made.cost, sums_.norm += made.gradient_norm, ++sums_.updates;
    sums_.score += made.score;
    sums_.seconds += std::chrono::duration<double>(Clock::now() - start).count(), ++sums_.timed;
    sums_.steps += made.steps, sums_.exchange += made.exchange_seconds;
    const auto figures = problem_->figures(sums_.score);  // since the last line
    if (log) record(made.rate, layers_of(made.reports));
    note_ = figures.empty() ? "nothing scored" : said(figures, 3);
  }

  /// The main ones: "2.341 bpb", "9.125 rooms  4.310 return".
  std::string said(const std::vector<Figure>& figures, int digits) const {
    std::vector<std::string> parts;
    for (size_t i = 0; i < std::min(problem_->shown(), figures.size()); ++i)
      parts.push_back(fmt::format("{:.{}f} {}", figures[i].value, digits, figures[i].tag));
    return fmt::format("{}", fmt::join(parts, "  "));
  }

  /// Of all ranks' parts, on rank 0.
  Json layers_of(const std::vector<std::vector<LayerReport>>& own) const {
    Json parts = Json::array();
    for (const auto& text : group_.gather(summaries(own).dump()))
      for (auto& part : parse_json(text, "what a rank tells of its memory")) parts.push_back(std::move(part));
    return summarise(parts);
  }

  /// `bad`: the first update whose weights are suspect; a checkpoint from before it is good.
  [[noreturn]] void diverged(int64_t update, const char* what, double value, int64_t bad) const {
    auto files = checkpoints_of(folder_);
    std::erase_if(files, [&](const fs::path& file) { return update_of(file) >= bad; });
    const std::string advice =
        files.empty() || update_of(files[0]) == 0
            ? "there is no checkpoint from before it. Begin anew with a lower optimiser.rate, a longer "
              "optimiser.warmup or "
              "optimiser.clip"
            : fmt::format(
                  "the last good checkpoint is {0}. Begin another run from it, with a lower optimiser.rate or "
                  "optimiser.clip: --set train.from={0}",
                  files[0].string());
    fail(fmt::format("update {}: the {} is {}; {}", update, what, value, advice));
  }

  void record(double rate, const Json& layers) {
    const auto n = static_cast<double>(sums_.updates);
    const double seconds = sums_.seconds / static_cast<double>(sums_.timed);
    Json line = Json::object();
    if (sums_.losses > 0) line["loss"] = sums_.loss / static_cast<double>(sums_.losses);
    for (const auto& figure : problem_->figures(sums_.score)) line[figure.tag] = figure.value;
    line.update({{"cost", sums_.cost / n},
                 {"rate", rate},
                 {"gradient_norm", sums_.norm / n},
                 {"layers", layers},
                 {"ms_per_update", seconds * 1000},
                 {per_second(), static_cast<double>(sums_.steps) / sums_.seconds},
                 {"resident_memory", resident_memory()},
                 {"peak_memory", peak_memory()}});
    if (!group_.alone()) {
      line["exchange_ms_per_update"] = sums_.exchange / static_cast<double>(sums_.timed) * 1000;
      line["memory_of_processes"] = memory_of_processes();
    }
    if (metrics_) metrics_->record(update(), "train", line);
    pace_ = fmt::format("  {:.3g} {}s/s", static_cast<double>(sums_.steps) / sums_.seconds, problem_->unit());
    double memory = 0;
    for (const auto& layer : layers) memory += layer["memory_mean"].get<double>() / static_cast<double>(layers.size());
    if (!layers.empty()) pace_ += fmt::format("  memory {:.1f}", memory);
    sums_ = {};
  }

  /// Resident bytes of each, by rank.
  Json memory_of_processes() const {
    std::vector<double> all(group_.size());
    all[group_.rank()] = static_cast<double>(resident_memory());
    group_.sum(all);
    return all;
  }

  /// False if Ctrl-C came before the end: then nothing is recorded, and a resumed run validates first.
  bool validate() {
    const auto result = problem_->validate(learner_->model(), group_);
    if (result.stopped) return false;
    if (!std::isfinite(result.nats)) diverged(update(), "validation loss", result.nats, update());
    validation_due_ = false;
    const auto figures = problem_->figures(result.score);
    const auto& [name, tag, value] = figures.at(0);
    Json layers = Json::array();
    for (const auto& layer : result.layers) layers.push_back({{"memory_mean", layer.mean}, {"memory_max", layer.max}});
    Json line = Json::object(), entry = {{"update", update()}};
    if (result.score.scored > 0) line["loss"] = entry["loss"] = result.nats;
    if (std::isfinite(value)) entry[tag] = value;  // a perplexity may be beyond all numbers where the loss is none
    for (const auto& figure : figures) line[figure.tag] = figure.value;
    line.update({{"layers", layers}, {per_second(), static_cast<double>(result.tokens) / result.seconds}});
    if (metrics_) metrics_->record(update(), "valid", line);
    history_.push_back(entry);
    valid_note_ = fmt::format("  valid {:.3f}", value);
    progress_->print(fmt::format("update {}: valid {}", update(), said(figures, 4)));
    return true;
  }

  /// Rank 0 writes what all ranks hold.
  fs::path save() {
    const auto& own = learner_->memory();
    const auto memories = gather(group_, memory_tensors(own, group_.rank() * std::ssize(own)));
    const Columns feed = gather_samples(group_, feed_->tensors());
    if (!group_.first()) return {};
    Columns memory;
    for (const auto& of_rank : memories) memory.insert(of_rank.begin(), of_rank.end());
    const Json state = {{"update", update()},
                        {"streams", feed_->state()},
                        {"random", learner_->draws().counter()},
                        {"sums",
                         {{"loss", sums_.loss},
                          {"cost", sums_.cost},
                          {"norm", sums_.norm},
                          {"updates", sums_.updates},
                          {"losses", sums_.losses},
                          {"nats", sums_.score.nats},
                          {"scored", sums_.score.scored},
                          {"bytes", sums_.score.bytes.all},
                          {"unknown_bytes", sums_.score.bytes.unknown},
                          {"right", sums_.score.right},
                          {"more", sums_.score.more}}},
                        {"validation_due", validation_due_},
                        {"history", history_}};
    return write_checkpoint(folder_, update(), config_.train.keep, config_, problem_->vocabulary(),
                            learner_->optimiser(), memory, state.dump(), feed);
  }

  void restore(const Checkpoint& checkpoint) {
    const auto path = checkpoint.file().path().string();
    checkpoint.load_weights(learner_->model(), config_.method_name);
    checkpoint.load_optimiser(learner_->optimiser());
    learner_->memory() =
        share_of(in_parts(checkpoint.memory(learner_->model()), parts_of(config_.train, group_)), group_);
    const Json json = parse_json(checkpoint.state(), path + ", its state");
    const JsonObject state(json, path + ", its state");
    const JsonObject sums = state.object("sums");
    try {
      feed_->restore(state.object("streams"), checkpoint.feed());
    } catch (const Error& error) {
      fail(fmt::format("{}: {}", path, error.what()));
    }
    learner_->draws().set_counter(state.counter("random"));
    sums_ = {sums.number("loss"), sums.number("cost"), sums.number("norm"), sums.whole("updates", 0, kMostUpdates)};
    sums_.losses = sums.has("losses") ? sums.whole("losses", 0, sums_.updates) : sums_.updates;
    const auto count = [&](const char* key) { return sums.has(key) ? sums.whole(key, 0) : 0; };  // older ones lack some
    sums_.score = {sums.has("nats") ? sums.number("nats") : 0,
                   count("scored"),
                   {count("bytes"), count("unknown_bytes")},
                   count("right")};
    if (sums.has("more")) sums_.score.more = sums.object("more").numbers();
    validation_due_ = state.truth("validation_due");
    const RunHistory history = history_of(state);
    learner_->set_updates(history.update), history_ = history.validations;
  }

  std::string per_second() const { return fmt::format("{}s_per_second", problem_->unit()); }

  Outcome leave() {
    const auto path = save();
    progress_->print(fmt::format("interrupted: saved update {} to {}; --resume goes on", update(), path.string()));
    progress_->finish();
    return Outcome::kInterrupted;
  }

  Config& config_;
  Group& group_;
  fs::path folder_;
  std::unique_ptr<Problem> problem_;
  std::unique_ptr<Learner> learner_;
  std::unique_ptr<Feed> feed_;
  std::optional<Metrics> metrics_;  // rank 0's
  std::optional<Progress> progress_;

  Sums sums_;
  bool resumed_ = false, validation_due_ = false;
  Json history_ = Json::array();
  std::string note_, valid_note_, pace_;
};

}  // namespace

void begin_run(Config& config, const fs::path& folder, const std::function<void(Transformer&)>& load_weights) {
  require_new_run(config);
  const RunLock lock(folder);
  if (!checkpoints_of(folder).empty()) fail(folder.string() + ": there is a run in this folder; give another");
  require_no_history(folder);
  Run(config, solo(), open_problem(config, nullptr), nullptr, nullptr).begin(folder, load_weights);
}

Outcome train(Config& config, const fs::path& folder, const TrainerOptions& options) {
  require_trainable_here(config);
  use_threads(config.train.threads);
  std::optional<RunLock> lock;
  std::optional<Checkpoint> resumed, tuned;
  // Which checkpoint to go on from is decided by one rank: the others might already see the first that it writes.
  const std::string newest = found_by_first(options.group, [&]() -> std::string {
    lock.emplace(folder);
    const bool begun = !checkpoints_of(folder).empty();
    if (begun && !options.resume)
      fail(folder.string() + ": there is a run in this folder; --resume continues it, or give another folder");
    if (!begun) require_no_history(folder);
    return begun ? Checkpoint::open(folder).path().string() : "";
  });
  if (!newest.empty()) {
    resumed.emplace(fs::path(newest));
    require_same_run(*resumed, config);
    config.train.from = resumed->config().train.from;
  } else {
    require_new_run(config);
    if (options.resume && !options.quiet && options.group.first())
      fmt::print(stderr, "no run in {} yet: a new one begins\n", folder.string());
    if (!config.train.from.empty()) tuned = Checkpoint::open(config.train.from);
  }
  auto problem = open_problem(config, resumed ? &*resumed : tuned ? &*tuned : nullptr);
  const int64_t free = available_memory() / options.group.neighbours();
  require_memory(estimate_memory(config, *problem, options.group), resident_memory() + free);
  Run run(config, options.group, std::move(problem), resumed ? &*resumed : nullptr, tuned ? &*tuned : nullptr);
  resumed.reset(), tuned.reset();  // whole files, no longer needed
  return run.run(folder, options.quiet || !options.group.first());
}

}  // namespace lapse
