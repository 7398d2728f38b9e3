#include "lapse/model/config.h"

#include <fmt/format.h>

#include <algorithm>

#include "lapse/core/error.h"
#include "lapse/model/ends.h"
#include "lapse/nn/positions.h"

namespace lapse {
namespace {

template <class Entry>
std::vector<std::string> names_of(const std::vector<Entry>& table) {
  std::vector<std::string> names;
  for (const Entry& entry : table) names.push_back(entry.name);
  return names;
}

/// "NAME: HELP; NAME: HELP".
template <class Entry>
std::string help_of(const std::vector<Entry>& table) {
  std::string help;
  for (const Entry& entry : table) help += fmt::format("{}{}: {}", help.empty() ? "" : "; ", entry.name, entry.help);
  return help;
}

}  // namespace

Fields ModelConfig::fields(const std::function<bool()>& may_read_self) {
  return {
      field("width", width, "features of a hidden state").in(1, 65536),
      field("layers", layers, "attention and feed-forward pairs").in(1, 1024),
      field("encoder_layers", encoder_layers,
            "above 0 an encoder of so many layers reads a source (data.objective), and every layer of the model reads "
            "what the encoder made of it, by attention of its own; width, heads and the like are the same in both")
          .in(0, 1024),
      field("heads", heads, "attention heads per layer").in(1, 1024),
      field("head_dim", head_dim, "features of a head; 0: width / heads").in(0, 4096),
      field("feed_forward", feed_forward, "hidden features of the feed-forward layer; 0: 8 / 3 of the width")
          .in(0, 1 << 20),
      field("activation", activation,
            "of the feed-forward layer: relu, GPT-2's gelu (by tanh), or silu with a gate (SwiGLU)")
          .one_of({"relu", "gelu", "swiglu"}),
      field("biases", biases, "in the feed-forward and the output layer"),
      field("dropout", dropout, "on attention weights and after relu, in training").in(0, 0.99),
      field("layer_drop", layer_drop, "probability that a training block skips a layer").in(0, 0.99),
      field("embedding_dropout", embedding_dropout, "on what the first layer reads, in training").in(0, 0.99),
      field("residual_dropout", residual_dropout, "on what each sublayer adds, in training").in(0, 0.99),
      field("output_dropout", output_dropout, "on what the output reads of the last layer, in training").in(0, 0.99),
      field("norm", norm, "normalise after each sublayer, or before it").one_of({"post", "pre"}),
      field("norm_kind", norm_kind, "LayerNorm, or RMSNorm").one_of({"layer", "rms"}),
      field("norm_epsilon", norm_epsilon, "added to the variance, or the mean square").in(1e-12, 1e-2),
      field("normed_heads", normed_heads, "queries and keys pass an RMSNorm over a head's features"),
      field("scaled_logits", scaled_logits,
            "attention logits are q.k / sqrt(head_dim); false: q.k, and the queries' initial "
            "weights are 1 / sqrt(head_dim) times as large"),
      field("attend_self", attend_self, "a token also attends to itself, not only to what came before it")
          .used_if(may_read_self),
      field("positions", positions, help_of(position_table())).one_of(names_of(position_table())),
      field("bucket_distance", bucket_distance,
            "of positions = \"buckets\": ages from here on share one bucket; buckets below it get wider with the age")
          .in(17, 65536)
          .used_if([this] { return position_kind(positions).bucketed; }),
      field(
          "initialisation", initialisation,
          "of linear weights: uniform within 1/sqrt(fan-in), Glorot's uniform, or normal with deviation 1/sqrt(fan-in)")
          .one_of({"default", "glorot", "normal"}),
      field("input", input, help_of(input_table())).one_of(names_of(input_table())),
      field("output", output, help_of(output_table())).one_of(names_of(output_table())),
  };
}

int64_t ModelConfig::inner_width() const { return feed_forward > 0 ? feed_forward : 8 * width / 3; }

void ModelConfig::check() const {
  ModelConfig own = *this;
  check_values(own.fields({}), "model");
  if (head_dim == 0 && width % heads != 0)
    fail(fmt::format("model.width = {} is no multiple of model.heads = {}: change one, or set model.head_dim", width,
                     heads));
  if (encoder_layers > 0 && !position_kind(positions).both_ways) {
    const auto other = std::ranges::find_if(position_table(), &PositionKind::both_ways);
    fail(fmt::format(
        "model.encoder_layers needs model.positions = \"{}\": an encoder also reads later tokens, for which other "
        "positions have nothing",
        other->name));
  }
}

ModelShape shape_of(const ModelConfig& config, int64_t block) {
  return {config.layers,
          config.width,
          config.heads,
          config.head_width(),
          block,
          config.attend_self ? 0 : 1,
          config.normed_heads,
          config.scaled_logits,
          config.initialisation};
}

}  // namespace lapse
