#include "lapse/data/spans.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "lapse/core/error.h"
#include "lapse/data/utf8.h"

namespace lapse {
namespace {

constexpr int64_t kFewestTokens = 2;  // one that is left, one that is cut out

/// `total` as a sum of `parts` numbers of at least 1, uniformly: the places of parts - 1 cuts among total - 1.
std::vector<int64_t> composition(int64_t total, int64_t parts, Random& random) {
  std::vector<int64_t> lengths = {1};
  int64_t cuts = parts - 1;
  for (int64_t places = total - 1; places > 0; --places) {
    const bool cut = static_cast<int64_t>(random.below(places)) < cuts;
    if (!cut) {
      ++lengths.back();
      continue;
    }
    lengths.push_back(1);
    --cuts;
  }
  return lengths;
}

/// The block of the stretches that begin at `starts`. What the decoder reads is the target one later, after BOS.
TokenBlock block_of(const Tokens& tokens, const std::vector<int64_t>& starts, const SpanCounts& counts,
                    const Vocabulary& vocabulary, Random& random) {
  TokenBlock out{.batch = std::ssize(starts), .length = counts.target(), .restart = true};
  for (const int64_t start : starts) {
    const Corrupted one = corrupt(tokens, start, counts, vocabulary, random);
    out.source.insert(out.source.end(), one.input.begin(), one.input.end());
    out.input.push_back(vocabulary.bos());
    out.input.insert(out.input.end(), one.target.begin(), one.target.end() - 1);
    out.target.insert(out.target.end(), one.target.begin(), one.target.end());
    out.bytes += one.bytes;
  }
  return out;
}

void require_stretch(const Tokens& tokens, int64_t least) {
  if (tokens.size() == 0) fail("this part of the text is empty");
  if (tokens.size() < least)
    fail(fmt::format("the text has {} tokens, but a stretch to corrupt needs {}; use {}more text", tokens.size(), least,
                     least > kFewestTokens ? "a smaller block (train.block), or " : ""));
}

constexpr std::string_view kGapBegin = "<extra_id_";
std::string gap(int64_t span) { return fmt::format("{}{}>", kGapBegin, span); }

/// Visits the texts around the gaps 0, 1, ...: text(TEXT, whether it is the last), then gap(0), and so on; returns how
/// many gaps there are.
template <class Text, class Gap>
int64_t for_each_gap(std::string_view text, Text visit_text, Gap visit_gap) {
  int64_t spans = 0;
  for (size_t at = 0;; ++spans) {
    const std::string sign = gap(spans);
    const size_t end = text.find(sign, at);
    visit_text(text.substr(at, end == text.npos ? end : end - at), end == text.npos);
    if (end == text.npos) return spans;
    visit_gap(spans);
    at = end + sign.size();
  }
}

/// A piece begins with the space before it: the one before a gap is the span's.
bool leaves_space(const Vocabulary& vocabulary, std::string_view part, bool last) {
  return vocabulary.unit().pieces && !last && part.ends_with(' ');
}

}  // namespace

SpanCounts count_spans(int64_t tokens, const DataConfig& config) {
  const auto rounded = [](double x) { return static_cast<int64_t>(std::nearbyint(x)); };
  SpanCounts counts{tokens, rounded(config.noise_density * static_cast<double>(tokens)), 0};
  counts.noise = std::clamp<int64_t>(counts.noise, 1, tokens - 1);
  counts.spans = rounded(static_cast<double>(counts.noise) / config.noise_span);
  counts.spans = std::clamp<int64_t>(counts.spans, 1, std::min(counts.noise, tokens - counts.noise));
  return counts;
}

SpanCounts count_spans_of_input(int64_t input, const DataConfig& config) {
  SpanCounts counts = count_spans(kFewestTokens, config);
  if (counts.input() > input)
    fail(fmt::format("data.objective = \"{}\" needs blocks of at least {} tokens, not {}", config.objective,
                     counts.input(), input));
  for (SpanCounts more = counts; more.input() <= input; more = count_spans(more.tokens + 1, config)) counts = more;
  if (counts.spans > config.sentinels)
    fail(
        fmt::format("{} tokens are corrupted by {} spans, and there are data.sentinels = {}; lower the block, or "
                    "train with more of them",
                    counts.tokens, counts.spans, config.sentinels));
  return counts;
}

Corrupted corrupt(const Tokens& tokens, int64_t first, const SpanCounts& counts, const Vocabulary& vocabulary,
                  Random& random) {
  const auto noise = composition(counts.noise, counts.spans, random);
  const auto left = composition(counts.tokens - counts.noise, counts.spans, random);
  Corrupted result;
  int64_t at = first;
  for (int64_t s = 0; s < counts.spans; ++s) {
    for (int64_t i = 0; i < left[s]; ++i) result.input.push_back(tokens[at++]);
    result.input.push_back(vocabulary.sentinel(s));
    result.target.push_back(vocabulary.sentinel(s));
    for (int64_t i = 0; i < noise[s]; ++i, ++at) {
      result.target.push_back(tokens[at]);
      result.bytes += tokens.text_bytes(at);
    }
  }
  for (auto* all : {&result.input, &result.target}) all->push_back(vocabulary.eos());
  return result;
}

TrainingSpans::TrainingSpans(const Tokens& tokens, const Vocabulary& vocabulary, const DataConfig& config,
                             int64_t batch, int64_t input, Random random)
    : tokens_(tokens),
      vocabulary_(vocabulary),
      batch_(batch),
      counts_(count_spans_of_input(input, config)),
      random_(std::move(random)) {
  require_stretch(tokens, counts_.tokens);
}

TokenBlock TrainingSpans::next() {
  std::vector<int64_t> starts;
  for (int64_t b = 0; b < batch_; ++b)
    starts.push_back(static_cast<int64_t>(random_.below(tokens_.size() - counts_.tokens + 1)));
  return block_of(tokens_, starts, counts_, vocabulary_, random_);
}

TrainingSpans::State TrainingSpans::state() const { return {0, 0, true, random_.counter()}; }

void TrainingSpans::set_state(const State& state) { random_.set_counter(state.random_counter); }

EvaluationSpans::EvaluationSpans(const Tokens& tokens, const Vocabulary& vocabulary, const DataConfig& config,
                                 int64_t batch, int64_t input, bool drop_partial)
    : tokens_(tokens),
      vocabulary_(vocabulary),
      config_(config),
      batch_(batch),
      counts_(count_spans_of_input(input, config)),
      drop_partial_(drop_partial),
      random_(0, "spans") {
  require_stretch(tokens, drop_partial ? counts_.tokens : kFewestTokens);
}

bool EvaluationSpans::next(TokenBlock& block) {
  const int64_t whole = (tokens_.size() - position_) / counts_.tokens;
  const int64_t length = whole > 0 ? counts_.tokens : tokens_.size() - position_;
  if (length < kFewestTokens || (drop_partial_ && whole == 0)) return false;
  std::vector<int64_t> starts;
  for (int64_t b = 0; b < std::clamp<int64_t>(whole, 1, batch_); ++b, position_ += length) starts.push_back(position_);
  block = block_of(tokens_, starts, count_spans(length, config_), vocabulary_, random_);
  return true;
}

int64_t EvaluationSpans::blocks() const {
  const int64_t whole = tokens_.size() / counts_.tokens, rest = tokens_.size() % counts_.tokens;
  return (whole + batch_ - 1) / batch_ + (rest >= kFewestTokens && !drop_partial_ ? 1 : 0);
}

std::vector<int32_t> encode_gaps(const Vocabulary& vocabulary, std::string_view text) {
  std::vector<int32_t> ids;
  const auto add = [&](std::string_view part, bool last) {
    if (part.find(kGapBegin) != part.npos)
      fail(fmt::format("what is to be filled in must be marked {}, {}, ..., each once and in this order", gap(0),
                       gap(1)));
    if (leaves_space(vocabulary, part, last)) part.remove_suffix(1);
    const auto more = vocabulary.encode(part, nullptr, !ids.empty());
    ids.insert(ids.end(), more.begin(), more.end());
  };
  const int64_t spans = for_each_gap(text, add, [&](int64_t span) {
    if (span >= vocabulary.sentinels())
      fail(
          fmt::format("the vocabulary has {} sentinels, and the text more than {} gaps", vocabulary.sentinels(), span));
    ids.push_back(vocabulary.sentinel(span));
  });
  if (spans == 0) fail(fmt::format("nothing in the text is to be filled in: mark a place by {}", gap(0)));
  ids.push_back(vocabulary.eos());
  return ids;
}

Spans decode_spans(const Vocabulary& vocabulary, const std::vector<int32_t>& target, int64_t spans) {
  Spans texts(spans);
  std::string* text = nullptr;
  for (const int32_t id : target) {
    const int64_t span = vocabulary.sentinel(0) - id;  // sentinels descend
    if (span >= 0 && span < vocabulary.sentinels())
      text = span < spans ? &(texts[span] ? *texts[span] : texts[span].emplace()) : nullptr;
    else if (text)
      *text += vocabulary.decode(id);
  }
  return texts;
}

std::string fill_gaps(const Vocabulary& vocabulary, std::string_view text, const Spans& spans) {
  std::string filled;
  bool left_out = false;  // a space that encode_gaps did not read
  bool added = false;     // the one with which a decoded word ends
  for_each_gap(
      text,
      [&](std::string_view part, bool last) {
        left_out = leaves_space(vocabulary, part, last);
        if (added && (part.empty() ? last : kWhiteSpace.find(part[0]) != kWhiteSpace.npos)) filled.pop_back();
        filled += part;
      },
      [&](int64_t span) {
        const bool known = span < std::ssize(spans) && spans[span];
        if (known && left_out && spans[span]->starts_with(' ')) filled.pop_back();
        filled += known ? *spans[span] : gap(span);
        if (vocabulary.unit().normalised && known && filled == *spans[span] && filled.starts_with(' '))
          filled.erase(0, 1);  // the space that every text begins with
        added = known && vocabulary.unit().words && filled.ends_with(' ');
      });
  return filled;
}

}  // namespace lapse
