// The configurations of examples/: those of the papers are too large to train in a test, so here all are read and
// checked.
#include <gtest/gtest.h>

#include <algorithm>

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
    EXPECT_EQ(config.generates(), config.data.path.empty());
    EXPECT_EQ(config.train.threads, 0);
  }
  EXPECT_GE(count, 10);
}

}  // namespace
}  // namespace lapse
