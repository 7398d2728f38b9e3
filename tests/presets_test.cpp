// The configurations of examples/: those of the papers are too large to train in a test, so here all are read and
// checked.
#include <gtest/gtest.h>

#include <algorithm>

#include "lapse/model/transformer.h"
#include "lapse/train/config.h"

namespace lapse {
namespace {

TEST(Presets, AreWholeConfigurations) {
  int count = 0;
  for (const auto& entry : fs::directory_iterator(LAPSE_EXAMPLES)) {
    if (entry.path().extension() != ".toml") continue;
    SCOPED_TRACE(entry.path().string());
    ++count;
    Config config;
    ASSERT_NO_THROW(read_config(config.sections(), entry.path()));
    EXPECT_NO_THROW(config.check());
    EXPECT_EQ(config.generates(), config.data.path.empty() && config.data.train_path.empty());
    EXPECT_EQ(config.train.threads, 0);
  }
  EXPECT_GE(count, 10);
}

// The paper's "140 M parameters", with the vocabulary of the whole WikiText-103.
TEST(Presets, WikiText103HasThePapersParameters) {
  Config config;
  read_config(config.sections(), fs::path(LAPSE_EXAMPLES) / "paper-wikitext103.toml");
  const int64_t words = 20000 * 1024 + 20000 * 256 + 160000 * 64 + 67735 * 16, projections = 1024 * (256 + 64 + 16);
  const int64_t layer = 4 * 1024 * 1024 + 2 * 1024 * 4096 + 4096 + 1024 + /*norms*/ 4 * 1024 + /*spans*/ 1025;
  const int64_t positions = 256 * 128, clusters = 3 * 1024;
  EXPECT_EQ(count_parameters(config.model, config.method(), token_ends(267735), config.train.block),
            words + projections + 8 * layer + positions + clusters);  // 138,048,888
}

// As many as transformers counts of t5-small, t5-base and t5-large, whose embedding has 32,128 rows.
TEST(Presets, T5sHaveTheirParameters) {
  for (const auto& [size, parameters] : {std::pair("small", 60506624), {"base", 222903552}, {"large", 737668096}}) {
    Config config;
    read_config(config.sections(), fs::path(LAPSE_EXAMPLES) / (std::string("paper-t5-") + size + ".toml"));
    EXPECT_EQ(count_parameters(config.model, config.method(), token_ends(32128), config.train.block), parameters)
        << size;
  }
}

}  // namespace
}  // namespace lapse
