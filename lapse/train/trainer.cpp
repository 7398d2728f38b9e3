#include "lapse/train/trainer.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>

#include "lapse/core/error.h"
#include "lapse/core/json.h"
#include "lapse/core/process.h"
#include "lapse/core/progress.h"
#include "lapse/data/source.h"
#include "lapse/train/checkpoint.h"
#include "lapse/train/evaluate.h"
#include "lapse/train/history.h"
#include "lapse/train/metrics.h"
#include "lapse/train/resume.h"
#include "lapse/train/run_lock.h"
#include "lapse/train/threads.h"

namespace lapse {
namespace {

using at::Tensor;
using Clock = std::chrono::steady_clock;

/// What the updates since the last line of metrics sum up to. Losses are part of a checkpoint, times are not.
struct Sums {
  double loss = 0, cost = 0, norm = 0;
  int64_t updates = 0;
  Score score;
  double seconds = 0;
  int64_t timed = 0, tokens = 0;
};

/// The configuration's task, or its text, with the vocabulary of the run to go on from.
std::unique_ptr<Source> open_source(const Config& config, const Checkpoint* from) {
  if (!config.task()) return std::make_unique<TextSource>(config.data, from ? &from->vocabulary() : nullptr);
  auto source = config.task()->open();
  if (from && from->vocabulary().to_json() != source->vocabulary().to_json())
    fail(from->path().string() + ": the run to go on from reads other tokens than data.task = \"" + config.task_name +
         "\"");
  return source;
}

class Run {
 public:
  Run(Config& config, std::unique_ptr<Source> source, const Checkpoint* resumed, const Checkpoint* tuned)
      : config_(config),
        source_(std::move(source)),
        model_(config.model, config.method(), source_->vocabulary().size(), config.train.block,
               Random(config.train.seed, "weights"), source_->vocabulary().outputs()),
        blocks_(source_->training(config.train.batch, config.train.block, Random(config.train.seed, "text"))),
        draws_(config.train.seed, "blocks"),
        optimiser_(config.optimiser, model_.parameters()),
        schedule_(config.optimiser) {
    if (!config.train.from.empty()) schedule_.warmup = 0;
    if (tuned) {
      tuned->load_weights(model_, config.method_name);
      tuned->load_optimiser(optimiser_);
    }
    require_validation_text();
    restart_memory();
    if (resumed) restore(*resumed);
  }

  /// To the end, recorded in `folder`.
  Outcome run(const fs::path& folder, bool quiet) {
    folder_ = folder;
    metrics_.emplace(folder, update_, validation_due_);
    write_file(folder / "config.toml", config_to_toml(config_.sections()));
    const int64_t total = config_.train.updates;
    progress_.emplace("train", "update", total, update_, quiet);
    if (!quiet) describe();
    // So that a run which is killed early has something to go on from, and a full disk is found at once.
    if (update_ == 0 && config_.train.checkpoint_every > 0) save();
    if (validation_due_ && !validate()) return leave();
    while (update_ < total) {
      ++update_;
      const bool log = update_ % config_.train.log_every == 0;
      step(log);
      const int64_t every = config_.train.validate_every;
      validation_due_ = every > 0 && (update_ % every == 0 || update_ == total) && source_->has("valid");
      if (validation_due_ && !interrupted()) validate();
      if (interrupted()) return leave();
      const int64_t save_every = config_.train.checkpoint_every;
      if (update_ == total || (save_every > 0 && update_ % save_every == 0)) save();
      progress_->update(update_, note_ + valid_note_);
    }
    progress_->finish();
    return Outcome::kFinished;
  }

  /// Some updates for their time, of which nothing is recorded: for `seconds`, but at least two.
  void try_out(double seconds, Trial& trial) {
    const auto start = Clock::now();
    const auto since = [](Clock::time_point from) {
      return std::chrono::duration<double>(Clock::now() - from).count();
    };
    std::vector<double> times;
    while (update_ < config_.train.updates && (times.size() < 2 || since(start) < seconds) && !interrupted()) {
      const auto begin = Clock::now();
      ++update_;
      step(/*log=*/false);
      times.push_back(since(begin));
    }
    if (times.empty()) fail("interrupted before the first update");
    trial.updates = std::ssize(times);
    if (times.size() > 1) times.erase(times.begin());  // the first compiles kernels
    std::ranges::nth_element(times, times.begin() + std::ssize(times) / 2);
    trial.seconds_per_update = times.at(times.size() / 2);
    trial.peak_memory = peak_memory();
    double rows = 0;
    for (const auto& part : memory_)
      for (const auto& table : part.layers) rows += static_cast<double>(table.rows());
    trial.rows = rows / static_cast<double>(config_.train.batch * config_.model.layers);
  }

 private:
  void describe() {
    progress_->print(fmt::format("{} parameters, {}; {} threads; run in {}", model_.parameter_count(),
                                 source_->describe(), at::get_num_threads(), folder_.string()));
    if (update_ == 0) return;
    progress_->print(fmt::format("resumed after update {}", update_));
    if (update_ >= config_.train.updates)
      progress_->print(
          fmt::format("the run is complete: train.updates = {}; to go on, give more (--set train.updates=N)",
                      config_.train.updates));
  }

  /// Now rather than hours later.
  void require_validation_text() const {
    if (config_.train.validate_every == 0 || !source_->has("valid")) return;
    try {
      const int64_t most = config_.train.validation_blocks;
      if (!any_scored(*validation_blocks(), most))
        fail(fmt::format("nothing in its first {} blocks is scored; raise train.validation_blocks", most));
    } catch (const Error& error) {
      fail(std::string("the validation part: ") + error.what() + ", or train.validate_every = 0");
    }
  }

  std::unique_ptr<EvaluationBlocks> validation_blocks() const {
    return source_->evaluation("valid", config_.train.batch, config_.train.block, /*drop_partial=*/true);
  }

  void restart_memory() {
    memory_.clear();
    for (int64_t p = 0; p < config_.train.parts; ++p)
      memory_.push_back(model_.begin(config_.train.batch / config_.train.parts, true));
  }

  /// One update: every part of the batch forward and backward, then clip and step.
  void step(bool log) {
    const auto start = Clock::now();
    const TokenBlock block = blocks_->next();
    const Tensor input = block_tensor(block, block.input), target = block_tensor(block, block.target);
    const BlockDraws draws = model_.draw(draws_);
    const int64_t parts = config_.train.parts, size = block.batch / parts;
    BlockOptions options{.training = true, .observe = log, .bfloat16 = config_.train.precision == "bf16"};
    const Tensor lengths = block.lengths.empty() ? Tensor() : at::tensor(block.lengths, at::kLong);
    std::vector<std::vector<LayerReport>> reports;
    double loss_sum = 0, cost_sum = 0;
    Score score{.scored = block.scored(), .bytes = block.bytes};
    optimiser_.zero_gradients();
    for (int64_t p = 0; p < parts; ++p) {
      BlockDraws own = draws;
      own.seed = mix64(draws.seed + p);  // dropout differs between parts, u and layer drop do not
      if (lengths.defined()) options.lengths = lengths.narrow(0, p * size, size);
      const Tensor wanted = target.narrow(0, p * size, size);
      if (source_->counts_answers()) options.places = scored_places(wanted);
      auto y = model_.forward(input.narrow(0, p * size, size), memory_[p], options, own);
      const Tensor loss = mean_loss(y.logits, wanted, options.places, score);
      ((loss + y.cost) / parts).backward();
      loss_sum += loss.item<double>() / parts;
      cost_sum += y.cost.item<double>() / parts;
      if (log) reports.push_back(std::move(y.reports));
    }
    const double norm = optimiser_.clip();
    if (!std::isfinite(loss_sum)) diverged("loss", loss_sum, update_ - 1);
    if (!std::isfinite(norm)) diverged("gradient norm", norm, update_);
    const double rate = learning_rate(schedule_, update_, config_.train.updates);
    optimiser_.step(rate);
    model_.after_update();
    if (blocks_->state().restart) restart_memory();
    score.nats = loss_sum * static_cast<double>(score.scored);
    sums_.loss += loss_sum, sums_.cost += cost_sum, sums_.norm += norm, ++sums_.updates, sums_.score += score;
    sums_.seconds += std::chrono::duration<double>(Clock::now() - start).count(), ++sums_.timed;
    sums_.tokens += std::ssize(block.input);
    if (log) record(rate, summarise(reports));
    const auto figures = source_->figures(score);
    note_ = figures.empty() ? "nothing scored" : fmt::format("{:.3f} {}", figures[0].value, figures[0].tag);
  }

  /// Over one part of a block. `score`: of the whole block; counts what was right.
  Tensor mean_loss(const Tensor& logits, const Tensor& target, const Tensor& places, Score& score) const {
    if (!source_->counts_answers()) return at::cross_entropy_loss(logits.flatten(0, 1), target.flatten());
    const auto positions = score_positions(logits, target, places);
    score.right += positions.right.sum().item<int64_t>();
    const double share = static_cast<double>(score.scored) / static_cast<double>(config_.train.parts);
    return positions.loss / (share + 1e-6);
  }

  /// `bad`: the first update whose weights are suspect; a checkpoint from before it is good.
  [[noreturn]] void diverged(const char* what, double value, int64_t bad) const {
    auto files = checkpoints_of(folder_);
    std::erase_if(files, [&](const fs::path& file) { return file >= checkpoint_path(folder_, bad); });
    fail(fmt::format(
        "update {}: the {} is {}; {}. Lower optimiser.rate, lengthen optimiser.warmup or set optimiser.clip", update_,
        what, value,
        files.empty() ? "there is no checkpoint from before it" : "the last good checkpoint is " + files[0].string()));
  }

  void record(double rate, const Json& layers) {
    const auto n = static_cast<double>(sums_.updates);
    const double seconds = sums_.seconds / static_cast<double>(sums_.timed);
    Json line = {{"loss", sums_.loss / n}};
    for (const auto& figure : source_->figures(sums_.score)) line[figure.tag] = figure.value;
    line.update({{"cost", sums_.cost / n},
                 {"rate", rate},
                 {"gradient_norm", sums_.norm / n},
                 {"layers", layers},
                 {"ms_per_update", seconds * 1000},
                 {"tokens_per_second", static_cast<double>(sums_.tokens) / sums_.seconds},
                 {"resident_memory", resident_memory()},
                 {"peak_memory", peak_memory()}});
    metrics_->record(update_, "train", line);
    sums_ = {};
  }

  /// False if Ctrl-C came before the end: then nothing is recorded, and a resumed run validates first.
  bool validate() {
    const auto result = evaluate(
        model_, *validation_blocks(),
        {.max_blocks = config_.train.validation_blocks, .counts_answers = source_->counts_answers(), .any_loss = true});
    if (result.stopped) return false;
    if (!std::isfinite(result.nats)) diverged("validation loss", result.nats, update_);
    validation_due_ = false;
    const auto figures = source_->figures(result.score);
    const auto& [name, tag, value] = figures.at(0);
    Json layers = Json::array();
    for (const auto& layer : result.layers) layers.push_back({{"memory_mean", layer.mean}, {"memory_max", layer.max}});
    Json line = {{"loss", result.nats}}, entry = {{"update", update_}, {"loss", result.nats}, {tag, value}};
    for (const auto& figure : figures) line[figure.tag] = figure.value;
    line.update({{"layers", layers}, {"tokens_per_second", static_cast<double>(result.tokens) / result.seconds}});
    metrics_->record(update_, "valid", line);
    history_.push_back(entry);
    valid_note_ = fmt::format("  valid {:.3f}", value);
    progress_->print(fmt::format("update {}: valid {:.4f} {}", update_, value, tag));
    return true;
  }

  fs::path save() {
    const auto position = blocks_->state();
    const Json state = {{"update", update_},
                        {"streams",
                         {{"position", position.position},
                          {"pass", position.pass},
                          {"restart", position.restart},
                          {"random", position.random_counter},
                          {"text", source_->checksum()}}},
                        {"random", draws_.counter()},
                        {"sums",
                         {{"loss", sums_.loss},
                          {"cost", sums_.cost},
                          {"norm", sums_.norm},
                          {"updates", sums_.updates},
                          {"nats", sums_.score.nats},
                          {"scored", sums_.score.scored},
                          {"bytes", sums_.score.bytes.all},
                          {"unknown_bytes", sums_.score.bytes.unknown},
                          {"right", sums_.score.right}}},
                        {"validation_due", validation_due_},
                        {"history", history_}};
    return write_checkpoint(folder_, update_, config_.train.keep, config_, source_->vocabulary(), optimiser_, memory_,
                            state.dump());
  }

  void restore(const Checkpoint& checkpoint) {
    const auto path = checkpoint.file().path().string();
    checkpoint.load_weights(model_, config_.method_name);
    checkpoint.load_optimiser(optimiser_);
    memory_ = checkpoint.memory(model_);
    const Json json = parse_json(checkpoint.state(), path + ", its state");
    const JsonObject state(json, path + ", its state");
    const JsonObject streams = state.object("streams"), sums = state.object("sums");
    if (streams.counter("text") != source_->checksum())
      fail(path + ": the run was trained on another text than this one; was the file changed?");
    const TrainingBlocks::State position{streams.whole("position", 0), streams.whole("pass", 0),
                                         streams.truth("restart"), streams.counter("random")};
    try {
      blocks_->set_state(position);
    } catch (const Error& error) {
      fail(fmt::format("{}: {}", path, error.what()));
    }
    draws_.set_counter(state.counter("random"));
    sums_ = {sums.number("loss"), sums.number("cost"), sums.number("norm"), sums.whole("updates", 0, kMostUpdates)};
    const auto count = [&](const char* key) { return sums.has(key) ? sums.whole(key, 0) : 0; };  // older ones lack some
    sums_.score = {sums.has("nats") ? sums.number("nats") : 0,
                   count("scored"),
                   {count("bytes"), count("unknown_bytes")},
                   count("right")};
    validation_due_ = state.truth("validation_due");
    const RunHistory history = history_of(state);
    update_ = history.update, history_ = history.validations;
  }

  Outcome leave() {
    const auto path = save();
    progress_->print(fmt::format("interrupted: saved update {} to {}", update_, path.string()));
    progress_->finish();
    return Outcome::kInterrupted;
  }

  Config& config_;
  fs::path folder_;
  std::unique_ptr<Source> source_;
  Transformer model_;
  std::unique_ptr<TrainingBlocks> blocks_;
  Random draws_;
  Optimiser optimiser_;
  OptimiserConfig schedule_;         // the configured one, without warm-up in fine-tuning
  std::vector<ModelMemory> memory_;  // one for each part of the batch
  std::optional<Metrics> metrics_;
  std::optional<Progress> progress_;

  int64_t update_ = 0;  // finished updates
  Sums sums_;
  bool validation_due_ = false;
  Json history_ = Json::array();
  std::string note_, valid_note_;
};

}  // namespace

namespace {

MemoryEstimate estimate_memory(const Config& config, const Source& source) {
  return lapse::estimate_memory(config, source.vocabulary().size(), source.vocabulary().outputs());
}

/// How large this process may become.
int64_t memory_of_process() { return resident_memory() + available_memory(); }

}  // namespace

Outcome train(Config& config, const fs::path& folder, const TrainerOptions& options) {
  check_training(config);
  use_threads(config.train.threads);
  const RunLock lock(folder);
  const bool begun = !checkpoints_of(folder).empty();
  if (begun && !options.resume)
    fail(folder.string() + ": there is a run in this folder; --resume continues it, or give another folder");
  if (!begun) require_no_history(folder);
  std::optional<Checkpoint> resumed, tuned;
  if (begun) {
    resumed = Checkpoint::open(folder);
    require_same_run(*resumed, config);
    config.train.from = resumed->config().train.from;
  } else if (!config.train.from.empty()) {
    tuned = Checkpoint::open(config.train.from);
  }
  auto source = open_source(config, resumed ? &*resumed : tuned ? &*tuned : nullptr);
  require_memory(estimate_memory(config, *source), memory_of_process());
  Run run(config, std::move(source), resumed ? &*resumed : nullptr, tuned ? &*tuned : nullptr);
  resumed.reset(), tuned.reset();  // whole files, no longer needed
  return run.run(folder, options.quiet);
}

Trial try_out(Config& config, double seconds) {
  check_training(config);
  use_threads(config.train.threads);
  auto source = open_source(config, nullptr);
  Trial trial{.source = source->describe(),
              .memory = estimate_memory(config, *source),
              .available_memory = memory_of_process()};
  if (trial.memory.least > static_cast<double>(trial.available_memory)) return trial;
  Run(config, std::move(source), nullptr, nullptr).try_out(seconds, trial);
  return trial;
}

}  // namespace lapse
