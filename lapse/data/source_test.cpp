// Figures of a text, and the bytes that its tokens stand for.
#include "lapse/data/source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "lapse/core/testing.h"

namespace lapse {
namespace {

const std::string kText = " The caf\xC3\xA9  opens\tat nine\n\nThe  end ";

DataConfig config_of(const std::string& unit) {
  DataConfig config;
  config.unit = unit;
  return config;
}

TEST(TextBytes, OfEveryUnitAddUpToTheText) {
  for (const char* unit : {"byte", "character", "word"}) {
    const auto vocabulary = Vocabulary::build(config_of(unit), kText);
    std::vector<TextBytes> bytes;
    const auto ids = vocabulary.encode(kText, &bytes);
    Tokens tokens(vocabulary.size());
    tokens.append(ids, bytes);
    int64_t sum = 0;
    for (int64_t i = 0; i < tokens.size(); ++i) sum += tokens.text_bytes(i).all;
    EXPECT_EQ(sum, std::ssize(kText)) << unit;
  }
}

TEST(TextBytes, OfWordsIncludeTheSpaceBefore) {
  const auto vocabulary = Vocabulary::build(config_of("word"), kText);
  std::vector<TextBytes> bytes;
  vocabulary.encode("a  bc \n\td ", &bytes);
  EXPECT_THAT(bytes, testing::ElementsAre(TextBytes{1, 1}, TextBytes{4, 4}, TextBytes{2}, TextBytes{3, 2}));
  // The last with the white space that ends the text. Words that kText lacks are unknown, that white space is not.
}

// Else a text of spaces would cost nothing.
TEST(TextBytes, OfWhiteSpaceBetweenWordsAreUnknownButOne) {
  const auto vocabulary = Vocabulary::build(config_of("word"), "a b\n<eos>");
  std::vector<TextBytes> bytes;
  vocabulary.encode("a   b \r\n a\n\nb\t<eos>   ", &bytes);
  EXPECT_THAT(bytes, testing::ElementsAre(TextBytes{1}, TextBytes{4, 2}, TextBytes{3, 1}, TextBytes{2}, TextBytes{1},
                                          TextBytes{1}, TextBytes{1}, TextBytes{9, 2}));
}

TEST(TextBytes, OfWhatTheVocabularyLacksAreUnknown) {
  DataConfig config = config_of("word");
  config.max_vocabulary = 3;
  std::vector<TextBytes> bytes;
  Vocabulary::build(config, "a a bc").encode("a bcd <unk> a", &bytes);  // what the text itself calls unknown is known
  EXPECT_THAT(bytes, testing::ElementsAre(TextBytes{1}, TextBytes{4, 4}, TextBytes{6}, TextBytes{2}));
  bytes.clear();
  Vocabulary::build(config_of("character"), "ab").encode("a\xC3\xA9\xEF\xBF\xBD", &bytes);
  EXPECT_THAT(bytes, testing::ElementsAre(TextBytes{1}, TextBytes{2, 2}, TextBytes{3}));
}

TEST(TextSource, CountsUnknownBytesAtEightBits) {
  const auto vocabulary = Vocabulary::build(config_of("word"), kText);
  const TextSource source(config_of("word"), vocabulary, "test", Tokens({1, 2, 3}, vocabulary.size()));
  const auto figures = source.figures({.nats = 70, .scored = 20, .bytes = {100, 10}});
  EXPECT_DOUBLE_EQ(figures.back().value, (70 / std::log(2) + 80) / 100);
}

// Whatever their number: a long word, and a long run of spaces.
TEST(TextBytes, AreCountedWithTheirOwnToken) {
  Tokens tokens(10);
  tokens.append({1, 2, 3}, {{3}, {600, 600}, {1}});
  tokens.append({4, 5, 6, 7}, {{1}, {254, 20}, {255, 3}, {1000000}});
  std::vector<TextBytes> bytes;
  for (int64_t i = 0; i < tokens.size(); ++i) bytes.push_back(tokens.text_bytes(i));
  EXPECT_THAT(bytes, testing::ElementsAre(TextBytes{3}, TextBytes{600, 600}, TextBytes{1}, TextBytes{1},
                                          TextBytes{254, 20}, TextBytes{255, 3}, TextBytes{1000000}));
  EXPECT_EQ(tokens.slice(1, 3).text_bytes(0), (TextBytes{600, 600}));
}

TEST(TextSource, ReportsBitsPerByteForEveryUnit) {
  const Score score{.nats = 70, .scored = 20, .bytes = {100}};
  const double bpb = 0.7 / std::log(2);
  for (const auto& [unit, tag, value] :
       {std::tuple("byte", "bpb", bpb), {"character", "bpc", 3.5 / std::log(2)}, {"word", "ppl", std::exp(3.5)}}) {
    const auto vocabulary = Vocabulary::build(config_of(unit), kText);
    const TextSource source(config_of(unit), vocabulary, "test", Tokens({1, 2, 3}, vocabulary.size()));
    const auto figures = source.figures(score);
    EXPECT_EQ(figures[0].tag, tag);
    EXPECT_DOUBLE_EQ(figures[0].value, value);
    EXPECT_EQ(figures.back().tag, "bpb");
    EXPECT_DOUBLE_EQ(figures.back().value, bpb);
    EXPECT_EQ(figures.size(), unit == std::string("byte") ? 1u : 2u);
  }
}

TEST(TextSource, CountsTheBytesThatABlockPredicts) {
  const auto vocabulary = Vocabulary::build(config_of("word"), kText);
  std::vector<TextBytes> bytes;
  const auto ids = vocabulary.encode(kText, &bytes);
  Tokens tokens(vocabulary.size());
  tokens.append(ids, bytes);
  TextSource source(config_of("word"), vocabulary, "test", std::move(tokens));
  EXPECT_TRUE(source.has("test"));
  EXPECT_FALSE(source.has("train"));
  const auto blocks = source.evaluation("test", 1, 3, false);
  TextBytes predicted;
  for (TokenBlock block; blocks->next(block); predicted += block.bytes) EXPECT_FALSE(block.answers);
  EXPECT_EQ(predicted.all, std::ssize(kText) - bytes[0].all);  // the first token is not predicted
}

// In windows every token is predicted, and its own bytes are counted, not those of the token before.
TEST(TextSource, CountsTheBytesThatAWindowPredicts) {
  DataConfig config = config_of("word");
  config.windows = true;
  const auto vocabulary = Vocabulary::build(config, kText);
  std::vector<TextBytes> bytes;
  const auto ids = vocabulary.encode(kText, &bytes);
  Tokens tokens(vocabulary.size());
  tokens.append(ids, bytes);
  TextSource source(config, vocabulary, "test", std::move(tokens));
  const auto windows = source.evaluation("test", 1, 3, false);
  size_t next = 0;
  for (TokenBlock window; windows->next(window); next += window.length) {
    TextBytes expected;
    for (int64_t i = 0; i < window.length; ++i) expected += bytes[next + i];
    EXPECT_EQ(window.bytes, expected) << "window from token " << next;
  }
  EXPECT_EQ(next, ids.size());
}

TEST(TextSource, ReadsAsManyStreamsAsAreTwoBlocksLong) {
  const auto vocabulary = Vocabulary::build(config_of("byte"), kText);
  const TextSource source(config_of("byte"), vocabulary, "test", Tokens(std::vector<int32_t>(100, 1), 256));
  EXPECT_EQ(source.streams("test", 10, 16), 5);
  EXPECT_EQ(source.streams("test", 10, 3), 3);   // no more than in training
  EXPECT_EQ(source.streams("test", 51, 16), 1);  // too short for two blocks: one stream all the same
  EXPECT_EQ(source.streams("valid", 10, 16), 1);
}

TEST(Labels, StandAtEveryPeriodsEnd) {
  std::vector<int32_t> ids(40);
  for (int32_t i = 0; i < 40; ++i) ids[i] = i;
  const Tokens tokens(ids, 40);
  const Labels labels{Tokens({3, 0, 1, 4, 2, 0, 1, 1, 1, 2}, 5), 4};
  EvaluationStreams streams(tokens, 2, 6, false, &labels);
  int64_t seen = 0;
  for (TokenBlock block; streams.next(block);)
    for (size_t i = 0; i < block.input.size(); ++i, ++seen) {
      const int64_t place = block.input[i], label = labels.values[place / 4];
      EXPECT_EQ(block.target[i], place % 4 == 3 && label != 0 ? label : kUnscored) << place;
    }
  EXPECT_EQ(seen, 2 * 20);
  TrainingStreams training(tokens, 2, 6, Random(1, "text"), &labels);
  const TokenBlock block = training.next();
  for (size_t i = 0; i < block.input.size(); ++i) EXPECT_EQ(block.target[i], labels.at(block.input[i]));
  EXPECT_EQ(block.bytes.all, 0);
}

}  // namespace
}  // namespace lapse
