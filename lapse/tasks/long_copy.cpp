// A sequence: n A's (n uniform in 1 ... most) at a random place among `gap` B's, the query, n A's, the end. So the A's
// lie behind the query by a gap that is uniform in 0 ... `gap`. Scored: the A's after the query, and the end. Sequences
// follow each other without end; memory is carried.
#include "lapse/tasks/long_copy.h"

#include <fmt/format.h>

#include "lapse/tasks/streams.h"

namespace lapse {
namespace {

enum Token : int64_t { kA, kB, kQuery, kEnd };

struct Rules {
  int64_t gap, most;
};

/// One stream of sequences. Any place in it is reached without drawing the tokens before it.
class LongCopyStream : public TaskStream {
 public:
  /// `scored`: what comes after so many sequences is not scored; 0: no limit.
  LongCopyStream(const Rules& rules, int64_t scored, Random random)
      : rules_(rules), scored_(scored), random_(std::move(random)) {
    begin();
  }

  void skip(int64_t tokens) override {
    for (at_ += tokens; at_ >= size_; begin()) at_ -= size_;
  }
  void next(TokenBlock& block) override {
    for (int64_t i = 0; i < block.length; ++i, skip(1)) {
      const bool asked = at_ >= query_ && at_ + 1 < size_ && (scored_ == 0 || sequence_ < scored_);
      block.input.push_back(token(at_)), block.target.push_back(asked ? token(at_ + 1) : kUnscored);
      block.asked.push_back(asked);  // an answer that is broken off is not counted
    }
  }

 private:
  void begin() {
    ++sequence_;
    n_ = 1 + static_cast<int64_t>(random_.below(rules_.most));
    first_ = static_cast<int64_t>(random_.below(rules_.gap + 1));
    query_ = rules_.gap + n_;
    size_ = query_ + n_ + 2;
  }
  int64_t token(int64_t at) const {
    if (at == query_) return kQuery;
    if (at == size_ - 1) return kEnd;
    return at > query_ || (at >= first_ && at < first_ + n_) ? kA : kB;
  }

  Rules rules_;
  int64_t scored_;
  Random random_;
  int64_t sequence_ = -1, at_ = 0, n_ = 0, first_ = 0, query_ = 0, size_ = 0;
};

class LongCopySource : public TaskSource {
 public:
  LongCopySource(const std::string& name, int64_t test_seed, const Rules& rules, int64_t valid, int64_t test)
      : TaskSource(name, Vocabulary::of_task({"A", "B", "?", "."}, /*has_bos=*/false), test_seed),
        rules_(rules),
        valid_(valid),
        test_(test) {}

  std::string describe() const override {
    return fmt::format("task {}: streams of fresh sequences with gaps of up to {}, {} to validate", name(), rules_.gap,
                       valid_);
  }
  std::unique_ptr<TrainingBlocks> training(int64_t batch, int64_t block, Random random) override {
    return std::make_unique<TrainingTaskStreams>(drawer(0), name(), batch, block, std::move(random));
  }
  /// So many sequences of each stream. They differ in length: streams that end earlier read on, not scored.
  std::unique_ptr<EvaluationBlocks> evaluation(const std::string& part, int64_t batch, int64_t block, bool) override {
    const int64_t sequences = (count(part) + batch - 1) / batch, longest = rules_.gap + 2 * rules_.most + 2;
    return std::make_unique<EvaluationTaskStreams>(TaskStreams(drawer(sequences), name(), batch, random_of(part)),
                                                   sequences * longest, block);
  }
  int64_t streams(const std::string& part, int64_t, int64_t most) const override { return std::min(count(part), most); }
  /// Whole answers first: A's alone are easy.
  std::vector<Figure> figures(const Score& score) const override {
    auto all = TaskSource::figures(score);
    if (all.size() == 2) std::swap(all[0], all[1]);
    return all;
  }

 private:
  int64_t count(const std::string& part) const { return part == "valid" ? valid_ : test_; }
  DrawStream drawer(int64_t scored) const {
    return [rules = rules_, scored](Random random) {
      return std::make_unique<LongCopyStream>(rules, scored, std::move(random));
    };
  }

  Rules rules_;
  int64_t valid_, test_;
};

class LongCopy : public TaskOptions {
 public:
  std::string name() const override { return "long_copy"; }
  Fields fields() override {
    return {
        field("gap", rules_.gap, "T: the A's are at most so far behind the query").in(1, 1 << 24).unit("tokens"),
        field("most", rules_.most, "1 ... so many A's, uniformly").in(1, 1000),
        field("valid_sequences", valid_, "size of the validation set, rounded up to a multiple of the streams")
            .in(1, 1e9)
            .unit("sequences"),
        field("test_sequences", test_, "size of the test set, rounded likewise").in(1, 1e9).unit("sequences"),
    };
  }
  int64_t window() const override { return 0; }
  std::unique_ptr<Source> open() const override {
    return std::make_unique<LongCopySource>(name(), test_seed_, rules_, valid_, test_);
  }

 private:
  Rules rules_{1000, 4};
  int64_t valid_ = 256, test_ = 1024;
};

}  // namespace

std::unique_ptr<TaskOptions> long_copy_options() { return std::make_unique<LongCopy>(); }

}  // namespace lapse
