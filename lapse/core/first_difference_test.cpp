#include "lapse/core/first_difference.h"

#include <gtest/gtest.h>

namespace lapse {
namespace {

using Pair = std::pair<std::string, std::string>;

TEST(FirstDifference, IsTheFirstLineThatIsNotTheSame) {
  EXPECT_EQ(first_difference("a = 1\nb = 2\nc = 3\n", "a = 1\nb = 3\nc = 4\n"), Pair("b = 2", "b = 3"));
  EXPECT_EQ(first_difference("a\n\nb", "a\nc\nb"), Pair("", "c"));
}

TEST(FirstDifference, ATextThatEndsHasNothing) {
  EXPECT_EQ(first_difference("a\nb\n", "a\n"), Pair("b", "nothing"));
  EXPECT_EQ(first_difference("", "a"), Pair("nothing", "a"));
}

TEST(FirstDifference, SameTextsHaveNone) {
  EXPECT_EQ(first_difference("", ""), Pair());
  EXPECT_EQ(first_difference("a\nb\n", "a\nb"), Pair());  // a line may end with the text
}

}  // namespace
}  // namespace lapse
