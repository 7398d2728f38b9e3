#include "lapse/data/spans.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "lapse/core/testing.h"
#include "lapse/data/blocks.h"
#include "lapse/data/source.h"
#include "lapse/data/subword.h"

namespace lapse {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

DataConfig corruption(int64_t sentinels = 100) {
  DataConfig config;
  config.objective = "span_corruption", config.sentinels = sentinels;
  return config;
}

const Vocabulary& bytes() {
  static const Vocabulary vocabulary = Vocabulary::build(corruption(), "any text");
  return vocabulary;
}

/// A text in which a token tells its place, and the bytes that it stands for.
Tokens counting(int64_t size) {
  std::vector<int32_t> ids(size);
  for (int64_t i = 0; i < size; ++i) ids[i] = static_cast<int32_t>(2 + i % 256);
  return Tokens(ids, bytes().size());
}

/// The tokens that input and target were made of: each sentinel of the input gives way to its span.
std::vector<int64_t> restored(const std::vector<int64_t>& input, const std::vector<int64_t>& target) {
  std::map<int64_t, std::vector<int64_t>> spans;
  const auto is_sentinel = [](int64_t id) { return id > bytes().sentinel(100); };
  int64_t open = -1;
  for (const int64_t id : target)
    if (is_sentinel(id))
      open = id;
    else if (id != bytes().eos())
      spans[open].push_back(id);
  std::vector<int64_t> tokens;
  for (const int64_t id : input)
    if (is_sentinel(id))
      tokens.insert(tokens.end(), spans.at(id).begin(), spans.at(id).end());
    else if (id != bytes().eos())
      tokens.push_back(id);
  return tokens;
}

TEST(Spans, AreAsLongAsT5s) {
  const SpanCounts counts = count_spans_of_input(512, corruption());
  EXPECT_EQ(counts.tokens, 568);
  EXPECT_EQ(counts.noise, 85);
  EXPECT_EQ(counts.spans, 28);
  EXPECT_EQ(counts.input(), 512);
  EXPECT_EQ(counts.target(), 114);
  for (int64_t n = 2; n < 3000; ++n) {
    const SpanCounts some = count_spans(n, corruption());
    EXPECT_GE(some.spans, 1);
    EXPECT_LE(some.spans, some.noise);
    EXPECT_LT(some.noise, n);
  }
}

TEST(Spans, GiveTheTextBack) {
  const Tokens text = counting(5000);
  Random random(1, "text");
  for (int i = 0; i < 200; ++i) {
    const SpanCounts counts = count_spans(2 + static_cast<int64_t>(random.below(400)), corruption());
    const auto first = static_cast<int64_t>(random.below(4000));
    const Corrupted one = corrupt(text, first, counts, bytes(), random);
    ASSERT_EQ(std::ssize(one.input), counts.input());
    ASSERT_EQ(std::ssize(one.target), counts.target());
    EXPECT_EQ(one.input.back(), bytes().eos());
    EXPECT_EQ(one.target.back(), bytes().eos());
    EXPECT_EQ(one.target.front(), bytes().size() - 1);
    EXPECT_EQ(one.bytes.all, counts.noise);
    const auto tokens = restored(one.input, one.target);
    ASSERT_EQ(std::ssize(tokens), counts.tokens);
    for (int64_t j = 0; j < counts.tokens; ++j) ASSERT_EQ(tokens[j], text[first + j]);
    int64_t next = bytes().size() - 1;  // sentinels descend, once each
    for (const int64_t id : one.input)
      if (id > bytes().sentinel(100)) {
        EXPECT_EQ(id, next--);
      }
  }
}

// 4 noise tokens in 2 spans: 1 + 3, 2 + 2, 3 + 1, a third each.
TEST(Spans, AreUniformAmongTheCuts) {
  const Tokens text = counting(100);
  Random random(2, "text");
  std::map<int64_t, int> first;
  constexpr int kDraws = 6000;
  for (int i = 0; i < kDraws; ++i) {
    const Corrupted one = corrupt(text, 0, {20, 4, 2}, bytes(), random);
    const auto second = std::find(one.target.begin(), one.target.end(), bytes().sentinel(1));
    ++first[second - one.target.begin() - 1];
  }
  EXPECT_EQ(first.size(), 3u);
  for (const auto& [length, count] : first) EXPECT_NEAR(count, kDraws / 3, 150) << length;  // 4 standard errors
}

TEST(TrainingSpans, GoOnFromTheirState) {
  const Tokens text = counting(2000);
  TrainingSpans blocks(text, bytes(), corruption(), 3, 64, Random(1, "text"));
  blocks.next();
  const auto state = blocks.state();
  const TokenBlock next = blocks.next();
  TrainingSpans again(text, bytes(), corruption(), 3, 64, Random(1, "text"));
  again.set_state(state);
  const TokenBlock same = again.next();
  EXPECT_EQ(next.input, same.input);
  EXPECT_EQ(next.source, same.source);
  EXPECT_TRUE(next.restart);
  EXPECT_EQ(std::ssize(next.source), 3 * 64);
  EXPECT_EQ(next.scored(), 3 * next.length);
  for (int64_t b = 0; b < 3; ++b) {  // the decoder reads the target one later
    EXPECT_EQ(next.input[b * next.length], 0);
    for (int64_t i = 1; i < next.length; ++i)
      EXPECT_EQ(next.input[b * next.length + i], next.target[b * next.length + i - 1]);
  }
}

TEST(EvaluationSpans, CoverTheTextInTheSameWayEachTime) {
  const Tokens text = counting(1000);
  std::vector<std::vector<int64_t>> targets;
  for (const int64_t batch : {1, 4}) {
    EvaluationSpans blocks(text, bytes(), corruption(), batch, 64, /*drop_partial=*/false);
    TokenBlock block;
    std::vector<int64_t> all, target;
    int64_t count = 0;
    for (; blocks.next(block); ++count) {
      const int64_t S = std::ssize(block.source) / block.batch;
      for (int64_t b = 0; b < block.batch; ++b) {
        const auto part = [&](const std::vector<int64_t>& x, int64_t n) {
          return std::vector<int64_t>(x.begin() + b * n, x.begin() + (b + 1) * n);
        };
        const auto tokens = restored(part(block.source, S), part(block.target, block.length));
        all.insert(all.end(), tokens.begin(), tokens.end());
      }
      target.insert(target.end(), block.target.begin(), block.target.end());
    }
    EXPECT_EQ(count, blocks.blocks());
    ASSERT_EQ(std::ssize(all), 1000);
    for (int64_t i = 0; i < 1000; ++i) ASSERT_EQ(all[i], text[i]);
    targets.push_back(target);
  }
  EXPECT_EQ(targets[0], targets[1]);
  const int64_t stretch = count_spans_of_input(64, corruption()).tokens;
  EXPECT_EQ(EvaluationSpans(text, bytes(), corruption(), 4, 64, true).blocks(), (1000 / stretch + 3) / 4);
}

TEST(Spans, ThatDoNotFitAreRefused) {
  const Tokens text = counting(100);
  const auto make = [&](const DataConfig& config, int64_t input) {
    return training_blocks(config, bytes(), text, 1, input, Random(1, "text"));
  };
  EXPECT_THAT(error_of([&] { make(corruption(), 2); }), HasSubstr("at least 3 tokens"));
  EXPECT_THAT(error_of([&] { make(corruption(), 200); }), HasSubstr("the text has 100 tokens"));
  EXPECT_THAT(error_of([&] { make(corruption(2), 64); }), HasSubstr("data.sentinels = 2"));
}

TEST(SpanVocabulary, HasPaddingEndAndSentinels) {
  const Vocabulary& v = bytes();
  EXPECT_EQ(v.size(), 2 + 256 + 100);
  EXPECT_EQ(v.bos(), 0);
  EXPECT_EQ(v.eos(), 1);
  EXPECT_EQ(v.sentinel(0), 357);
  EXPECT_THAT(v.encode("ab"), ElementsAre(99, 100));
  EXPECT_EQ(v.decode(std::vector<int32_t>{0, 99, 100, 357, 356, 1}), "ab<extra_id_0><extra_id_1>");
  EXPECT_EQ(Vocabulary::from_json(v.to_json()).to_json(), v.to_json());
  EXPECT_EQ(Vocabulary::from_json(v.to_json()).size(), v.size());
  EXPECT_THAT(error_of([] { Vocabulary::from_json(R"({"unit": "byte", "sentinels": 0})"); }), HasSubstr("sentinels"));
  EXPECT_THAT(error_of([] { Vocabulary::from_json(R"({"unit": "byte", "bos": true, "sentinels": 3})"); }),
              HasSubstr("windows"));
}

TEST(Gaps, AreReadAndFilled) {
  const std::string text = "The <extra_id_0> sat on <extra_id_1>.";
  const auto ids = encode_gaps(bytes(), text);
  EXPECT_EQ(bytes().decode(ids), text);
  EXPECT_EQ(ids.back(), 1);
  EXPECT_EQ(ids[4], 357);
  std::vector<int32_t> target = {bytes().sentinel(0)};
  for (const int32_t id : bytes().encode("cat")) target.push_back(id);
  target.push_back(bytes().sentinel(1));
  for (const int32_t id : bytes().encode("a mat")) target.push_back(id);
  target.insert(target.end(), {bytes().sentinel(2), 100, 1});
  EXPECT_THAT(decode_spans(bytes(), target, 2), ElementsAre("cat", "a mat"));
  EXPECT_EQ(fill_gaps(bytes(), text, decode_spans(bytes(), target, 2)), "The cat sat on a mat.");
  EXPECT_EQ(fill_gaps(bytes(), text, {"cat"}), "The cat sat on <extra_id_1>.");
  EXPECT_EQ(fill_gaps(bytes(), text, decode_spans(bytes(), {bytes().sentinel(1)}, 2)), "The <extra_id_0> sat on .");
  EXPECT_THAT(error_of([] { encode_gaps(bytes(), "no gap"); }), HasSubstr("<extra_id_0>"));
  EXPECT_THAT(error_of([] { encode_gaps(bytes(), "<extra_id_1> <extra_id_0>"); }), HasSubstr("in this order"));
  EXPECT_THAT(error_of([] { encode_gaps(bytes(), "<extra_id_0> <extra_id_0>"); }), HasSubstr("each once"));
}

// A decoded word ends with a space.
TEST(Gaps, OfWordsHaveOneSpaceAround) {
  DataConfig config = corruption();
  config.unit = "word";
  const Vocabulary words = Vocabulary::build(config, "the sea a zig the sea a zig\n");
  EXPECT_EQ(fill_gaps(words, "the <extra_id_0> sea <extra_id_1>", {"zig ", "a zig "}), "the zig sea a zig");
  EXPECT_EQ(fill_gaps(words, "<extra_id_0><extra_id_1> sea", {"the ", "zig "}), "the zig sea");
  EXPECT_EQ(fill_gaps(words, "<extra_id_0>sea", {"the "}), "the sea");
  EXPECT_EQ(fill_gaps(words, "the <extra_id_0> sea", {}), "the <extra_id_0> sea");
}

// A subword begins with its space: a span that is cut out takes that along.
TEST(Gaps, OfSubwordsAreReadAsInTraining) {
  std::string text;
  for (int i = 0; i < 200; ++i) text += "the king of the land and the king of the sea " + std::to_string(i) + "\n";
  const TestFolder folder;
  write_file(folder / "pieces.model", train_subwords({text}, {.size = 300}));
  DataConfig config = corruption();
  config.unit = "subword", config.tokenizer = (folder / "pieces.model").string();
  const Vocabulary subwords = Vocabulary::build(config, text);
  const auto ids = encode_gaps(subwords, "the <extra_id_0> of the sea");
  const auto gap = std::ranges::find(ids, subwords.sentinel(0));
  ASSERT_NE(gap, ids.end());
  EXPECT_EQ(std::vector(ids.begin(), gap), subwords.encode("the"));
  EXPECT_EQ(std::vector(gap + 1, ids.end() - 1), subwords.encode(" of the sea"));
  EXPECT_EQ(fill_gaps(subwords, "the <extra_id_0> of the sea", {" king"}), "the king of the sea");
  EXPECT_EQ(fill_gaps(subwords, "the <extra_id_0>", {"king"}), "the king");
  EXPECT_EQ(fill_gaps(subwords, "the <extra_id_0>", {}), "the <extra_id_0>");
  EXPECT_EQ(fill_gaps(subwords, "<extra_id_0><extra_id_1>", {"x ", " y"}), "x  y");
  EXPECT_EQ(fill_gaps(bytes(), "a <extra_id_0>", {" b"}), "a  b");  // a byte's span began after the space
}

TEST(Spans, ReachAcrossDocumentsWithoutTheirMarkers) {
  const TestFolder folder;
  std::string text;
  for (int i = 0; i < 50; ++i) text += "<doc id=" + std::to_string(i) + ">\nnumber " + std::to_string(i) + "\n</doc>\n";
  write_file(folder / "text.txt", text);
  DataConfig config = corruption();
  config.path = (folder / "text.txt").string(), config.documents = "<doc </doc>";
  TextSource source(config, nullptr);
  const Tokens& tokens = source.tokens("train");
  EXPECT_TRUE(tokens.documents().empty());
  std::string read;
  for (int64_t i = 0; i < tokens.size(); ++i) read += source.vocabulary().decode(tokens[i]);
  EXPECT_THAT(read, testing::StartsWith("number 0\nnumber 1\nnumber 2\n"));
  EXPECT_EQ(read.find("doc"), read.npos);
  const TokenBlock block = source.training(2, 40, Random(1, "spans"))->next();
  EXPECT_EQ(block.source.size(), 80u);
}

}  // namespace
}  // namespace lapse
