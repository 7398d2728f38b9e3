#include "lapse/core/base64.h"

#include <gtest/gtest.h>

#include "lapse/core/error.h"
#include "lapse/core/random.h"

namespace lapse {
namespace {

TEST(Base64, OfTheStandardsExamples) {
  const std::pair<const char*, const char*> examples[] = {{"", ""},
                                                          {"f", "Zg=="},
                                                          {"fo", "Zm8="},
                                                          {"foo", "Zm9v"},
                                                          {"foob", "Zm9vYg=="},
                                                          {"fooba", "Zm9vYmE="},
                                                          {"foobar", "Zm9vYmFy"}};
  for (const auto& [bytes, text] : examples) {
    EXPECT_EQ(to_base64(bytes), text);
    EXPECT_EQ(from_base64(text), bytes);
  }
}

TEST(Base64, GivesBackAnyBytes) {
  Random random(1, "bytes");
  for (size_t size = 0; size < 200; ++size) {
    std::string bytes;
    for (size_t i = 0; i < size; ++i) bytes += static_cast<char>(random.below(256));
    EXPECT_EQ(from_base64(to_base64(bytes)), bytes);
  }
}

TEST(Base64, RefusesWhatItIsNot) {
  for (const char* text : {"Zg=", "Z", "Zg==Zg==", "Z===", "====", "Zm9*", "Zm=v", "Zm 9", "Zh==", "Zm9="})
    EXPECT_THROW(from_base64(text), Error) << text;
}

}  // namespace
}  // namespace lapse
