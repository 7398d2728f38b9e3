#include "lapse/data/document.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <set>

#include "lapse/core/testing.h"
#include "lapse/data/blocks.h"

namespace lapse {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int32_t kBos = 1000;

/// The text 0, 1, 2, ... in documents of these lengths.
Tokens counting(const std::vector<int64_t>& lengths) {
  Tokens tokens(kBos + 1);
  int32_t next = 0;
  for (const int64_t length : lengths) {
    std::vector<int32_t> ids(length);
    std::iota(ids.begin(), ids.end(), next);
    next += static_cast<int32_t>(length);
    tokens.append(ids);
    tokens.end_document();
  }
  return tokens;
}

std::vector<int64_t> many_lengths() {
  std::vector<int64_t> lengths;
  for (int64_t i = 0; i < 30; ++i) lengths.push_back(1 + i * i % 23);
  return lengths;
}

/// Checks every row against its document: BOS and its first tokens, then padding that is not scored. Returns where the
/// documents begin.
std::vector<int64_t> check(const TokenBlock& block, const Tokens& tokens, int64_t most) {
  EXPECT_TRUE(block.restart);
  EXPECT_EQ(std::ssize(block.lengths), block.batch);
  EXPECT_EQ(block.length, std::ranges::max(block.lengths));
  EXPECT_EQ(block.scored(), block.tokens());
  EXPECT_EQ(block.bytes.all, block.tokens());
  for (int64_t b = 0; b < block.batch; ++b) {
    const int64_t begin = block.starts[b], length = block.lengths[b];
    const auto document = std::ranges::find(tokens.documents(), begin, &Tokens::Document::begin);
    EXPECT_EQ(length, std::min(document->size(), most));
    for (int64_t i = 0; i < block.length; ++i) {
      EXPECT_EQ(block.input[b * block.length + i], i > 0 && i < length ? begin + i - 1 : kBos);
      EXPECT_EQ(block.target[b * block.length + i], i < length ? begin + i : kUnscored);
    }
  }
  return block.starts;
}

TEST(EvaluationDocuments, ReadEachOnce) {
  const Tokens tokens = counting(many_lengths());
  std::vector<int64_t> expected;
  for (const auto& document : tokens.documents()) expected.push_back(document.begin);
  for (const int64_t batch : {1, 4, 30, 100}) {
    EvaluationDocuments documents(tokens, kBos, batch, 9);
    std::vector<int64_t> begins;
    int64_t blocks = 0;
    for (TokenBlock block; documents.next(block); ++blocks)
      for (const int64_t begin : check(block, tokens, 9)) begins.push_back(begin);
    EXPECT_EQ(begins, expected);
    EXPECT_EQ(documents.blocks(), blocks);
  }
}

TEST(TrainingDocuments, ReadEachOnceInAPassAndAnotherOrderInTheNext) {
  const Tokens tokens = counting(many_lengths());
  TrainingDocuments documents(tokens, kBos, 3, 9, Random(1, "text"));
  std::set<std::vector<int64_t>> orders;
  for (int pass = 0; pass < 5; ++pass) {
    std::vector<int64_t> order;
    for (int i = 0; i < 10; ++i)
      for (const int64_t begin : check(documents.next(), tokens, 9)) order.push_back(begin);
    EXPECT_EQ(std::set(order.begin(), order.end()).size(), 30u);
    orders.insert(order);
    EXPECT_EQ(documents.state().pass, pass);
  }
  EXPECT_EQ(orders.size(), 5u);
}

TEST(TrainingDocuments, ABatchMayHoldSeveralPasses) {
  const Tokens tokens = counting({3, 1, 2});
  TrainingDocuments documents(tokens, kBos, 8, 9, Random(1, "text"));
  std::map<int64_t, int> count;
  for (int i = 0; i < 3; ++i)
    for (const int64_t begin : check(documents.next(), tokens, 9)) ++count[begin];
  for (const auto& [begin, times] : count) EXPECT_EQ(times, 8) << begin;
}

TEST(TrainingDocuments, ResumeExactly) {
  const Tokens tokens = counting(many_lengths());
  for (int done = 0; done < 25; ++done) {
    TrainingDocuments whole(tokens, kBos, 4, 9, Random(7, "text")), resumed(tokens, kBos, 4, 9, Random(7, "text"));
    for (int i = 0; i < done; ++i) whole.next();
    resumed.set_state(whole.state());
    for (int i = 0; i < 20; ++i) {
      EXPECT_EQ(whole.next().starts, resumed.next().starts);
      EXPECT_EQ(whole.state().pass, resumed.state().pass);
    }
  }
  TrainingDocuments other(tokens, kBos, 4, 9, Random(7, "text"));
  for (const int64_t position : {-1, 31})
    EXPECT_THAT(error_of([&] { other.set_state({position, 0, true, 0}); }), HasSubstr("another text"));
}

TEST(Tokens, KnowTheirDocuments) {
  Tokens tokens = counting({3, 0, 5, 1, 4});
  const auto sizes = [](const Tokens& some) {
    std::vector<int64_t> all;
    for (const auto& document : some.documents()) all.push_back(document.size());
    return all;
  };
  EXPECT_THAT(sizes(tokens), ElementsAre(3, 5, 1, 4));
  const Tokens part = tokens.slice(2, 10);
  EXPECT_EQ(part.size(), 8);
  EXPECT_EQ(part[0], 2);
  EXPECT_THAT(sizes(part), ElementsAre(1, 5, 1, 1));
  EXPECT_EQ(part.documents()[1].begin, 1);
  const auto before = tokens.checksum();
  EXPECT_EQ(before, counting({3, 5, 1, 4}).checksum());
  EXPECT_NE(before, counting({3, 5, 2, 3}).checksum());
  tokens.keep_documents(4);
  EXPECT_THAT(sizes(tokens), ElementsAre(5, 4));
  EXPECT_EQ(tokens.size(), 13);
  EXPECT_NE(tokens.checksum(), before);
}

TEST(Blocks, AreDocumentsWhereTheTextHasSome) {
  DataConfig config;
  config.documents = "lines";
  const auto vocabulary = Vocabulary::build(config, "text");
  EXPECT_EQ(vocabulary.size(), 257);
  const Tokens tokens = counting({3, 5});
  EXPECT_EQ(training_blocks(config, vocabulary, tokens, 2, 10, Random(1, "text"))->next().tokens(), 8);
  TokenBlock block;
  EXPECT_TRUE(evaluation_blocks(config, vocabulary, tokens, 2, 4, true)->next(block));
  EXPECT_EQ(block.tokens(), 7);
}

}  // namespace
}  // namespace lapse
