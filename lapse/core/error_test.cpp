#include "lapse/core/error.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "lapse/core/testing.h"

namespace lapse {
namespace {

TEST(Error, FailThrowsTheMessage) {
  EXPECT_EQ(error_of([] { fail("run.toml:3: no such key"); }), "run.toml:3: no such key");
}

TEST(Error, MessagesStayOneLineWithoutControlCharacters) {
  EXPECT_EQ(error_of([] { fail("a\nb\x1b[31m\tc\x7f é"); }), "a?b?[31m?c? é");
}

TEST(Error, EditDistanceCountsInsertionsDeletionsSubstitutionsAndSwaps) {
  EXPECT_EQ(edit_distance("", ""), 0);
  EXPECT_EQ(edit_distance("", "abc"), 3);
  EXPECT_EQ(edit_distance("abc", ""), 3);
  EXPECT_EQ(edit_distance("rate", "rate"), 0);
  EXPECT_EQ(edit_distance("rate", "raet"), 1);
  EXPECT_EQ(edit_distance("rate", "rates"), 1);
  EXPECT_EQ(edit_distance("rate", "rte"), 1);
  EXPECT_EQ(edit_distance("rate", "rade"), 1);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3);
  EXPECT_EQ(edit_distance("abcd", "badc"), 2);
  EXPECT_EQ(edit_distance("ca", "abc"), 3);  // a swapped pair is not edited again
}

TEST(Error, EditDistanceIsSymmetric) {
  const std::vector<std::string> words = {"", "a", "ab", "ba", "optimiser", "optimzier", "model"};
  for (const auto& a : words) {
    for (const auto& b : words) EXPECT_EQ(edit_distance(a, b), edit_distance(b, a)) << a << " " << b;
  }
}

TEST(Error, DidYouMeanNamesTheNearest) {
  const std::vector<std::string> names = {"rate", "warmup", "clip"};
  EXPECT_EQ(did_you_mean("raet", names), " (did you mean 'rate'?)");
  EXPECT_EQ(did_you_mean("wamrup", names), " (did you mean 'warmup'?)");
  EXPECT_EQ(did_you_mean("warm", names), " (did you mean 'warmup'?)");
  EXPECT_EQ(did_you_mean("warmupped", names), " (did you mean 'warmup'?)");
  EXPECT_EQ(did_you_mean("war", names), "");
  const std::vector<std::string> types = {"float32", "bf16"};
  EXPECT_EQ(did_you_mean("bfloat16", types), " (did you mean 'bf16'?)");  // though `float32` is nearer
  EXPECT_EQ(did_you_mean("float16", types), " (did you mean 'float32'?)");
  const std::vector<std::string> presets = {"local", "paper-portal"};
  EXPECT_EQ(did_you_mean("portal", presets), " (did you mean 'paper-portal'?)");  // though `local` is nearer
}

TEST(Error, DidYouMeanIsSilentWhereNothingIsNear) {
  const std::vector<std::string> names = {"rate", "warmup", "clip"};
  EXPECT_EQ(did_you_mean("vocabulary", names), "");
  EXPECT_EQ(did_you_mean("", names), "");
  EXPECT_EQ(did_you_mean("nope", std::vector<std::string>{"copy"}), "");  // half of the letters differ
  EXPECT_EQ(did_you_mean("rate", std::vector<std::string>{}), "");
}

TEST(Fail, KeepsTheLineAtABearableLength) {
  const std::string line = error_of([] { fail("begin " + std::string(1'000'000, 'x') + " end"); });
  EXPECT_LE(line.size(), 1100u);
  EXPECT_TRUE(line.starts_with("begin xx") && line.ends_with("xx end")) << line;
}

}  // namespace
}  // namespace lapse
