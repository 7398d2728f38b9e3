#include "lapse/core/gzip.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include "lapse/core/random.h"
#include "lapse/core/testing.h"

namespace lapse {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

std::string gzip(const std::string& text) {
  z_stream stream{};
  EXPECT_EQ(deflateInit2(&stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string packed(deflateBound(&stream, text.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  return packed;
}

std::string noise(size_t size) {
  Random random(1, "gzip");
  std::string text;
  while (text.size() < size) text += static_cast<char>(random.next());
  return text;
}

std::string error_for(const std::string& bytes) {
  return error_of([&] { inflate_gzip(bytes, "corpus.gz"); });
}

TEST(Gzip, IsRecognisedByItsFirstTwoBytes) {
  EXPECT_TRUE(is_gzip(gzip("")));
  EXPECT_TRUE(is_gzip("\x1f\x8b"));
  EXPECT_FALSE(is_gzip("\x1f"));
  EXPECT_FALSE(is_gzip(""));
  EXPECT_FALSE(is_gzip("\x8b\x1f"));
}

TEST(Gzip, RoundTrip) {
  for (const std::string& text :
       {std::string(), std::string("one line\n"), std::string("\0\xff\x1f\x8b", 4), noise(700'000)})
    EXPECT_TRUE(inflate_gzip(gzip(text), "x") == text) << text.size();
}

TEST(Gzip, HighlyCompressibleTextLargerThanTheWorkingPiece) {
  const std::string text(20'000'000, 'a');
  EXPECT_TRUE(inflate_gzip(gzip(text), "x") == text);
}

TEST(Gzip, MembersAreJoined) {
  const std::string big = noise(300'000);
  EXPECT_TRUE(inflate_gzip(gzip("one ") + gzip("") + gzip(big) + gzip(" end"), "x") == "one " + big + " end");
}

TEST(Gzip, ZerosBehindAMemberArePadding) {
  const std::string padded = gzip("one ") + gzip("end") + std::string(700, '\0');
  EXPECT_EQ(inflate_gzip(padded, "x"), "one end");
  EXPECT_THAT(error_for(padded + "x"), HasSubstr("something else follows"));
}

TEST(Gzip, EveryTruncationIsAnError) {
  const std::string whole = gzip("it was a dark and stormy night; the rain fell in torrents");
  for (size_t size = 2; size < whole.size(); ++size)
    EXPECT_THAT(error_for(whole.substr(0, size)), StartsWith("corpus.gz: damaged gzip file")) << size;
}

TEST(Gzip, TruncationWithinALaterMemberIsAnError) {
  const std::string first = gzip("first"), second = gzip("second");
  for (size_t size = 1; size < second.size(); ++size)
    EXPECT_THAT(error_for(first + second.substr(0, size)), HasSubstr("damaged")) << size;
}

TEST(Gzip, TruncationAtThePieceBoundaryIsAnError) {
  const std::string whole = gzip(noise(600'000));
  for (size_t size : {size_t{1} << 18, (size_t{1} << 18) + 1, size_t{1} << 19})
    EXPECT_THAT(error_for(whole.substr(0, size)), HasSubstr("ends too early")) << size;
}

TEST(Gzip, BytesBehindTheLastMemberAreAnError) {
  EXPECT_THAT(error_for(gzip("text") + "garbage"), HasSubstr("something else follows"));
  EXPECT_THAT(error_for(gzip("text") + std::string("\0\1", 2)), HasSubstr("something else follows"));
}

TEST(Gzip, DamagedDataAndChecksumsAreErrors) {
  const std::string whole = gzip("it was a dark and stormy night; the rain fell in torrents");
  for (size_t i = 10; i < whole.size(); ++i) {  // before lies the member's head: time, system
    std::string altered = whole;
    altered[i] = static_cast<char>(altered[i] ^ 0x10);
    EXPECT_THAT(error_for(altered), HasSubstr("damaged")) << "byte " << i;
  }
}

// 1 MB of one letter takes 1 kB: a thousand of them are a small file that would fill the memory.
TEST(Gzip, AFileThatGrowsBeyondWhatTextsDoIsRefused) {
  const std::string one = gzip(std::string(1'000'000, 'a'));
  std::string bomb;
  for (int i = 0; i < 90; ++i) bomb += one;
  EXPECT_EQ(inflate_gzip(bomb, "x").size(), 90'000'000u);
  for (int i = 0; i < 1000; ++i) bomb += one;
  EXPECT_THAT(error_for(bomb), StartsWith("corpus.gz, inflated: larger than 109"));
}

}  // namespace
}  // namespace lapse
