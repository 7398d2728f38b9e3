#include "lapse/data/corpus.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <fstream>
#include <limits>

#include "lapse/core/error.h"
#include "lapse/core/random.h"
#include "lapse/core/testing.h"

namespace lapse {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;
using ::testing::ThrowsMessage;

std::vector<int32_t> ids(const Tokens& tokens) {
  std::vector<int32_t> result;
  for (int64_t i = 0; i < tokens.size(); ++i) result.push_back(tokens[i]);
  return result;
}

class CorpusTest : public ::testing::Test {
 protected:
  std::string file(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / name, std::ios::binary) << text;
    return folder_ / name;
  }
  DataConfig one_file(const std::string& text, const std::string& unit = "byte") const {
    DataConfig config;
    config.path = file("text", text);
    config.unit = unit;
    return config;
  }
  static auto error(const std::string& message) {
    return ThrowsMessage<Error>(AllOf(HasSubstr(message), Not(HasSubstr("\n"))));
  }
  static void expect_error(const DataConfig& config, const std::string& message) {
    EXPECT_THAT([&] { load_corpus(config); }, error(message));
  }

  TestFolder folder_;
};

TEST(Tokens, KeepTheExtremesOfEveryWidth) {
  for (int32_t size : {1, 2, 256, 257, 65536, 65537, std::numeric_limits<int32_t>::max()}) {
    std::vector<int32_t> expected = {0, size - 1, size / 2, 0, size - 1};
    Tokens tokens(expected, size);
    EXPECT_EQ(ids(tokens), expected) << size;
    tokens.append({size - 1});
    EXPECT_EQ(tokens.size(), 6);
    EXPECT_EQ(tokens[5], size - 1);
  }
  EXPECT_EQ(Tokens().size(), 0);
  EXPECT_EQ(Tokens({}, 70000).size(), 0);
}

TEST_F(CorpusTest, BytesAreCutAtTheFractions) {
  std::string text(90, 'a');
  Corpus corpus = load_corpus(one_file(text + "bbbbb" + "ccccc"));
  EXPECT_EQ(ids(corpus.train), std::vector<int32_t>(90, 'a'));
  EXPECT_EQ(ids(corpus.valid), std::vector<int32_t>(5, 'b'));
  EXPECT_EQ(ids(corpus.test), std::vector<int32_t>(5, 'c'));
}

TEST_F(CorpusTest, FractionsWhoseSumIsRoundedDownLoseNoByte) {
  DataConfig config = one_file(std::string(100, 'a'));
  config.split = {0.7, 0.2, 0.1};  // in doubles, 100 (0.7 + 0.2) < 90
  EXPECT_EQ(load_corpus(config).test.size(), 10);
}

TEST_F(CorpusTest, CharactersAreCutAtTheNextCodePoint) {
  DataConfig config = one_file(
      "ab\xF0\x9F\x98\x80"
      "c\xC3\xA9z",
      "character");                // 10 bytes
  config.split = {0.3, 0.5, 0.2};  // 3 and 8 lie inside characters
  Corpus corpus = load_corpus(config);
  EXPECT_EQ(corpus.vocabulary.decode(ids(corpus.train)), "ab\xF0\x9F\x98\x80");
  EXPECT_EQ(corpus.vocabulary.decode(ids(corpus.valid)), "\xEF\xBF\xBD\xEF\xBF\xBD");  // not in the training part
  EXPECT_EQ(corpus.vocabulary.decode(ids(corpus.test)), "\xEF\xBF\xBD");
}

TEST_F(CorpusTest, WordsAreCutAfterWhiteSpace) {
  DataConfig config = one_file("one two\nthree four\none ", "word");
  config.split = {0.25, 0.5, 0.25};  // bytes 5.75 and 17.25 lie in "two" and at the end of "four"
  Corpus corpus = load_corpus(config);
  EXPECT_EQ(corpus.vocabulary.decode(ids(corpus.train)), "one two \n");
  EXPECT_EQ(ids(corpus.valid), (std::vector<int32_t>{0, 0, 1}));
  EXPECT_EQ(corpus.vocabulary.decode(ids(corpus.test)), "one ");
}

TEST_F(CorpusTest, ACutThatFollowsWhiteSpaceStays) {
  DataConfig config = one_file("aa bb cc dd ", "word");
  config.split = {0.25, 0.25, 0.5};
  Corpus corpus = load_corpus(config);
  EXPECT_EQ(corpus.train.size(), 1);
  EXPECT_EQ(corpus.valid.size(), 1);
  EXPECT_EQ(corpus.test.size(), 2);
}

TEST_F(CorpusTest, NoCutBreaksOrLosesAToken) {
  Random random(1, "cuts");
  const std::vector<std::string> pieces = {"a", "bc", " ", "\n", "\xC3\xA9", "\xE2\x82\xAC", "\xF0\x9F\x98\x80"};
  for (int round = 0; round < 300; ++round) {
    std::string text = "start ";
    for (uint64_t i = random.below(40); i > 0; --i) text += pieces[random.below(pieces.size())];
    DataConfig config = one_file(text, std::vector<std::string>{"byte", "character", "word"}[round % 3]);
    double train = 0.2 + 0.8 * random.uniform(), valid = (1 - train) * random.uniform();
    config.split = {train, valid, 1 - train - valid};
    Corpus corpus = load_corpus(config);
    std::vector<int32_t> joined = ids(corpus.train);
    for (const Tokens* part : {&corpus.valid, &corpus.test}) {
      for (int32_t id : ids(*part)) joined.push_back(id);
    }
    ASSERT_EQ(joined, corpus.vocabulary.encode(text)) << config.unit << " " << train << " " << valid << "\n" << text;
    for (auto [name, part] : {std::pair{"train", &corpus.train}, {"valid", &corpus.valid}, {"test", &corpus.test}}) {
      ASSERT_EQ(ids(load_tokens(config.path, name, config, corpus.vocabulary)), ids(*part)) << name;
    }
  }
}

TEST_F(CorpusTest, ALongTextIsEncodedAsItsPiecesAre) {
  std::string text = "x";  // shifts the characters of two bytes across the pieces' ends
  while (text.size() < (5 << 20) / 2) text += "\xC3\xA9 \xE2\x82\xAC\xE2\x82\xAC\n";
  for (const char* unit : {"byte", "character", "word"}) {
    DataConfig config = one_file(text, unit);
    config.split = {1, 0, 0};
    Corpus corpus = load_corpus(config);
    EXPECT_TRUE(ids(corpus.train) == corpus.vocabulary.encode(text)) << unit;
  }
}

TEST_F(CorpusTest, AWordLongerThanAPieceStaysWhole) {
  DataConfig config = one_file("a " + std::string(3 << 20, 'x') + " a", "word");
  config.split = {1, 0, 0};
  EXPECT_THAT(ids(load_corpus(config).train), ElementsAre(2, 3, 2));
}

TEST_F(CorpusTest, TheVocabularyComesFromTheTrainingPart) {
  DataConfig config = one_file("aaaabbbbcc", "character");
  config.split = {0.8, 0.1, 0.1};
  Corpus corpus = load_corpus(config);
  EXPECT_EQ(corpus.vocabulary.size(), 3);
  EXPECT_THAT(ids(corpus.valid), ElementsAre(0));
}

TEST_F(CorpusTest, ThreeFilesOfWhichTwoMayBeMissing) {
  DataConfig config;
  config.train_path = file("train", "abc");
  Corpus corpus = load_corpus(config);
  EXPECT_THAT(ids(corpus.train), ElementsAre('a', 'b', 'c'));
  EXPECT_EQ(corpus.valid.size(), 0);
  EXPECT_EQ(corpus.test.size(), 0);
  config.valid_path = file("valid", "d");
  config.test_path = file("test", "ef");
  corpus = load_corpus(config);
  EXPECT_THAT(ids(corpus.valid), ElementsAre('d'));
  EXPECT_THAT(ids(corpus.test), ElementsAre('e', 'f'));
  EXPECT_THAT(ids(load_tokens(config.test_path, "all", config, corpus.vocabulary)), ElementsAre('e', 'f'));
}

TEST_F(CorpusTest, PartsOfFractionZeroAreEmpty) {
  DataConfig config = one_file("0123456789");
  config.split = {1, 0, 0};
  EXPECT_EQ(load_corpus(config).train.size(), 10);
  config.split = {0.5, 0, 0.5};
  EXPECT_THAT(ids(load_corpus(config).valid), IsEmpty());
  EXPECT_EQ(load_corpus(config).test.size(), 5);
  config = one_file(std::string(4'000'000, 'x'));
  config.split = {0.5, 0.4999995, 0};  // within the tolerance, yet 2 bytes short
  EXPECT_EQ(load_corpus(config).valid.size(), 2'000'000);
  EXPECT_EQ(load_corpus(config).test.size(), 0);
}

TEST_F(CorpusTest, OneTokenIsACorpus) {
  DataConfig config = one_file("a", "word");
  config.split = {1, 0, 0};
  EXPECT_EQ(load_corpus(config).train.size(), 1);
}

TEST_F(CorpusTest, RefusesAnEmptyTrainingPart) {
  DataConfig config = one_file("a");
  config.split = {0.1, 0.9, 0};
  expect_error(config, "the training part is empty");
}

TEST_F(CorpusTest, RefusesWrongFractions) {
  DataConfig config = one_file("0123456789");
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const std::vector<double> wrong[] = {{},
                                       {1},
                                       {0.5, 0.5},
                                       {0.25, 0.25, 0.25, 0.25},
                                       {0.9, 0.05, 0.04},
                                       {0.9, 0.1, 0.1},
                                       {0, 0.5, 0.5},
                                       {1.1, -0.1, 0},
                                       {1.1, 0, -0.1},
                                       {nan, 0.5, 0.5}};
  for (const std::vector<double>& split : wrong) {
    config.split = split;
    expect_error(config, "three fractions of sum 1");
    EXPECT_THAT([&] { load_tokens(config.path, "valid", config, Vocabulary::build({}, "a")); },
                error("three fractions of sum 1"));
  }
}

TEST_F(CorpusTest, RefusesNoPathAndBothForms) {
  expect_error({}, "no training text");
  DataConfig config;
  config.valid_path = file("valid", "a");
  expect_error(config, "no training text");
  config.path = file("text", "a");
  expect_error(config, "not both");
}

TEST_F(CorpusTest, RefusesMissingAndEmptyFiles) {
  DataConfig config;
  config.path = folder_ / "missing";
  expect_error(config, "missing");
  config.path = file("text", "");
  expect_error(config, "text: the file is empty");
  EXPECT_THAT([&] { load_tokens(config.path, "all", config, Vocabulary::build({}, "a")); }, error("file is empty"));
  config = {};
  config.train_path = file("train", "abc");
  config.test_path = file("test", "");
  expect_error(config, "test: the file is empty");
}

TEST_F(CorpusTest, MalformedTextNamesTheFileAndTheOffsetInTheFile) {
  std::string text(100, 'a');
  text[95] = '\xFF';  // in the test part
  for (const char* unit : {"character", "word"}) {
    DataConfig config = one_file(text, unit);
    expect_error(config, config.path + ": not UTF-8 at byte 95 (0xFF); only runs of bytes");
  }
  EXPECT_EQ(load_corpus(one_file(text)).test[0], 0xFF);
}

TEST_F(CorpusTest, ReadsGzipAndRefusesATruncatedFile) {
  std::string path = folder_ / "text.gz", text;
  for (int i = 0; i < 1000; ++i) text += std::to_string(i * i) + " ";
  gzFile gzip = gzopen(path.c_str(), "wb");
  gzwrite(gzip, text.data(), static_cast<unsigned>(text.size()));
  gzclose(gzip);
  DataConfig config;
  config.path = path;
  config.split = {1, 0, 0};
  Corpus corpus = load_corpus(config);
  EXPECT_EQ(corpus.vocabulary.decode(ids(corpus.train)), text);
  fs::resize_file(path, fs::file_size(path) - 9);
  expect_error(config, path);
}

// A long text is encoded in pieces: no token, and no byte that it stands for, depends on where they end.
TEST_F(CorpusTest, WordsDoNotDependOnPieces) {
  std::string text;
  Random random(1, "text");
  for (const size_t words : {(size_t{5} << 20) / 2, size_t{5} << 20}) {
    while (text.size() < words)
      text += std::string(1 + random.below(9), static_cast<char>('a' + random.below(26))) +
              (random.below(9) ? " " : "  \n");
    text +=
        std::string((size_t{5} << 20) / 2, ' ') + "the" + std::string(100, '\n') + "\t ";  // blanks of several pieces
  }
  DataConfig config = one_file(text, "word");
  config.split = {1, 0, 0}, config.max_vocabulary = 50;  // most words are unknown
  const Corpus corpus = load_corpus(config);
  std::vector<TextBytes> text_bytes;
  const auto whole = corpus.vocabulary.encode(text, &text_bytes);
  ASSERT_EQ(ids(corpus.train), whole);
  for (size_t i = 0; i < whole.size(); ++i)
    ASSERT_EQ(corpus.train.text_bytes(static_cast<int64_t>(i)), text_bytes[i]) << i;
}

TEST_F(CorpusTest, WhiteSpaceAtTheEndIsOfTheLastWord) {
  const std::string text = std::string(size_t{1} << 20, 'b') + "   ";  // of which the first ends a piece
  DataConfig config = one_file(text, "word");
  config.split = {1, 0, 0};
  const Corpus corpus = load_corpus(config);
  ASSERT_EQ(corpus.train.size(), 1);
  EXPECT_EQ(corpus.train.text_bytes(0).all, std::ssize(text));
}

TEST_F(CorpusTest, RefusesAnUnknownPart) {
  DataConfig config = one_file("abc");
  EXPECT_THAT([&] { load_tokens(config.path, "train-valid", config, Vocabulary::build({}, "a")); },
              error("use one of: train, valid, test, all"));
}

TEST(DataConfig, ReadsItsKeys) {
  DataConfig config;
  parse_config({{"data", "", config.fields()}},
               "[data]\ntrain = 'a'\nvalid = 'b'\ntest = 'c'\nunit = 'word'\nsplit = [0.5, 0.25, 0.25]\n"
               "min_count = 3\nmax_vocabulary = 9\npath = 'd'\n",
               "test");
  EXPECT_EQ(config.train_path + config.valid_path + config.test_path + config.path, "abcd");
  EXPECT_EQ(config.unit, "word");
  EXPECT_THAT(config.split, ElementsAre(0.5, 0.25, 0.25));
  EXPECT_EQ(config.min_count, 3);
  EXPECT_EQ(config.max_vocabulary, 9);
  for (const char* wrong : {"data.unit=line", "data.min_count=0", "data.max_vocabulary=-1"}) {
    EXPECT_THROW(set_config({{"data", "", config.fields()}}, wrong), Error) << wrong;
  }
}

}  // namespace
}  // namespace lapse
