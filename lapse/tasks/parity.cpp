// BOS, then at odd positions (from 1) random bits and at even ones the parity of all random bits so far. Scored: those.
#include "lapse/tasks/parity.h"

#include "lapse/tasks/sequences.h"

namespace lapse {
namespace {

// Ids: the bits 0 and 1.
class Parity : public SequenceTask {
 public:
  std::string name() const override { return "parity"; }

  Fields fields() override {
    Fields all = {field("bits", bits_, "random bits, each followed by a parity").in(1, 1 << 20)};
    for (Field& shared : SequenceTask::fields()) all.push_back(std::move(shared));
    return all;
  }
  int64_t window() const override { return 2 * bits_; }  // the last parity is predicted, never read

  std::vector<std::string> tokens() const override { return {"0", "1"}; }

  Sequence draw(Random& random) const override {
    Sequence sequence{{2}, {kUnscored}};  // BOS
    int64_t parity = 0;
    for (int64_t i = 0; i < bits_; ++i) {
      if (i > 0) sequence.input.push_back(parity), sequence.target.push_back(kUnscored);
      const auto bit = static_cast<int64_t>(random.below(2));
      parity ^= bit;
      sequence.input.push_back(bit), sequence.target.push_back(parity);
    }
    return sequence;
  }

 private:
  int64_t bits_ = 64;
};

}  // namespace

std::unique_ptr<TaskOptions> parity_options() { return std::make_unique<Parity>(); }

}  // namespace lapse
