#include "lapse/tasks/task.h"

#include <fmt/format.h>

#include "lapse/core/error.h"

namespace lapse {

Fields TaskOptions::reading_fields() {
  return {field("test_seed", test_seed_, "draw another validation or test set than that of seed 1").in(0, 9e15)};
}

std::vector<Figure> TaskSource::figures(const Score& score) const {
  const auto share = [](int64_t part, int64_t whole) { return static_cast<double>(part) / static_cast<double>(whole); };
  std::vector<Figure> all;
  if (score.scored > 0) all.push_back({"accuracy", "accuracy", share(score.right, score.scored)});
  if (score.answers > 0 && score.answers < score.scored)
    all.push_back({"whole answers right", "answer_accuracy", share(score.right_answers, score.answers)});
  return all;
}

Random TaskSource::random_of(const std::string& part) const {
  if (!has(part)) fail(fmt::format("the task {} has no split '{}'; use valid or test", name_, part));
  return Random(static_cast<uint64_t>(test_seed_), name_ + "." + part);
}

}  // namespace lapse
