// A sequence: n A's (n uniform in 1 ... most) at a random place among `gap` B's, the query, n A's, the end. So the A's
// lie behind the query by a gap that is uniform in 0 ... `gap`. Scored: the A's after the query, and the end. Sequences
// follow each other without end; memory is carried.
#include "lapse/tasks/long_copy.h"

#include <fmt/format.h>

#include "lapse/core/error.h"

namespace lapse {
namespace {

enum Token : int64_t { kA, kB, kQuery, kEnd };

struct Rules {
  int64_t gap, most;
};

/// One stream of sequences. Any place in it is reached without drawing the tokens before it.
class LongCopyStream {
 public:
  LongCopyStream(const Rules& rules, Random random) : rules_(rules), random_(std::move(random)) { begin(); }

  void skip(int64_t tokens) {
    for (at_ += tokens; at_ >= size_; begin()) at_ -= size_;
  }
  int64_t sequence() const { return sequence_; }  ///< which one the next token belongs to, from 0
  /// The next token and its target.
  std::pair<int64_t, int64_t> next() {
    const int64_t input = token(at_), target = at_ >= query_ && at_ + 1 < size_ ? token(at_ + 1) : kUnscored;
    skip(1);
    return {input, target};
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
  Random random_;
  int64_t sequence_ = -1, at_ = 0, n_ = 0, first_ = 0, query_ = 0, size_ = 0;
};

/// Streams of their own seeds, read in parallel.
class Streams {
 public:
  Streams(const Rules& rules, int64_t batch, Random random) {
    for (int64_t b = 0; b < batch; ++b) streams_.emplace_back(rules, Random(random.next(), "long_copy"));
  }
  void skip(int64_t tokens) {
    for (auto& stream : streams_) stream.skip(tokens);
  }
  /// `sequences`: what is after so many of each stream is not scored; 0: no limit.
  TokenBlock next(int64_t length, int64_t sequences) {
    TokenBlock block{.batch = std::ssize(streams_), .length = length, .answers = true};
    for (auto& stream : streams_)
      for (int64_t i = 0; i < length; ++i) {
        const bool scored = sequences == 0 || stream.sequence() < sequences;
        const auto [input, target] = stream.next();
        block.input.push_back(input), block.target.push_back(scored ? target : kUnscored);
        block.asked.push_back(block.target.back() != kUnscored);  // an answer that is broken off is not counted
      }
    return block;
  }

 private:
  std::vector<LongCopyStream> streams_;
};

class Training : public TrainingBlocks {
 public:
  Training(const Rules& rules, int64_t batch, int64_t block, Random random)
      : rules_(rules), batch_(batch), block_(block), random_(std::move(random)), streams_(rules, batch, random_) {}

  TokenBlock next() override {
    TokenBlock block = streams_.next(block_, 0);
    block.restart = position_ == 0;
    position_ += block_;
    return block;
  }
  State state() const override { return {position_, 0, position_ == 0, 0}; }
  void set_state(const State& state) override {
    if (state.position < 0 || state.position % block_ != 0)
      fail(fmt::format("cannot resume at token {} of the streams with block = {}", state.position, block_));
    position_ = state.position;
    streams_ = Streams(rules_, batch_, random_);
    streams_.skip(position_);
  }

 private:
  Rules rules_;
  int64_t batch_, block_;
  Random random_;
  Streams streams_;
  int64_t position_ = 0;
};

/// `sequences` of each stream. They differ in length: streams that end earlier read on, not scored.
class Evaluation : public EvaluationBlocks {
 public:
  Evaluation(const Rules& rules, int64_t sequences, int64_t batch, int64_t block, Random random)
      : sequences_(sequences), block_(block), streams_(rules, batch, std::move(random)) {
    const int64_t longest = rules.gap + 2 * rules.most + 2;
    blocks_ = (sequences * longest + block - 1) / block;  // the last token of a sequence is not scored
  }
  bool next(TokenBlock& block) override {
    if (done_ == blocks_) return false;
    block = streams_.next(block_, sequences_);
    block.restart = done_++ == 0;
    return true;
  }
  int64_t blocks() const override { return blocks_; }

 private:
  int64_t sequences_, block_;
  Streams streams_;
  int64_t blocks_, done_ = 0;
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
    return std::make_unique<Training>(rules_, batch, block, std::move(random));
  }
  std::unique_ptr<EvaluationBlocks> evaluation(const std::string& part, int64_t batch, int64_t block, bool) override {
    return std::make_unique<Evaluation>(rules_, (count(part) + batch - 1) / batch, batch, block, random_of(part));
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
