#include "lapse/train/trainer.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>
#include <utility>

#include "lapse/core/error.h"
#include "lapse/core/process.h"
#include "lapse/core/progress.h"
#include "lapse/ops/aten.h"
#include "lapse/train/checkpoint.h"
#include "lapse/train/device.h"
#include "lapse/train/history.h"
#include "lapse/train/objectives.h"
#include "lapse/train/resume.h"
#include "lapse/train/run_lock.h"
#include "lapse/train/run_record.h"
#include "lapse/train/setup.h"
#include "lapse/train/shares.h"
#include "lapse/train/threads.h"

namespace lapse {
namespace {

using Clock = std::chrono::steady_clock;

class Run {
 public:
  Run(const Config& config, Group& group, std::unique_ptr<Problem> problem, const Checkpoint* resumed,
      const Checkpoint* tuned)
      : config_(config),
        group_(group),
        problem_(std::move(problem)),
        learner_(make_learner(config, *problem_, tuned, group)),
        feed_(problem_->feed(group)),
        record_(*problem_, group) {
    require_validation(config, *problem_, group);
    if (resumed) resumed_ = true, restore(*resumed);
    if (!group.alone()) require_agreement(group, about_to_do(resumed ? resumed : tuned));
  }

  /// To the end, recorded in `folder`.
  Outcome run(const fs::path& folder, bool quiet) {
    folder_ = folder;
    // Of a run that is complete already nothing changes.
    const bool complete = resumed_ && update() >= config_.train.updates && !validation_due_;
    if (group_.first()) {
      if (!complete) record_.write_to(folder, update(), update() < config_.train.updates, validation_due_);
      if (!resumed_ || update() < config_.train.updates) write_settings(folder, config_);
      // What a process left that was killed between writing one checkpoint and removing another.
      if (resumed_) remove_older_checkpoints(folder, update(), config_.train.keep);
    }
    const int64_t total = config_.train.updates;
    progress_.emplace("train", "update", total, update(), quiet);
    if (!quiet) describe();
    // So that a run which is killed early has something to go on from, and a full disk is found at once.
    if (update() == 0 && !resumed_ && config_.train.checkpoint_every > 0) save();
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
      if (stop && (update() < total || validation_due_)) return leave();
      const int64_t save_every = config_.train.checkpoint_every;
      if (update() == total || (save_every > 0 && update() % save_every == 0)) save();
      progress_->update(update(), record_.note());
    }
    progress_->finish();
    return Outcome::kFinished;
  }

  /// Nothing but the first checkpoint.
  void begin(const fs::path& folder, const std::function<void(Transformer&)>& load_weights) {
    folder_ = folder;
    load_weights(learner_->model());
    write_settings(folder, config_);
    save();  // last: a folder with a checkpoint is a run, and is not begun again
  }

 private:
  /// All on which the ranks' updates depend; `begun`: the checkpoint, null where there is none.
  std::string about_to_do(const Checkpoint* begun) const {
    return fmt::format("{}update = {}\nstreams = {}\ncheckpoint = {:08x}\n", config_.to_toml(), update(),
                       feed_->state().dump(), begun ? begun->file().checksum() : 0);
  }

  void describe() {
    const at::Device device = learner_->model().device();
    std::string where = device.is_cpu()
                            ? fmt::format("{} thread{}", at::get_num_threads(), at::get_num_threads() == 1 ? "" : "s")
                            : device.str();
    if (!group_.alone()) where = fmt::format("{} processes, each with {}", group_.size(), where);
    progress_->print(fmt::format("{} parameters, {}; {}; run in {}", learner_->model().parameter_count(),
                                 problem_->describe(), where, folder_.string()));
    if (!resumed_) return;
    progress_->print(fmt::format("resumed after update {}", update()));
    describe_rate();
    describe_courses();
    if (update() >= config_.train.updates)
      progress_->print(
          fmt::format("the run is complete: it has {} updates, and train.updates = {}; to go on, give more (--set "
                      "train.updates=N)",
                      update(), config_.train.updates));
  }

  /// A cosine ends with the run: of one that was made longer or shorter the rate is suddenly another.
  void describe_rate() {
    const int64_t total = config_.train.updates, n = update();
    const OptimiserConfig& rates = learner_->rates();
    if (rates.schedule != "cosine" || planned_ == total || n >= total || n == 0) return;
    const std::string was = fmt::format("{:.2g}", learning_rate(rates, n, planned_));
    const std::string is = fmt::format("{:.2g}", learning_rate(rates, n + 1, total));
    progress_->print(fmt::format("the cosine now ends at update {}, not {}{}", total, planned_,
                                 was == is ? "" : fmt::format(": the learning rate was {}, and is {}", was, is)));
  }

  /// The same of what the objective changes from the first update to the last.
  void describe_courses() {
    const int64_t total = config_.train.updates, n = update();
    if (planned_ == total || n >= total || n == 0) return;
    for (const auto& course : objective_of(config_).courses) {
      const auto value = [&](int64_t done, int64_t of) {
        return course.value(config_, static_cast<double>(done) / static_cast<double>(of));
      };
      const double was = value(n - 1, planned_), is = value(n, total);
      if (was == is) continue;
      progress_->print(
          fmt::format("{} changes until the last update, which is now {}, not {}: it was {:.2g}, and is {:.2g}",
                      course.name, total, planned_, was, is));
    }
  }

  bool validates() const { return lapse::validates(config_, *problem_); }

  int64_t update() const { return learner_->updates(); }

  /// One update, and what is recorded of it.
  void step() {
    const auto start = Clock::now();
    const bool due = (update() + 1) % config_.train.log_every == 0;
    const bool log = due || update() + 1 == config_.train.updates;
    const Update made = feed_->update(*learner_, log);
    if (!std::isfinite(made.loss)) diverged(update() + 1, "loss", made.loss, update());
    if (!std::isfinite(made.gradient_norm)) diverged(update() + 1, "gradient norm", made.gradient_norm, update() + 1);
    record_.add(made, std::chrono::duration<double>(Clock::now() - start).count());
    if (log) record_.training(update(), made, /*whole=*/due);
  }

  /// `bad`: the first update whose weights are suspect; a checkpoint from before it is good.
  [[noreturn]] void diverged(int64_t update, const char* what, double value, int64_t bad) const {
    auto files = checkpoints_of(folder_);
    std::erase_if(files, [&](const fs::path& file) { return update_of(file) >= bad; });
    const char* clipped = config_.optimiser.clip > 0 ? "a lower optimiser.clip" : "clipped gradients (optimiser.clip)";
    const std::string advice =
        files.empty() || update_of(files[0]) == 0
            ? fmt::format(
                  "there is no checkpoint of a trained model from before it. Begin anew with a lower optimiser.rate, "
                  "a longer optimiser.warmup or {}",
                  clipped)
            : fmt::format(
                  "the last good checkpoint is {0}. Begin another run from it, with a lower optimiser.rate or {1}: "
                  "--set train.from={2}",
                  files[0].string(), clipped, for_shell(files[0]));
    const double shown = std::isnan(value) ? std::abs(value) : value;  // no "-nan"
    fail(fmt::format("update {}: the {} is {}; {}", update, what, shown, advice));
  }

  /// False if Ctrl-C came before the end: then nothing is recorded, and a resumed run validates first.
  bool validate() {
    const auto result = problem_->validate(learner_->model(), group_);
    if (result.stopped) return false;
    if (!std::isfinite(result.nats)) diverged(update(), "validation loss", result.nats, update());
    validation_due_ = false;
    record_.validation(update(), result);
    progress_->print(fmt::format("update {}: valid {}", update(), record_.newest_validation()));
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
    const Json state = {
        {"update", update()},     {"streams", feed_->state()},         {"random", learner_->draws().counter()},
        {"sums", record_.sums()}, {"validation_due", validation_due_}, {"history", record_.validations()}};
    set_aside_damaged(folder_, std::exchange(saved_, update()), update());
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
    try {
      feed_->restore(state.object("streams"), checkpoint.feed());
    } catch (const Error& error) {
      fail(fmt::format("{}: {}", path, error.what()));
    }
    learner_->draws().set_counter(state.counter("random"));
    validation_due_ = state.truth("validation_due");
    planned_ = checkpoint.config().train.updates;
    const RunHistory history = history_of(state);
    learner_->set_updates(history.update);
    saved_ = history.update;
    record_.restore(state.object("sums"), history.validations);
  }

  Outcome leave() {
    const auto path = save();
    progress_->update(update(), record_.note());
    progress_->finish(fmt::format("interrupted: saved update {} to {}; to go on: lapse train {} --out {} --resume",
                                  update(), path.string(), for_shell(config_path(folder_)), for_shell(folder_)));
    return Outcome::kInterrupted;
  }

  const Config& config_;
  Group& group_;
  fs::path folder_;
  std::unique_ptr<Problem> problem_;
  std::unique_ptr<Learner> learner_;
  std::unique_ptr<Feed> feed_;
  RunRecord record_;
  std::optional<Progress> progress_;
  bool resumed_ = false, validation_due_ = false;
  int64_t saved_ = -1;   // the update of the newest checkpoint that is whole
  int64_t planned_ = 0;  // updates, when the run that is resumed was last at work
};

}  // namespace

void begin_run(const Config& config, const fs::path& folder, const std::function<void(Transformer&)>& load_weights) {
  require_new_run(config);
  const RunLock lock(folder);
  if (!checkpoints_of(folder).empty()) fail(folder.string() + ": there is a run in this folder; give another");
  require_no_history(folder);
  auto problem = open_problem(config, nullptr);
  require_memory(estimate_memory(config, *problem), usable_memory(find_device(config.train.device)));
  Run(config, solo(), std::move(problem), nullptr, nullptr).begin(folder, load_weights);
}

Outcome train(const Config& given, const fs::path& folder, const TrainerOptions& options) {
  Config config = given;
  require_trainable_here(config);
  use_threads(config.train.threads);
  std::optional<RunLock> lock;
  std::optional<Checkpoint> resumed, tuned;
  // Which checkpoint to go on from is decided by one rank: the others might already see the first that it writes.
  const std::string newest = found_by_first(options.group, [&]() -> std::string {
    lock.emplace(folder);
    if (options.resume && !checkpoints_of(folder).empty()) return Checkpoint::open(folder).path().string();
    require_no_run(folder);
    return "";
  });
  if (!newest.empty()) {
    resumed.emplace(fs::path(newest));
    require_same_run(*resumed, config);
    const bool given_another = !config.train.from.empty() && config.train.from != resumed->config().train.from;
    if (given_another && !options.quiet && options.group.first())
      fmt::print(stderr, "lapse: note: train.from has no effect: {} goes on from its own checkpoint\n",
                 folder.string());
    config.train.from = resumed->config().train.from;
  } else {
    require_new_run(config);
    if (options.resume && !options.quiet && options.group.first())
      fmt::print(stderr, "no run in {} yet: a new one begins\n", folder.string());
    if (!config.train.from.empty()) tuned = open_together(options.group, config.train.from);
  }
  auto problem = open_problem(config, resumed ? &*resumed : tuned ? &*tuned : nullptr);
  require_memory(estimate_memory(config, *problem, options.group),
                 usable_memory(find_device(config.train.device), options.group.neighbours()));
  Run run(config, options.group, std::move(problem), resumed ? &*resumed : nullptr, tuned ? &*tuned : nullptr);
  resumed.reset(), tuned.reset();  // whole files, no longer needed
  return run.run(folder, options.quiet || !options.group.first());
}

}  // namespace lapse
