#include "lapse/serve/text.h"

#include <fmt/format.h>

#include <algorithm>

#include "lapse/core/error.h"
#include "lapse/core/json.h"
#include "lapse/data/utf8.h"

namespace lapse {
namespace {
constexpr int64_t kMostWaiting = int64_t{1} << 22;  // tokens that were given and are yet to be read
}

struct WatchedText::Saved : State {
  std::vector<Lane::State> lanes;
  Decoder decoder;
  int64_t time;
};

WatchedText::WatchedText(const std::vector<std::shared_ptr<const Opened>>& opened, std::vector<LaneSettings> settings,
                         const SamplingOptions& sampling, uint64_t seed)
    : lanes_(opened.begin(), opened.end()),
      settings_(std::move(settings)),
      sampling_(sampling),
      random_(seed, "sampling") {}

int64_t WatchedText::context() const {
  int64_t least = 0;
  for (const auto& lane : lanes_)
    if (const int64_t one = lane.model().context(); one > 0) least = least == 0 ? one : std::min(least, one);
  return least;
}

void WatchedText::begin_anew() {
  if (end() == 0 && vocabulary().bos() >= 0) tokens_.push_back(vocabulary().bos());
}

void WatchedText::add(const std::string& text) {
  if (vocabulary().unit().utf8) require_utf8(text, "the text", kOtherUnits);
  const auto tokens = vocabulary().encode(text);
  if (tokens.empty()) fail("the text has no token; give at least one character or word");
  add(tokens);
}

void WatchedText::add(const std::vector<int32_t>& tokens) {
  for (const int32_t token : tokens)
    if (token < 0 || token >= vocabulary().size())
      fail(fmt::format("there is no token {}; the vocabulary has {}", token, vocabulary().size()));
  if (const int64_t waiting = end() - time_; waiting + std::ssize(tokens) > kMostWaiting)
    fail(fmt::format("{} tokens wait to be read, and no more than {} may; let some be read first", waiting,
                     kMostWaiting));
  begin_anew();
  if (context() > 0 && end() + std::ssize(tokens) > context())
    fail(fmt::format(
        "the model reads windows of {} tokens, of which {} are used: {} more {} not fit; undo, or begin anew",
        context(), end(), tokens.size(), tokens.size() == 1 ? "does" : "do"));
  tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
}

std::string WatchedText::stuck() const {
  if (context() > 0 && time_ >= context()) return fmt::format("the model's window of {} tokens is full", context());
  return "";
}

/// A token that was read.
struct WatchedText::Step {
  int64_t t, ms;
  int32_t id;
  std::string text;
  bool bos, written;
  std::vector<double> bits;                     ///< of each lane
  std::vector<std::vector<LayerChange>> lanes;  ///< of each lane's layers

  std::string json() const {
    const std::string shown = to_text(text);
    std::string event = fmt::format(R"({{"t":{},"ms":{},"id":{},"text":{}{}{},"bits":[)", t, ms, id, shown,
                                    bos ? R"(,"bos":true)" : "", written ? R"(,"written":true)" : "");
    for (const double x : bits) {
      if (event.back() != '[') event += ',';
      write_number(event, x);
    }
    return with_lanes(event + "]}", lanes);
  }
};

// A text that begins with nothing given begins as `lapse generate` does: with a line end.
std::function<std::string()> WatchedText::step() {
  if (end() == 0) begin_anew();
  if (end() == 0) add("\n");
  const bool written = !given();
  if (written) tokens_.push_back(static_cast<int32_t>(sample(lanes_[0].state().logits, sampling_, random_)));
  const int32_t token = tokens_[time_ - begin_];
  const bool bos = token == vocabulary().bos();
  Step step{time_, now_ms(), token, bos ? "" : decoder_.add(vocabulary().decode(token)), bos, written, {}, {}};
  for (auto& lane : lanes_) {
    step.bits.push_back(lane.bits(token));
    lane.read(token);
    step.lanes.push_back(lane.take_changes());
  }
  ++time_;
  return [step = std::move(step)] { return step.json(); };
}

std::shared_ptr<const Subject::State> WatchedText::save() const {
  auto saved = std::make_shared<Saved>();
  for (const auto& lane : lanes_) saved->lanes.push_back(lane.state());
  saved->decoder = decoder_, saved->time = time_;
  return saved;
}

// The draws go on: what is written after an undo is another continuation.
void WatchedText::restore(const State& state) {
  const auto& saved = dynamic_cast<const Saved&>(state);
  for (size_t i = 0; i < lanes_.size(); ++i) lanes_[i].restore(saved.lanes[i]);
  decoder_ = saved.decoder, time_ = saved.time;
}

void WatchedText::forget_before(int64_t time) {
  const int64_t count = std::clamp<int64_t>(time - begin_, 0, std::min(time_ - begin_, std::ssize(tokens_)));
  tokens_.erase(tokens_.begin(), tokens_.begin() + count);
  begin_ += count;
}

std::vector<int32_t> WatchedText::newest(int64_t most) const {
  const int64_t count = std::min(most, time_ - begin_), from = time_ - begin_ - count;
  std::vector<int32_t> tokens(tokens_.begin() + from, tokens_.begin() + from + count);
  // Windows begin with BOS, also one of which the beginning is left out.
  if (!tokens.empty() && vocabulary().bos() >= 0) tokens[0] = vocabulary().bos();
  return tokens;
}

std::unique_ptr<WatchedText> WatchedText::with(const std::vector<std::shared_ptr<const Opened>>& opened,
                                               std::vector<LaneSettings> settings, int64_t most) const {
  auto other = std::make_unique<WatchedText>(opened, std::move(settings), sampling_, 0);
  other->random_ = random_;
  if (most == 0) return other;
  const auto read = newest(most);
  other->tokens_.assign(read.begin(), read.end());
  other->tokens_.insert(other->tokens_.end(), tokens_.begin() + (time_ - begin_), tokens_.end());
  return other;
}

Json WatchedText::describe() const {
  Json lanes = Json::array();
  for (size_t i = 0; i < lanes_.size(); ++i)
    lanes.push_back(lane_json(lanes_[i].opened(), settings_[i], lanes_[i].state().stream));
  return {{"kind", "text"},
          {"unit", vocabulary().unit().name},
          {"context", context()},
          {"bos", vocabulary().bos() >= 0},
          {"lanes", std::move(lanes)}};
}

Json WatchedText::told() const {
  Json all = Json::array();
  for (const auto& lane : lanes_) all.push_back(told_json(lane.state().stream, lane.layers()));
  return all;
}

Json WatchedText::row(int64_t time, const State& before) {
  const auto& earlier = dynamic_cast<const Saved&>(before);
  const int32_t last = tokens_[time_ - 1 - begin_];
  Json lanes = Json::array();
  for (size_t i = 0; i < lanes_.size(); ++i) {
    Lane again(lanes_[i]);
    again.restore(earlier.lanes[i]);
    for (int64_t t = earlier.time; t + 1 < time_; ++t) again.read(tokens_[t - begin_]);
    lanes.push_back(rows_json(lanes_[i].state().stream, again.reads(last, time), time));
  }
  return {{"t", time}, {"at", time_ - 1}, {"lanes", std::move(lanes)}};
}

}  // namespace lapse
