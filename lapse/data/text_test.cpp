#include "lapse/data/text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lapse/core/testing.h"
#include "lapse/data/corpus.h"

namespace lapse {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> documents_of(const std::string& bytes, const std::string& documents) {
  const Text text = find_documents(bytes, documents, "a.txt");
  std::vector<std::string> found;
  for (size_t i = 0, begin = 0; i < text.ends.size(); begin = text.ends[i++] + 1) {
    found.push_back(text.bytes.substr(begin, text.ends[i] - begin));
    EXPECT_EQ(text.bytes[text.ends[i]], '\n');
  }
  EXPECT_EQ(text.ends.back() + 1, text.bytes.size());
  return found;
}

TEST(FindDocuments, ALineIsADocument) {
  EXPECT_THAT(documents_of("one two\n\n \t\r\n  three \r\nfour", "lines"), ElementsAre("one two", "three", "four"));
  EXPECT_THAT(documents_of("\n\n\na\n", "lines"), ElementsAre("a"));
}

TEST(FindDocuments, MarkersAreLinesBetweenDocuments) {
  const std::string wiki =
      "<doc id=\"1\">\nA title\n\nIts text.\n\n</doc>\n<doc id=\"2\">\n</doc>\n<doc id=\"3\">\nB <doc\n</doc>\n";
  EXPECT_THAT(documents_of(wiki, "<doc </doc>"), ElementsAre("A title\n\nIts text.", "B <doc"));
  EXPECT_THAT(documents_of("a\nb\n---\nc\n---- 2 ---\n\nd", "---"), ElementsAre("a\nb", "c", "d"));
}

TEST(FindDocuments, AByteOrderMarkBelongsToNone) {
  EXPECT_THAT(documents_of("\xEF\xBB\xBF<doc>\na\n</doc>\n", "<doc </doc>"), ElementsAre("a"));
  EXPECT_THAT(documents_of("\xEF\xBB\xBFone\ntwo", "lines"), ElementsAre("one", "two"));
}

TEST(FindDocuments, NoneLeavesTheTextAsItIs) {
  const Text text = find_documents(" a\n\nb ", "none", "a.txt");
  EXPECT_EQ(text.bytes, " a\n\nb ");
  EXPECT_TRUE(text.ends.empty());
}

TEST(FindDocuments, SaysWhatIsMissing) {
  const auto error = [](const std::string& bytes, const std::string& documents) {
    return error_of([&] { find_documents(bytes, documents, "a.txt"); });
  };
  EXPECT_THAT(error("\n \n", "lines"), AllOf(HasSubstr("a.txt"), HasSubstr("finds no document")));
  EXPECT_THAT(error("---\n---\n", "---"), HasSubstr("finds no document"));
  EXPECT_THAT(error("text\nof a <doc\n", "<doc"), AllOf(HasSubstr("a.txt"), HasSubstr("no line begins with '<doc'")));
  EXPECT_THAT(error("text\n", "Lines"), HasSubstr("did you mean 'lines'?"));
  EXPECT_THAT(error("text\n", "Whole"), HasSubstr("did you mean 'whole'?"));
  EXPECT_THAT(error("<doc 1\ntext\n", "<doc </doc>"), HasSubstr("'</doc>'"));
  EXPECT_THAT(error("text", " "), HasSubstr("data.documents is empty"));
}

TEST(Text, IsCutAfterDocuments) {
  const Text text = find_documents("aa\nbbbb\nc", "lines", "");
  for (const char* unit : {"byte", "character", "word", "subword"}) {
    std::vector<size_t> cuts;
    for (size_t at = 0; at <= text.bytes.size(); ++at) cuts.push_back(text.cut(at, unit_named(unit)));
    EXPECT_THAT(cuts, ElementsAre(0, 3, 3, 3, 8, 8, 8, 8, 8, 10, 10));
  }
}

// Subwords are cut at white space, where it is near; else between any two characters.
TEST(Text, OfSubwordsIsCutAtWhiteSpaceNearBy) {
  const Text near{"aa bbb\nc", {}};
  EXPECT_EQ(near.cut(1, unit_named("subword")), 2);
  EXPECT_EQ(near.cut(4, unit_named("subword")), 6);
  EXPECT_EQ(near.cut(7, unit_named("subword")), 8);
  std::string letters;
  for (int i = 0; i < 100'000; ++i) letters += "\u6C34";
  const Text none{letters + " ", {}};
  EXPECT_EQ(none.cut(1, unit_named("subword")), 3);
  EXPECT_EQ(none.cut(3 * 99'999 - 1, unit_named("subword")), 300'000);
}

// A document is in one part; words of markers are in no vocabulary.
TEST(Corpus, PartsAreOfWholeDocuments) {
  TestFolder folder;
  std::string bytes;
  for (int i = 0; i < 20; ++i) bytes += "<doc>\n" + std::string(i % 7 + 1, static_cast<char>('a' + i)) + " x\n</doc>\n";
  write_file(folder / "text", bytes);
  DataConfig config;
  config.path = folder / "text", config.documents = "<doc> </doc>", config.split = {0.5, 0.25, 0.25},
  config.unit = "word";
  const Corpus corpus = load_corpus(config);
  int64_t documents = 0;
  for (const Tokens* part : {&corpus.train, &corpus.valid, &corpus.test}) {
    int64_t begin = 0;
    EXPECT_FALSE(part->documents().empty());
    for (const auto& document : part->documents()) {
      EXPECT_EQ(document.begin, begin);
      EXPECT_EQ(document.size(), 2);
      EXPECT_EQ(corpus.vocabulary.decode((*part)[begin + 1]), "x ");
      begin = document.end, ++documents;
    }
    EXPECT_EQ(part->size(), begin);
  }
  EXPECT_EQ(documents, 20);
  EXPECT_GE(corpus.vocabulary.bos(), 0);
  for (int32_t id = 2; id < corpus.vocabulary.bos(); ++id)
    EXPECT_EQ(corpus.vocabulary.decode(id).find("doc"), std::string::npos);
}

}  // namespace
}  // namespace lapse
