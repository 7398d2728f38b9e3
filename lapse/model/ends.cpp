#include "lapse/model/ends.h"

#include <algorithm>

#include "lapse/core/error.h"
#include "lapse/model/adaptive_input.h"
#include "lapse/model/adaptive_softmax.h"

namespace lapse {
namespace {

template <class Entry>
const Entry& find(const std::vector<Entry>& table, const std::string& option, const std::string& name) {
  const auto found = std::ranges::find(table, name, &Entry::name);
  if (found == table.end()) fail(option + " = \"" + name + "\" is unknown");
  return *found;
}

std::unique_ptr<Output> plain_output(const ModelConfig& config, int64_t outputs, const Input&, Random& random) {
  return softmax_output(config, outputs, random);
}

}  // namespace

const std::vector<InputEntry>& input_table() {
  static const std::vector<InputEntry> table = {
      {"tokens", "an embedding of each", token_input},
      {"adaptive", "one with fewer features for rarer words, section [adaptive]", adaptive_input, "adaptive"},
  };
  return table;
}

const std::vector<OutputEntry>& output_table() {
  static const std::vector<OutputEntry> table = {
      {"softmax", "over all that can be predicted", plain_output},
      {"tied", "the same, by the input's embedding scaled by 1/sqrt(width)", tied_output},
      {"adaptive", "frequent words at once, rarer ones by clusters, section [adaptive]", adaptive_softmax, "adaptive"},
  };
  return table;
}

const std::vector<EndSection>& end_sections() {
  static const std::vector<EndSection> sections = {
      {"adaptive", "words in bands by frequency, for model.input and model.output = \"adaptive\"",
       [](ModelConfig& config) { return config.adaptive.fields(); },
       [](const ModelConfig& config) {
         return config.adaptive.cutoffs.empty() ? std::string() : std::string("adaptive.cutoffs");
       }},
  };
  return sections;
}

bool uses_section(const ModelConfig& config, const std::string& section) {
  return find(input_table(), "model.input", config.input).section == section ||
         find(output_table(), "model.output", config.output).section == section;
}

ModelEnds token_ends(int64_t vocabulary, int64_t outputs) {
  const int64_t kinds = outputs == 0 ? vocabulary : outputs;
  return {[=](const ModelConfig& config, Random& random) {
            return find(input_table(), "model.input", config.input).make(config, vocabulary, random);
          },
          [=](const ModelConfig& config, const Input& input, Random& random) {
            return find(output_table(), "model.output", config.output).make(config, kinds, input, random);
          }};
}

// The last output is the value.
ModelEnds agent_ends(int64_t bits, int64_t actions) {
  return {[=](const ModelConfig& config, Random& random) { return bag_input(config, bits, random); },
          [=](const ModelConfig& config, const Input&, Random& random) {
            return softmax_output(config, actions + 1, random);
          }};
}

}  // namespace lapse
