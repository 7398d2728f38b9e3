#include "lapse/core/config_json.h"

#include <gtest/gtest.h>

namespace lapse {
namespace {

TEST(ConfigJson, HasEveryKindOfValue) {
  int64_t whole = 3;
  double real = 0.1;
  bool truth = true;
  std::string text = "a \"b\"";
  std::vector<double> reals = {0.9, 0.1};
  std::vector<int64_t> wholes = {};
  const Fields fields = {field("whole", whole, ""), field("real", real, ""),   field("truth", truth, ""),
                         field("text", text, ""),   field("reals", reals, ""), field("wholes", wholes, "")};
  EXPECT_EQ(to_json(fields).dump(),
            R"({"whole":3,"real":0.1,"truth":true,"text":"a \"b\"","reals":[0.9,0.1],"wholes":[]})");
  whole = 4;
  EXPECT_EQ(to_json(fields)["whole"], 4);
  EXPECT_EQ(to_json(Fields()).dump(), "{}");
}

}  // namespace
}  // namespace lapse
