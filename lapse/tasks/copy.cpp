// BOS, a string of 1 ... `longest` letters, a separator, the string, EOS. Scored: what comes after the separator.
#include "lapse/tasks/copy.h"

#include "lapse/tasks/sequences.h"

namespace lapse {
namespace {

// Ids: letters 0 ... A - 1, separator, EOS.
class Copy : public SequenceTask {
 public:
  std::string name() const override { return "copy"; }

  Fields fields() override {
    Fields all = {
        field("longest", longest_, "strings have 1 ... so many letters, uniformly").in(1, 100000).unit("letters"),
        field("alphabet", alphabet_, "kinds of letters").in(1, 26),
    };
    for (Field& shared : SequenceTask::fields()) all.push_back(std::move(shared));
    return all;
  }
  int64_t window() const override { return 2 * longest_ + 2; }  // EOS is predicted, never read

  std::vector<std::string> tokens() const override {
    std::vector<std::string> all;
    for (int64_t i = 0; i < alphabet_; ++i) all.emplace_back(1, static_cast<char>('a' + i));
    all.push_back("|");
    all.push_back("<eos>");
    return all;
  }

  Sequence draw(Random& random) const override {
    std::vector<int64_t> letters(1 + random.below(longest_));
    for (int64_t& letter : letters) letter = static_cast<int64_t>(random.below(alphabet_));
    Sequence sequence;
    sequence.input.push_back(alphabet_ + 2);  // BOS
    sequence.input.insert(sequence.input.end(), letters.begin(), letters.end());
    sequence.target.assign(sequence.input.size(), kUnscored);
    sequence.input.push_back(alphabet_);
    sequence.input.insert(sequence.input.end(), letters.begin(), letters.end());
    sequence.target.insert(sequence.target.end(), letters.begin(), letters.end());
    sequence.target.push_back(alphabet_ + 1);
    return sequence;
  }

 private:
  int64_t longest_ = 24, alphabet_ = 26;
};

}  // namespace

std::unique_ptr<TaskOptions> copy_options() { return std::make_unique<Copy>(); }

}  // namespace lapse
