#include "lapse/data/subword.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lapse/core/random.h"
#include "lapse/core/testing.h"
#include "lapse/data/corpus.h"

namespace lapse {
namespace {

using ::testing::HasSubstr;

const std::vector<std::string> kWords = {"the", "river", "forgets", "slowly", "na\xC3\xAFve", "morning", "light"};

std::string text_of(uint64_t seed, int words) {
  Random random(seed, "words");
  std::string text;
  for (int i = 0; i < words; ++i) text += kWords[random.below(kWords.size())] + (random.below(9) == 0 ? ".\n" : " ");
  return text;
}

const std::string& model(const std::string& kind = "unigram") {
  static const std::string unigram = train_subwords({text_of(1, 5000)}, {.size = 290, .kind = "unigram"});
  static const std::string bpe = train_subwords({text_of(1, 5000)}, {.size = 290, .kind = "bpe"});
  return kind == "bpe" ? bpe : unigram;
}

std::string round_trip(const Subwords& subwords, const std::string& text) {
  std::string back;
  for (const int32_t id : subwords.encode(text)) back += subwords.decode(id);
  return back;
}

class SubwordKinds : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Kinds, SubwordKinds, testing::Values("unigram", "bpe"));

TEST_P(SubwordKinds, GiveEveryTextBack) {
  const Subwords subwords(model(GetParam()), "model");
  EXPECT_EQ(subwords.size(), 290);
  for (const std::string& text :
       {std::string(""), std::string(" "), std::string("  two  spaces  "), std::string("\n\n"), std::string("\r\n\t"),
        std::string("a\0b", 3), std::string("\xE2\x96\x81 \xE2\x96\x81"), std::string("\xFF\xFE\xC3"),
        std::string("\xC3\xA9\xE4\xB8\xAD\xF0\x9F\x98\x80"), std::string("<s></s><unk><0x41>"),
        std::string("\xEF\xBB\xBF\xEF\xBC\xA1\xC2\xA0\xCC\x81"), text_of(2, 300)})
    EXPECT_EQ(round_trip(subwords, text), text);
}

TEST_P(SubwordKinds, GiveAnyBytesAndAnyCharactersBack) {
  const Subwords subwords(model(GetParam()), "model");
  Random random(3, "bytes");
  for (int round = 0; round < 300; ++round) {
    std::string text;
    for (uint64_t n = random.below(40); n > 0; --n)
      text += random.below(3) == 0 ? std::string(1, static_cast<char>(random.below(256)))
                                   : kWords[random.below(kWords.size())].substr(0, 1 + random.below(9));
    EXPECT_EQ(round_trip(subwords, text), text);
  }
}

TEST_P(SubwordKinds, CutKnownWordsIntoFewPieces) {
  const Subwords subwords(model(GetParam()), "model");
  const std::string text = text_of(4, 1000);
  EXPECT_LT(subwords.encode(text).size(), text.size() * 3 / 4);
}

TEST_P(SubwordKinds, AreTheSameForTheSameText) {
  EXPECT_EQ(train_subwords({text_of(1, 5000)}, {.size = 290, .kind = GetParam()}), model(GetParam()));
}

TEST(Subwords, AreCutAlikeInAWholeTextAndInItsParts) {
  const Subwords subwords(model(), "model");
  const std::string text = text_of(5, 200);
  const auto whole = subwords.encode(text);
  for (size_t cut = text.find_first_of(" \n"); cut != text.npos; cut = text.find_first_of(" \n", cut + 1)) {
    auto parts = subwords.encode(text.substr(0, cut));
    const auto rest = subwords.encode(text.substr(cut));
    parts.insert(parts.end(), rest.begin(), rest.end());
    EXPECT_EQ(parts, whole) << cut;
  }
}

TEST(Subwords, ReadTextsWithoutLineEndsOrSpaces) {
  std::string text;
  for (int i = 0; i < 20000; ++i) text += "\xE4\xB8\xAD\xE6\x96\x87"[i % 6];
  const Subwords subwords(train_subwords({text}, {.size = 264}), "model");
  EXPECT_EQ(round_trip(subwords, text), text);
  EXPECT_EQ(round_trip(subwords, " a  b\n"), " a  b\n") << "a space is no piece of this model";
}

TEST(Subwords, ErrorsSayWhatIsWrong) {
  EXPECT_THAT(error_of([] { Subwords("no model", "x.model"); }), HasSubstr("x.model: not a SentencePiece model"));
  EXPECT_THAT(error_of([] { Subwords("", "x.model"); }), HasSubstr("x.model: not a SentencePiece model"));
  EXPECT_THAT(error_of([] { train_subwords({}, {}); }), HasSubstr("no text"));
  EXPECT_THAT(error_of([] { train_subwords({"\n\n"}, {}); }), HasSubstr("no text"));
  EXPECT_THAT(error_of([] { train_subwords({"abc"}, {.size = 5000}); }), HasSubstr("too high (5000)"));
  EXPECT_THAT(error_of([] { train_subwords({text_of(1, 5000)}, {.size = 261}); }), HasSubstr("give at least 2"));
}

TEST(Subwords, RefusePiecesThatSentencePieceCannotFind) {
  const std::string piece("\x0A\x03\x0A\x01\0", 5);
  EXPECT_EQ(error_of([&] { Subwords(model() + piece, "x.model"); }),
            "x.model: not a SentencePiece model; `lapse tokenizer train` makes one");
  const std::string longer("\x0A\x05\x0A\x03q\0z", 7);
  EXPECT_EQ(error_of([&] { Subwords(model() + longer, "x.model"); }),
            "x.model: piece 290 of this SentencePiece model has a zero byte; make one by `lapse tokenizer train`");
}

// {piece: "q", score: 0, type: UNUSED} at the end of the pieces; "q" is in no word of the training text.
TEST(Subwords, GiveAnUnusedPieceBack) {
  const std::string unused("\x0A\x0A\x0A\x01q\x15\0\0\0\0\x18\x05", 12);
  for (const std::string kind : {"unigram", "bpe"}) {
    const Subwords subwords(model(kind) + unused, "model");
    ASSERT_EQ(subwords.size(), 291);
    EXPECT_EQ(subwords.decode(290), "q");
    EXPECT_EQ(round_trip(subwords, "a quiet river, q"), "a quiet river, q") << kind;
  }
}

// Fields that are appended to a model replace those of the same number, or add to them.
TEST(Subwords, RefuseATableOfReplacementsUnread) {
  const auto error = [](const std::string& appended) {
    return error_of([&] { Subwords(model() + appended, "x.model"); });
  };
  // A table of replacements is the field 2 of field 3; SentencePiece read this one beyond its end.
  const std::string table("\x12\x08\x04\0\0\0\0\0\0\xA0", 10);
  EXPECT_THAT(error("\x1A\x0A" + table), HasSubstr("x.model: this SentencePiece model changes texts"));
  EXPECT_THAT(error("\x2A\x0A" + table), HasSubstr("changes texts"));
  EXPECT_EQ(error(std::string("\x1A\x02\x12\0", 4)), "") << "an empty table";
  EXPECT_EQ(error("\xA8\x01\x07\x0D"
                  "1234\x09"
                  "12345678"),
            "")
      << "fields that nobody knows";
  for (const std::string& odd :
       {std::string("\x1B\x1C"), "\x1A\x0B" + table, "\x9A\x80\x80\x80\x10\x0A" + table, std::string("\x1A"),
        std::string("\xFF"), std::string(11, '\xFF'), std::string(1, '\0')})
    EXPECT_THAT(error(odd), HasSubstr("x.model: not a SentencePiece model")) << odd;
}

TEST(SubwordVocabulary, HoldsItsModel) {
  TestFolder folder;
  write_file(folder / "a.model", model());
  DataConfig config;
  config.unit = "subword", config.tokenizer = (folder / "a.model").string();
  for (const bool windows : {false, true}) {
    config.windows = windows;
    const auto vocabulary = Vocabulary::build(config, "any text");
    const auto again = Vocabulary::from_json(vocabulary.to_json());
    const std::string text = text_of(6, 50) + "\xFF caf\xC3\xA9";
    EXPECT_EQ(again.to_json(), vocabulary.to_json());
    EXPECT_EQ(again.encode(text), vocabulary.encode(text));
    EXPECT_EQ(again.decode(again.encode(text)), text);
    EXPECT_EQ(vocabulary.size(), windows ? 291 : 290);
    EXPECT_EQ(vocabulary.bos(), windows ? 290 : -1);
  }
}

TEST(SubwordVocabulary, KnowsHowManyBytesATokenStandsFor) {
  TestFolder folder;
  write_file(folder / "a.model", model());
  const std::string text = text_of(7, 2000);
  write_file(folder / "text", text);
  DataConfig config;
  config.unit = "subword", config.tokenizer = (folder / "a.model").string(), config.path = (folder / "text").string();
  const Corpus corpus = load_corpus(config);
  int64_t bytes = 0;
  std::string back;
  for (const Tokens* part : {&corpus.train, &corpus.valid, &corpus.test})
    for (int64_t i = 0; i < part->size(); ++i) {
      bytes += part->text_bytes(i).all;
      back += corpus.vocabulary.decode((*part)[i]);
    }
  EXPECT_EQ(bytes, std::ssize(text));
  EXPECT_EQ(back, text);
}

TEST(SubwordVocabulary, NeedsAModel) {
  DataConfig config;
  config.unit = "subword";
  EXPECT_THAT(error_of([&] { Vocabulary::build(config, "text"); }), HasSubstr("data.tokenizer"));
  EXPECT_THAT(error_of([] { Vocabulary::from_json(R"({"unit": "subword"})"); }), HasSubstr("SentencePiece"));
  EXPECT_THAT(error_of([] { Vocabulary::from_json(R"({"unit": "subword", "model": "Zm9v"})"); }),
              HasSubstr("not a SentencePiece model"));
}

}  // namespace
}  // namespace lapse
