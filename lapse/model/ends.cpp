#include "lapse/model/ends.h"

namespace lapse {

ModelEnds token_ends(int64_t vocabulary, int64_t outputs) {
  const int64_t kinds = outputs == 0 ? vocabulary : outputs;
  return {[=](const ModelConfig& config, int64_t block, Random& random) {
            return token_input(config, vocabulary, block, random);
          },
          [=](const ModelConfig& config, Random& random) { return softmax_output(config, kinds, random); }, kinds};
}

// The last output is the value.
ModelEnds agent_ends(int64_t bits, int64_t actions) {
  return {[=](const ModelConfig& config, int64_t, Random& random) { return bag_input(config, bits, random); },
          [=](const ModelConfig& config, Random& random) { return softmax_output(config, actions + 1, random); },
          actions + 1};
}

}  // namespace lapse
