#include "lapse/data/source.h"

#include <fmt/format.h>

#include <algorithm>
#include <numbers>

#include "lapse/data/blocks.h"

namespace lapse {

Score& Score::operator+=(const Score& other) {
  nats += other.nats, scored += other.scored, bytes += other.bytes;
  right += other.right, answers += other.answers, right_answers += other.right_answers;
  for (const auto& [name, sum] : other.more) more[name] += sum;
  return *this;
}

TextSource::TextSource(const DataConfig& config, const Vocabulary* known) : config_(config) {
  Corpus corpus = load_corpus(config, known);
  vocabulary_ = std::move(corpus.vocabulary);
  parts_.emplace_back("train", std::move(corpus.train));
  parts_.emplace_back("valid", std::move(corpus.valid));
  parts_.emplace_back("test", std::move(corpus.test));
}

TextSource::TextSource(const DataConfig& config, Vocabulary vocabulary, const std::string& part, Tokens tokens)
    : config_(config), vocabulary_(std::move(vocabulary)) {
  parts_.emplace_back(part, std::move(tokens));
}

const Tokens& TextSource::tokens(const std::string& part) const {
  static const Tokens none;
  const auto found = std::ranges::find(parts_, part, [](const auto& named) { return named.first; });
  return found == parts_.end() ? none : found->second;
}

std::string TextSource::describe() const {
  const auto count = [&](const char* part) {
    const auto documents = tokens(part).documents().size();
    return documents > 0 ? fmt::format(" in {} documents", documents) : "";
  };
  return fmt::format("{} tokens of {} kinds{} to train on, {}{} to validate", tokens("train").size(),
                     vocabulary_.size(), count("train"), tokens("valid").size(), count("valid"));
}

std::unique_ptr<TrainingBlocks> TextSource::training(int64_t batch, int64_t block, Random random) {
  return training_blocks(config_, vocabulary_, tokens("train"), batch, block, std::move(random));
}

std::unique_ptr<EvaluationBlocks> TextSource::evaluation(const std::string& part, int64_t batch, int64_t block,
                                                         bool drop_partial) {
  return evaluation_blocks(config_, vocabulary_, tokens(part), batch, block, drop_partial);
}

// As many as in training, but none shorter than two blocks.
int64_t TextSource::streams(const std::string& part, int64_t block, int64_t most) const {
  return std::clamp<int64_t>(tokens(part).size() / (2 * block), 1, most);
}

std::vector<Figure> TextSource::figures(const Score& score) const {
  if (config_.corrupts_spans())
    return {{"nats per target token", "nats_per_target", score.nats / static_cast<double>(score.scored)}};
  // What the vocabulary lacks also costs 8 bits a byte: else a smaller vocabulary would look better.
  const double bits = score.nats / std::numbers::ln2 + 8 * static_cast<double>(score.bytes.unknown);
  std::vector<Figure> all;
  if (vocabulary_.unit().reported)
    all.push_back({vocabulary_.metric_name(), vocabulary_.metric_tag(),
                   vocabulary_.metric(score.nats / static_cast<double>(score.scored))});
  all.push_back({"bits per byte", "bpb", bits / static_cast<double>(score.bytes.all)});
  return all;
}

}  // namespace lapse
