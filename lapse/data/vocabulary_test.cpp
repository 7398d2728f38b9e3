#include "lapse/data/vocabulary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "lapse/core/error.h"
#include "lapse/core/random.h"
#include "lapse/core/testing.h"

namespace lapse {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::ThrowsMessage;

Vocabulary build(const std::string& unit, std::string_view text, int64_t min_count = 1, int64_t max_vocabulary = 0) {
  DataConfig config;
  config.unit = unit;
  config.min_count = min_count;
  config.max_vocabulary = max_vocabulary;
  return Vocabulary::build(config, text);
}

std::vector<std::string> tokens(const Vocabulary& vocabulary) {
  return nlohmann::json::parse(vocabulary.to_json())["tokens"].get<std::vector<std::string>>();
}

void expect_same(const Vocabulary& a, const Vocabulary& b, const std::string& text) {
  EXPECT_EQ(&a.unit(), &b.unit());
  EXPECT_EQ(a.size(), b.size());
  EXPECT_EQ(a.encode(text), b.encode(text));
  EXPECT_EQ(a.to_json(), b.to_json());
  for (int32_t id = 0; id < a.size(); ++id) EXPECT_EQ(a.decode(id), b.decode(id));
}

TEST(Bytes, EveryTextHasOneEncodingAndBack) {
  Vocabulary vocabulary = build("byte", "x", 100, 2);  // the limits are not for bytes
  EXPECT_EQ(vocabulary.size(), 256);
  std::string text;
  for (int i = 0; i < 256; ++i) text += static_cast<char>(i);
  std::vector<int32_t> ids = vocabulary.encode(text);
  for (int i = 0; i < 256; ++i) EXPECT_EQ(ids[i], i);
  EXPECT_EQ(vocabulary.decode(ids), text);
  EXPECT_TRUE(vocabulary.encode("").empty());
  expect_same(Vocabulary::from_json(vocabulary.to_json()), vocabulary, text);
}

TEST(Characters, ByCodePointAfterTheIdOfAllOthers) {
  Vocabulary vocabulary = build("character", "b\xF0\x9F\x98\x80 a\xC3\xA9\xC3\xA9");
  EXPECT_THAT(tokens(vocabulary), ElementsAre("\xEF\xBF\xBD", " ", "a", "b", "\xC3\xA9", "\xF0\x9F\x98\x80"));
  EXPECT_THAT(vocabulary.encode("a\xC3\xA9z\xF0\x9F\x98\x81"), ElementsAre(2, 4, 0, 0));
  EXPECT_EQ(vocabulary.decode({2, 4, 0, 5}), "a\xC3\xA9\xEF\xBF\xBD\xF0\x9F\x98\x80");
  expect_same(Vocabulary::from_json(vocabulary.to_json()), vocabulary, "ab\xC3\xA9z");
}

TEST(Characters, AReplacementCharacterOfTheTextIsIdZero) {
  Vocabulary vocabulary = build("character", "a\xEF\xBF\xBD\xEF\xBF\xBD");
  EXPECT_EQ(vocabulary.size(), 2);
  EXPECT_THAT(vocabulary.encode("\xEF\xBF\xBD"
                                "a"),
              ElementsAre(0, 1));
}

TEST(Characters, AZeroByteIsACharacter) {
  std::string text("a\0b", 3);
  Vocabulary vocabulary = build("character", text);
  EXPECT_EQ(vocabulary.size(), 4);
  EXPECT_EQ(vocabulary.decode(Vocabulary::from_json(vocabulary.to_json()).encode(text)), text);
}

TEST(Characters, CutByMinCountAndByMaxVocabulary) {
  std::string text = "aaabbccd";
  EXPECT_THAT(tokens(build("character", text, 2)), ElementsAre("\xEF\xBF\xBD", "a", "b", "c"));
  EXPECT_THAT(tokens(build("character", text, 3)), ElementsAre("\xEF\xBF\xBD", "a"));
  EXPECT_THAT(tokens(build("character", "abbccc", 1, 3)), ElementsAre("\xEF\xBF\xBD", "b", "c"));
  EXPECT_EQ(build("character", text, 1, 5).size(), 5);
}

TEST(Words, ByCountThenByBytesAfterTheSpecialOnes) {
  Vocabulary vocabulary = build("word", "b a\n\n b\tcc\r\n z b a\n");
  EXPECT_THAT(tokens(vocabulary), ElementsAre("<unk>", "<eos>", "b", "a", "cc", "z"));
  EXPECT_THAT(vocabulary.encode(" b  never\nb\r\n\vcc"), ElementsAre(2, 0, 1, 2, 1, 4));
  EXPECT_EQ(vocabulary.decode({2, 0, 1, 3}), "b <unk> \na ");
  expect_same(Vocabulary::from_json(vocabulary.to_json()), vocabulary, "a b\nnever ");
}

TEST(Words, OfTheSameCountAreOrderedByBytes) {
  EXPECT_THAT(tokens(build("word", "f C e B d A \xC3\xA9 b")),
              ElementsAre("<unk>", "<eos>", "A", "B", "C", "b", "d", "e", "f", "\xC3\xA9"));
}

TEST(Words, SpecialWordsOfTheTextAreTheSpecialIds) {
  Vocabulary vocabulary = build("word", "a <unk> <unk> <eos> <unk>");
  EXPECT_THAT(tokens(vocabulary), ElementsAre("<unk>", "<eos>", "a"));
  EXPECT_THAT(vocabulary.encode("<unk> <eos>a <eos>"), ElementsAre(0, 0, 1));
}

TEST(Words, CutByMinCountAndByMaxVocabulary) {
  std::string text = "a a a b b c\n";
  EXPECT_THAT(tokens(build("word", text, 2)), ElementsAre("<unk>", "<eos>", "a", "b"));
  EXPECT_THAT(tokens(build("word", text, 1, 3)), ElementsAre("<unk>", "<eos>", "a"));
  EXPECT_THAT(build("word", text, 1, 3).encode("c a\n"), ElementsAre(0, 2, 1));
}

TEST(Words, WhatIsDecodedEncodesToTheSameIds) {
  Vocabulary vocabulary = build("word", "one two three four\n");
  Random random(1, "words");
  std::vector<int32_t> ids(1000);
  for (int32_t& id : ids) id = static_cast<int32_t>(random.below(vocabulary.size()));
  EXPECT_EQ(vocabulary.encode(vocabulary.decode(ids)), ids);
}

TEST(Vocabulary, RefusesTextThatItsUnitCannotRead) {
  for (const char* unit : {"character", "word"}) {
    auto error = ThrowsMessage<Error>(
        AllOf(HasSubstr("not UTF-8 at byte 2 (0xFF)"), HasSubstr("only runs of bytes and of subwords")));
    EXPECT_THAT([&] { build(unit, "a \xFF"); }, error);
    EXPECT_THAT([&] { build(unit, "a b").encode("a \xFF"); }, error);
  }
}

TEST(Vocabulary, RefusesWhatLeavesNothing) {
  for (const char* unit : {"byte", "character", "word"}) {
    EXPECT_THAT([&] { build(unit, ""); }, ThrowsMessage<Error>(HasSubstr("empty")));
  }
  auto error = ThrowsMessage<Error>(AllOf(HasSubstr("the vocabulary is empty"), Not(HasSubstr("\n"))));
  EXPECT_THAT([] { build("word", " \n\t\r\n"); }, error);
  EXPECT_THAT([] { build("word", "a a", 3); }, error);
  EXPECT_THAT([] { build("word", "a a", 1, 2); }, error);
  EXPECT_THAT([] { build("character", "aa", 3); }, error);
  EXPECT_THAT([] { build("character", "aa", 1, 1); }, error);
}

TEST(Vocabulary, AnUnknownUnitNamesTheNearest) {
  EXPECT_THAT([] { build("words", "a"); }, ThrowsMessage<Error>(HasSubstr("did you mean 'word'?")));
}

TEST(Vocabulary, RefusesMalformedJson) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "not valid JSON"},
      {R"({"unit": "byte")", "not valid JSON"},
      {"{\"unit\": \"word\", \"tokens\": [\"<unk>\", \"<eos>\", \"\xFF\"]}", "not valid JSON"},
      {"[]", "no \"unit\""},
      {"null", "no \"unit\""},
      {"{}", "no \"unit\""},
      {R"({"unit": 3})", "no \"unit\""},
      {R"({"unit": "line"})", "unknown unit"},
      {R"({"unit": "word"})", "no list"},
      {R"({"unit": "word", "tokens": "a"})", "no list"},
      {R"({"unit": "word", "tokens": []})", "has no token"},
      {R"({"unit": "word", "tokens": ["<eos>", "<unk>"]})", "first tokens"},
      {R"({"unit": "character", "tokens": ["a"]})", "first tokens"},
      {R"({"unit": "word", "tokens": ["<unk>", "<eos>", 7]})", "token 2 is not a string"},
      {R"({"unit": "word", "tokens": ["<unk>", "<eos>", "a", "a b"]})", "token 3 is not one word"},
      {R"({"unit": "word", "tokens": ["<unk>", "<eos>", ""]})", "token 2 is not one word"},
      {R"({"unit": "word", "tokens": ["<unk>", "<eos>", "a", "a"]})", "token 3 occurs twice"},
      {R"({"unit": "character", "tokens": ["\ufffd", "ab"]})", "token 1 is not one character"},
      {R"({"unit": "character", "tokens": ["\ufffd", ""]})", "token 1 is not one character"},
      {R"({"unit": "character", "tokens": ["\ufffd", "a", "\ufffd"]})", "token 2 occurs twice"},
  };
  for (const auto& [json, message] : cases) {
    EXPECT_THAT([json = json] { Vocabulary::from_json(json); },
                ThrowsMessage<Error>(AllOf(HasSubstr(message), Not(HasSubstr("\n")))))
        << json;
  }
}

TEST(Vocabulary, RefusesToDecodeIdsItDoesNotHave) {
  Vocabulary vocabulary = build("word", "a");
  EXPECT_THROW(vocabulary.decode(3), std::out_of_range);
  EXPECT_THROW(vocabulary.decode(-1), std::out_of_range);
}

TEST(Vocabulary, MetricsOfTheUnits) {
  struct Expected {
    const char *unit, *name, *tag;
    double of_two_ln_two;
  };
  for (const Expected& e : {Expected{"byte", "bits per byte", "bpb", 2},
                            {"character", "bits per character", "bpc", 2},
                            {"word", "perplexity", "ppl", 4}}) {
    Vocabulary vocabulary = build(e.unit, "a");
    EXPECT_EQ(vocabulary.metric_name(), e.name);
    EXPECT_EQ(vocabulary.metric_tag(), e.tag);
    EXPECT_DOUBLE_EQ(vocabulary.metric(2 * std::log(2.0)), e.of_two_ln_two);
  }
}

TEST(Bos, IsTheIdAfterAllOthers) {
  for (const char* unit : {"byte", "character", "word"}) {
    DataConfig config;
    config.unit = unit;
    const auto without = Vocabulary::build(config, "abc abd");
    config.windows = true;
    const auto with = Vocabulary::build(config, "abc abd");
    EXPECT_EQ(without.bos(), -1);
    EXPECT_EQ(with.bos(), without.size());
    EXPECT_EQ(with.size(), without.size() + 1);
    EXPECT_EQ(with.decode(with.bos()), "") << "it stands for no text";
    EXPECT_EQ(with.encode("abc abd"), without.encode("abc abd"));
    expect_same(with, Vocabulary::from_json(with.to_json()), "abc abd");
    EXPECT_EQ(Vocabulary::from_json(with.to_json()).bos(), with.bos());
  }
}

TEST(TaskVocabulary, ReadsItsOwnTokensOnly) {
  const auto vocabulary = Vocabulary::of_task({"X=", "7", "<eos>"}, true);
  EXPECT_EQ(vocabulary.size(), 4);
  EXPECT_EQ(vocabulary.bos(), 3);
  EXPECT_EQ(vocabulary.outputs(), 4);
  EXPECT_THAT(vocabulary.encode("X= 7\n 7"), ElementsAre(0, 1, 1));
  EXPECT_THAT(vocabulary.encode("<bos> X= <eos>\n"), ElementsAre(0, 2)) << "a token of its own, but no line's end";
  EXPECT_EQ(vocabulary.decode({0, 1, 3}), "X= 7 ");
  EXPECT_THAT([&] { vocabulary.encode("X= Y="); }, ThrowsMessage<Error>(HasSubstr("no token 'Y='")));
  expect_same(vocabulary, Vocabulary::from_json(vocabulary.to_json()), "7 X=");
  const auto labelled = Vocabulary::from_json(Vocabulary::of_task({"a", "b"}, false, 69).to_json());
  EXPECT_EQ(labelled.size(), 2);
  EXPECT_EQ(labelled.bos(), -1);
  EXPECT_EQ(labelled.outputs(), 69);
}

TEST(Vocabulary, MessagesBeginWithTheFile) {
  for (const char* json :
       {"{", "{}", R"({"unit": "line"})", R"({"unit": "word", "tokens": []})", R"({"unit": "word", "tokens": [7]})",
        R"({"unit": "subword", "model": "*"})", R"({"unit": "subword", "model": "AAAA"})",
        R"({"unit": "byte", "outputs": 3})", R"({"unit": "token", "tokens": ["a"], "outputs": 0})",
        R"({"unit": "token", "tokens": ["a"], "outputs": 18446744073709551615})"})
    EXPECT_THAT(error_of([&] { Vocabulary::from_json(json, "a.safetensors, its vocabulary"); }),
                testing::StartsWith("a.safetensors, its vocabulary: "))
        << json;
}

}  // namespace
}  // namespace lapse
