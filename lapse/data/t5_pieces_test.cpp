#include "lapse/data/t5_pieces.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lapse/core/file.h"
#include "lapse/core/testing.h"
#include "lapse/data/spans.h"
#include "lapse/data/subword.h"
#include "lapse/data/t5_pieces_testing.h"

namespace lapse {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using namespace testing_pieces;

constexpr const char* kWideA = "\xEF\xBC\xA1";  // a full-width A
const std::string kSpaced = "\xE2\x96\x81";

enum : int32_t { kPad, kEnd, kUnknown, kSpace, kThe, kCat, kDot, kA, kAble, kUn };

std::string made(std::vector<MadePiece> pieces = {{"<pad>", 0, 3},
                                                  {"</s>", 0, 3},
                                                  {"<unk>", 0, 2},
                                                  {kSpaced, -3},
                                                  {kSpaced + "the", -1},
                                                  {kSpaced + "cat", -1},
                                                  {".", -2},
                                                  {kSpaced + "A", -2},
                                                  {"able", -2},
                                                  {kSpaced + "un", -2}}) {
  return model_of(pieces, table_of({{"\t", " "}, {"\xC2\xA0", " "}, {kWideA, "A"}}));
}

struct Cut {
  std::vector<int32_t> ids;
  std::vector<TextBytes> bytes;
};

Cut cut(const std::string& text, bool continues = false) {
  static const T5Pieces pieces(made(), "a.model");
  Cut result;
  result.ids = pieces.encode(text, result.bytes, continues);
  return result;
}

TEST(T5Pieces, BeginATextWithASpaceAndMakeOneOfSeveral) {
  EXPECT_THAT(cut("the cat.").ids, ElementsAre(kThe, kCat, kDot));
  EXPECT_THAT(cut("  the \t cat . ").ids, ElementsAre(kThe, kCat, kSpace, kDot));
  EXPECT_THAT(cut("").ids, ElementsAre());
  EXPECT_THAT(cut(" \n ").ids, ElementsAre());
}

TEST(T5Pieces, CutLinesAsTheWholeText) { EXPECT_EQ(cut("the\ncat.\n\n the").ids, cut("the cat. the").ids); }

TEST(T5Pieces, GoOnWithAWordThatBeganBefore) {
  EXPECT_THAT(cut("able the", true).ids, ElementsAre(kAble, kThe));
  EXPECT_THAT(cut("able the").ids, ElementsAre(kSpace, kAble, kThe));
  EXPECT_THAT(cut(" the", true).ids, ElementsAre(kThe)) << "a space begins a word";
  EXPECT_THAT(cut("\xC2\xA0the", true).ids, ElementsAre(kThe)) << "and so does what becomes one";
  EXPECT_THAT(cut(".\nable", true).ids, ElementsAre(kDot, kSpace, kAble)) << "and so does a line end";
}

TEST(T5Pieces, TellOfAllBytesAndOfThoseThatAreLost) {
  EXPECT_THAT(cut("the cat.").bytes, ElementsAre(TextBytes{3, 0}, TextBytes{4, 0}, TextBytes{1, 0}));
  EXPECT_THAT(cut("the\n \ncat. ").bytes, ElementsAre(TextBytes{3, 0}, TextBytes{6, 2}, TextBytes{2, 0}));
  const std::string wide = std::string("the ") + kWideA;
  EXPECT_THAT(cut(wide).ids, ElementsAre(kThe, kA));
  EXPECT_THAT(cut(wide).bytes, ElementsAre(TextBytes{3, 0}, TextBytes{4, 4})) << "replaced: the A tells not which";
  EXPECT_THAT(cut("the \xE2\x98\x83").ids, ElementsAre(kThe, kSpace, kUnknown));
  EXPECT_THAT(cut("the \xE2\x98\x83").bytes, ElementsAre(TextBytes{3, 0}, TextBytes{1, 0}, TextBytes{3, 3}));
}

TEST(T5Pieces, AreDecodedPieceByPiece) {
  const T5Pieces pieces(made(), "a.model");
  EXPECT_EQ(pieces.size(), 10);
  EXPECT_EQ(pieces.decode(kThe), " the");
  EXPECT_EQ(pieces.decode(kDot), ".");
  EXPECT_EQ(pieces.decode(kUnknown), "<unk>");
  EXPECT_EQ(pieces.decode(kPad), "");
  EXPECT_EQ(pieces.model(), made());
}

TEST(T5Pieces, RefuseOtherModels) {
  const auto error = [](const std::string& model) { return error_of([&] { T5Pieces(model, "a.model"); }); };
  EXPECT_EQ(error(""), "a.model: not a SentencePiece model");
  EXPECT_EQ(error("no model"), "a.model: not a SentencePiece model");
  EXPECT_THAT(error(made({{"<unk>", 0, 2}, {"<s>", 0, 3}, {"</s>", 0, 3}, {"a", -1}})),
              HasSubstr("are not padding and the end"));
  EXPECT_THAT(error(train_subwords({"a text of words, a text of words"}, {.size = 271})),
              HasSubstr("are not padding and the end"));
  std::string table = table_of({{"\t", " "}});
  EXPECT_THAT(error(model_of({{"<unk>", 0, 2}}, table.substr(0, table.size() - 1))), HasSubstr("is damaged"));
}

TEST(T5Pieces, MakeAVocabularyWithSentinelsAndPadding) {
  const TestFolder folder;
  write_file(folder / "spiece.model", made());
  DataConfig config{.unit = "t5", .objective = "span_corruption"};
  config.tokenizer = folder / "spiece.model", config.sentinels = 3, config.padded_vocabulary = 16;
  const Vocabulary built = Vocabulary::build(config, "the cat.");
  for (const Vocabulary& vocabulary : {built, Vocabulary::from_json(built.to_json())}) {
    EXPECT_EQ(vocabulary.size(), 16);
    EXPECT_EQ(vocabulary.bos(), 0);
    EXPECT_EQ(vocabulary.eos(), 1);
    EXPECT_EQ(vocabulary.sentinel(0), 12);
    EXPECT_EQ(vocabulary.decode(12) + vocabulary.decode(10), "<extra_id_0><extra_id_2>");
    EXPECT_EQ(vocabulary.decode(13) + vocabulary.decode(15), "") << "these stand for nothing";
    EXPECT_THAT(encode_gaps(vocabulary, "the <extra_id_0> un<extra_id_1>able."),
                ElementsAre(kThe, 12, kUn, 11, kAble, kDot, kEnd));
    const Spans spans = decode_spans(vocabulary, {12, kThe, kCat, 11, kDot, kEnd}, 2);
    EXPECT_EQ(fill_gaps(vocabulary, "<extra_id_0> un<extra_id_1>able", spans), "the cat un.able");
    EXPECT_EQ(fill_gaps(vocabulary, "A <extra_id_0>.", spans), "A the cat.");
  }
  config.padded_vocabulary = 12;
  EXPECT_EQ(error_of([&] { Vocabulary::build(config, "the cat."); }),
            "data.padded_vocabulary = 12: 13 ids are used; give at least 13");
  EXPECT_THAT(error_of([&] { built.encode("the \xFF"); }), HasSubstr("text: not UTF-8 at byte 4"));
  EXPECT_EQ(error_of([] { Vocabulary::from_json(R"({"unit": "byte", "bos": false, "padded": 300})", "a.json"); }),
            "a.json: \"padded\" is for vocabularies with \"sentinels\"");
  config.padded_vocabulary = 13;
  EXPECT_EQ(Vocabulary::build(config, "the").size(), 13);
}

}  // namespace
}  // namespace lapse
