#include "lapse/observe/report.h"

#include <gtest/gtest.h>

namespace lapse {
namespace {

TEST(Report, NothingBreaksOutOfItsScript) {
  EXPECT_EQ(embeddable(R"({"a":"</script>&"})"), R"({"a":"\u003c/script\u003e\u0026"})");
}

TEST(Report, AnEmptyRecordIsAPage) {
  const auto page = html_report({}, {}, {.title = "<b>&\"{{style}}"});
  EXPECT_NE(page.find("<title>&lt;b&gt;&amp;&quot;{{style}}</title>"), std::string::npos);
  EXPECT_EQ(page.find("<b>"), std::string::npos);
  EXPECT_NE(page.find("</html>"), std::string::npos);
}

}  // namespace
}  // namespace lapse
