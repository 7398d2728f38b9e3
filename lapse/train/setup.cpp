#include "lapse/train/setup.h"

#include <utility>

#include "lapse/core/error.h"
#include "lapse/train/device.h"

namespace lapse {
namespace {

LearnerOptions learner_options(const Config& config) {
  LearnerOptions options{.batch = config.train.batch,
                         .parts = config.train.parts,
                         .updates = config.train.updates,
                         .seed = static_cast<uint64_t>(config.train.seed),
                         .bfloat16 = config.train.precision == "bf16",
                         .optimiser = config.optimiser};
  if (!config.train.from.empty()) options.optimiser.warmup = 0;
  return options;
}

}  // namespace

/// The configuration's task, or its text, with the vocabulary of the run to go on from.
std::unique_ptr<Source> open_source(const Config& config, const Checkpoint* from) {
  if (!config.task()) return std::make_unique<TextSource>(config.data, from ? &from->vocabulary() : nullptr);
  auto source = config.task()->open();
  if (from && from->vocabulary().to_json() != source->vocabulary().to_json())
    fail(from->path().string() + ": the run to go on from reads other tokens than data.task = \"" + config.task_name +
         "\"");
  return source;
}

std::unique_ptr<Learner> make_learner(const Config& config, const Source& source) {
  const Vocabulary& vocabulary = source.vocabulary();
  Transformer model(config.model, config.method(), vocabulary.size(), config.train.block,
                    Random(config.train.seed, "weights"), vocabulary.outputs());
  model.to(find_device(config.train.device));
  auto objective = config.task() ? scored_task() : language_modelling();
  return std::make_unique<Learner>(std::move(model), std::move(objective), learner_options(config));
}

MemoryEstimate estimate_memory(const Config& config, const Source& source) {
  return estimate_memory(config, source.vocabulary().size(), source.vocabulary().outputs());
}

}  // namespace lapse
