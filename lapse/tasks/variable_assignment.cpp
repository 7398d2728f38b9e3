// BOS, `repetitions` pairs "X=" and a value, then "X=?" for a variable that was assigned. Scored: the value after that.
#include "lapse/tasks/variable_assignment.h"

#include <fmt/format.h>

#include "lapse/core/error.h"
#include "lapse/tasks/sequences.h"

namespace lapse {
namespace {

// Ids: values 0 ... V - 1, then "X=" of each variable, then "X=?" of each.
class VariableAssignment : public SequenceTask {
 public:
  std::string name() const override { return "variable_assignment"; }

  Fields fields() override {
    Fields all = {
        field("variables", variables_, "how many there are").in(1, 26),
        field("values", values_, "how many values a variable may have").in(1, 100000),
        field("repetitions", repetitions_, "assignments before the question").in(1, 100000),
    };
    for (Field& shared : SequenceTask::fields()) all.push_back(std::move(shared));
    return all;
  }
  Fields reading_fields() override {
    Fields all = TaskOptions::reading_fields();
    all.push_back(field("ood_values", ood_values_,
                        "out of distribution: all values of the test set are among so many of them, the same in all "
                        "its sequences; 0: all")
                      .in(0, static_cast<double>(values_)));
    return all;
  }
  int64_t window() const override { return 2 * repetitions_ + 2; }

  std::vector<std::string> tokens() const override {
    std::vector<std::string> all;
    for (int64_t value = 0; value < values_; ++value) all.push_back(std::to_string(value));
    for (const char* sign : {"=", "=?"})
      for (int64_t variable = 0; variable < variables_; ++variable)
        all.push_back(std::string(1, static_cast<char>('Z' + 1 - variables_ + variable)) + sign);
    return all;
  }

  Sequence draw(Random& random) const override {
    return draw_among(random, [this](Random& r) { return static_cast<int64_t>(r.below(values_)); });
  }

  DrawSequence drawer(Random& random) const override {
    if (ood_values_ == 0) return SequenceTask::drawer(random);
    std::vector<int64_t> chosen;
    std::vector<bool> taken(values_);
    while (std::ssize(chosen) < ood_values_)
      if (const auto value = static_cast<int64_t>(random.below(values_)); !taken[value]) {
        taken[value] = true;
        chosen.push_back(value);
      }
    return [this, chosen](Random& r) {
      return draw_among(r, [&](Random& inner) { return chosen[inner.below(chosen.size())]; });
    };
  }

 private:
  template <class Value>
  Sequence draw_among(Random& random, Value draw_value) const {
    Sequence sequence;
    std::vector<int64_t> last(variables_, kUnscored), assigned;
    sequence.input.push_back(values_ + 2 * variables_);  // BOS
    for (int64_t i = 0; i < repetitions_; ++i) {
      const auto variable = static_cast<int64_t>(random.below(variables_));
      if (last[variable] == kUnscored) assigned.push_back(variable);
      last[variable] = draw_value(random);
      sequence.input.push_back(values_ + variable);
      sequence.input.push_back(last[variable]);
    }
    const int64_t asked = assigned[random.below(assigned.size())];
    sequence.input.push_back(values_ + variables_ + asked);
    sequence.target.assign(sequence.input.size(), kUnscored);
    sequence.target.back() = last[asked];
    return sequence;
  }

  int64_t variables_ = 3, values_ = 1000, repetitions_ = 128;
  int64_t ood_values_ = 0;
};

}  // namespace

std::unique_ptr<TaskOptions> variable_assignment_options() { return std::make_unique<VariableAssignment>(); }

}  // namespace lapse
