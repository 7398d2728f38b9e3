// How a model's two ends are made: by what it reads, and what is asked of it.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lapse/model/input.h"
#include "lapse/model/output.h"

namespace lapse {

struct ModelEnds {
  std::function<std::unique_ptr<Input>(const ModelConfig& config, Random& random)> input;
  /// Of the model that has this input.
  std::function<std::unique_ptr<Output>(const ModelConfig& config, const Input& input, Random& random)> output;
};

/// model.input: of `vocabulary` kinds of tokens.
struct InputEntry {
  std::string name, help;
  std::unique_ptr<Input> (*make)(const ModelConfig& config, int64_t vocabulary, Random& random);
  std::string section = {};  ///< of its options, one of end_sections(); empty: it has none
};
const std::vector<InputEntry>& input_table();

/// model.output: of `outputs` kinds.
struct OutputEntry {
  std::string name, help;
  std::unique_ptr<Output> (*make)(const ModelConfig& config, int64_t outputs, const Input& input, Random& random);
  std::string section = {};  ///< as InputEntry::section
};
const std::vector<OutputEntry>& output_table();

/// Sections of the configuration with options of inputs and outputs.
struct EndSection {
  std::string name, help;
  Fields (*fields)(ModelConfig& config);
  /// The option, as SECTION.KEY, that has a meaning only where tokens are numbered by how frequent they are; empty:
  /// none has.
  std::string (*needs_ranks)(const ModelConfig& config);
};
const std::vector<EndSection>& end_sections();

/// Whether the model's input or output has its options there.
bool uses_section(const ModelConfig& config, const std::string& section);

/// Tokens of `vocabulary` kinds are read, and one of `outputs` kinds is predicted, as model.input and model.output say;
/// 0: the vocabulary.
ModelEnds token_ends(int64_t vocabulary, int64_t outputs = 0);

/// Observations of `bits` bits are read, and one of `actions` is chosen (model/policy.h).
ModelEnds agent_ends(int64_t bits, int64_t actions);

}  // namespace lapse
