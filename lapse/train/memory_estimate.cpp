#include "lapse/train/memory_estimate.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>

#include "lapse/core/error.h"
#include "lapse/core/progress.h"
#include "lapse/data/spans.h"
#include "lapse/model/transformer.h"
#include "lapse/nn/initialise.h"
#include "lapse/train/agent.h"
#include "lapse/train/optimiser.h"
#include "lapse/train/shares.h"

namespace lapse {
namespace {

constexpr double kFloat = 4;        // bytes
constexpr double kProcess = 190e6;  // the program, libtorch and its buffers

/// What an update needs beside the weights, with `old` rows of earlier blocks for each stream in each layer:
///
///   tables     batch · old · width, for each layer, twice: as they were and with the block's rows
///   rows       (old + K) · (width + 2 heads · head_dim): inputs, keys and values of the rows that a part reads
///   block      K · (2 heads · head_dim + 4 width + inner): query and attention's result, sums and norms, feed-forward;
///              2 heads · head_dim more where queries and keys are normed
///   gradients  of one layer's rows
///   encoder    of train.block tokens: 6 heads · head_dim + 4 width + inner for each of its layers, and 2 heads ·
///              head_dim for each decoder layer. K is then what the decoder reads, the spans that were cut out
///   outputs    K · Output::computed: logits, whose place their gradients take (ops/dense/cross_entropy.h); on a GPU
///              also probabilities and gradients. A task that reads no text scores so few targets
///
/// Attention keeps nothing of queries × rows.
double update_bytes(const Config& config, const Group& group, double outputs, double old) {
  const ModelConfig& m = config.model;
  const auto width = static_cast<double>(m.width), source = static_cast<double>(config.train.block);
  const double block = config.data.corrupts_spans()
                           ? static_cast<double>(count_spans_of_input(config.train.block, config.data).target())
                           : source;
  const auto layers = static_cast<double>(m.layers), all = static_cast<double>(config.train.batch);
  const double batch = all / static_cast<double>(group.size());
  const double heads = static_cast<double>(m.heads) * static_cast<double>(m.head_width());
  const double gates = m.activation == "relu" ? 1 : m.activation == "gelu" ? 2 : 3;
  const double part = all / static_cast<double>(parts_of(config.train, group));
  const double tables = 2 * layers * batch * old * width;
  const double rows = part * (old + block) * (width + 2 * heads);
  const double inner = gates * static_cast<double>(m.inner_width());
  const double own = part * block * ((m.normed_heads ? 4 : 2) * heads + 4 * width + inner);
  const double encoded = part * source *
                         (static_cast<double>(m.encoder_layers) * (6 * heads + 4 * width + inner) +
                          (m.encoder_layers > 0 ? 2 * layers * heads : 0));
  const bool few = config.task() && !config.task()->scores_all();
  const double scored = few ? 0 : part * block * outputs;
  const double copies = config.train.device == "cpu" ? 1 : 3;
  return kFloat * (tables + layers * (rows + own) + rows + encoded + copies * scored);
}

/// What agents need beside an update: what they see of a block, for all at once, and the rows that those who act at the
/// moment read.
double acting(const Config& config, const Group& group, double old) {
  const EnvironmentOptions* environment = config.environment();
  if (environment == nullptr) return 0;
  const ModelConfig& m = config.model;
  const auto block = static_cast<double>(config.train.block);
  const double batch = static_cast<double>(config.train.batch) / static_cast<double>(group.size());
  const double seen = batch * (block + 1) * static_cast<double>(environment->shape().most_words) * sizeof(int64_t);
  const int64_t parts = parts_of(config.train, group), each = config.train.batch / parts;
  const auto groups = static_cast<double>(acting_groups(each, parts));
  const double tasks = groups * static_cast<double>(parts) / static_cast<double>(group.size());
  const double at_once =
      std::min(tasks, static_cast<double>(at::get_num_threads())) * static_cast<double>(each) / groups;
  const double row = static_cast<double>(2 * m.heads * m.head_width() * m.layers) * kFloat;
  return seen + at_once * (old + block + 1) * row;
}

double outputs_of(const ModelConfig& model, const ModelEnds& ends) {
  const ShapesOnly guard;
  Random none(0, "weights");
  const auto input = ends.input(model, none);
  return ends.output(model, *input, none)->computed();
}

}  // namespace

MemoryEstimate estimate_memory(const Config& config, const ModelEnds& ends, const Group& group) {
  const ModelShape shape = shape_of(config.model, config.train.block);
  MemoryEstimate estimate;
  estimate.parameters = count_parameters(config.model, config.method(), ends, config.train.block);
  estimate.weights =
      kFloat * static_cast<double>(estimate.parameters) * (2 + static_cast<double>(slots_of(config.optimiser).size()));
  const auto first = static_cast<double>(config.method().initial_rows(shape));
  const auto longest = config.windows() ? 0.0 : static_cast<double>(config.method().longest(shape));
  const double fixed = kProcess + estimate.weights;
  const double outputs = outputs_of(config.model, ends);
  const auto needed = [&](double old) {
    return fixed + update_bytes(config, group, outputs, old) + acting(config, group, old);
  };
  estimate.least = needed(first);
  estimate.most = needed(std::max(first, longest));
  return estimate;
}

double acting_bytes(const Config& config, const MethodOptions& method, int64_t streams) {
  const ModelConfig& m = config.model;
  const int64_t longest = method.longest(shape_of(m, config.train.block));
  const int64_t rows = std::min(longest + 1, config.environment()->shape().most_steps);
  const int64_t keys_values = 2 * m.heads * m.head_width(), activations = 4 * m.width + m.inner_width();
  return kFloat * static_cast<double>(streams) * static_cast<double>(m.layers * rows * keys_values + activations);
}

void require_memory(const MemoryEstimate& estimate, int64_t available) {
  if (estimate.least <= static_cast<double>(available)) return;
  const bool weights = estimate.weights > estimate.least / 2;
  fail(
      fmt::format("this run needs at least {} of memory ({} for {} parameters, their gradients and the optimiser's "
                  "moments), and {} "
                  "are free here; lower {}",
                  byte_size(estimate.least), byte_size(estimate.weights), estimate.parameters,
                  byte_size(static_cast<double>(available)),
                  weights ? "model.width, model.layers or model.feed_forward"
                          : "train.batch or train.block, or raise train.parts"));
}

}  // namespace lapse
