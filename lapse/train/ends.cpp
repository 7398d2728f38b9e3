#include "lapse/train/ends.h"

#include <algorithm>

namespace lapse {

ModelEnds ends_of(const Config& config, const Vocabulary& vocabulary) {
  if (!config.environment()) return token_ends(vocabulary.size(), vocabulary.outputs());
  const EnvironmentShape shape = config.environment()->shape();
  return agent_ends(shape.bits(), std::ssize(shape.actions));
}

Vocabulary vocabulary_of(const EnvironmentShape& shape) {
  std::vector<std::string> words = shape.words;
  for (auto& word : words) std::ranges::replace(word, ' ', '_');  // tokens are without white space
  return Vocabulary::of_task(std::move(words), /*has_bos=*/false, std::ssize(shape.actions));
}

}  // namespace lapse
