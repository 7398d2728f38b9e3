// A text that one or several lanes read, token by token; the first lane goes on with it.
#pragma once

#include <deque>
#include <optional>

#include "lapse/read/sampler.h"
#include "lapse/serve/events.h"
#include "lapse/serve/lane.h"
#include "lapse/serve/subject.h"

namespace lapse {

class WatchedText : public Subject {
 public:
  WatchedText(const std::vector<std::shared_ptr<const Opened>>& opened, std::vector<LaneSettings> settings,
              const SamplingOptions& sampling, uint64_t seed);

  /// Tokens to be read after those that are there. Error if the text has none, or the vocabulary cannot write it or has
  /// no such tokens.
  void add(const std::string& text);
  void add(const std::vector<int32_t>& tokens);
  void set_sampling(const SamplingOptions& sampling) { sampling_ = sampling; }
  const SamplingOptions& sampling() const { return sampling_; }
  /// The same text, read by other lanes from the start, or from as many tokens back as are kept, at most `most`; 0: no
  /// text, nor what was given and is not read yet.
  std::unique_ptr<WatchedText> with(const std::vector<std::shared_ptr<const Opened>>& opened,
                                    std::vector<LaneSettings> settings, int64_t most) const;
  /// The newest tokens that were read, at most so many.
  std::vector<int32_t> newest(int64_t most) const;
  const std::vector<Lane>& lanes() const { return lanes_; }
  const std::vector<LaneSettings>& settings() const { return settings_; }

  int64_t time() const override { return time_; }
  std::string stuck() const override;
  bool given() const override { return time_ < end(); }
  std::function<std::string()> step() override;
  std::shared_ptr<const State> save() const override;
  void restore(const State& state) override;
  void forget_after(int64_t time) override { tokens_.resize(time - begin_); }
  void forget_before(int64_t time) override;
  Json describe() const override;
  Json told() const override;
  Json row(int64_t time, const State& before) override;

 private:
  struct Saved;
  struct Step;

  const Vocabulary& vocabulary() const { return lanes_[0].opened().reader.vocabulary(); }
  int64_t end() const { return begin_ + std::ssize(tokens_); }
  void begin_anew();
  int64_t context() const;  // the shortest window of all lanes; 0: none has one

  std::vector<Lane> lanes_;
  std::vector<LaneSettings> settings_;
  SamplingOptions sampling_;
  Random random_;
  std::deque<int32_t> tokens_;  // from time begin_ on; those after time_ are yet to be read
  int64_t begin_ = 0, time_ = 0;
  Decoder decoder_;
};

}  // namespace lapse
