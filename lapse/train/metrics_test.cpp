#include "lapse/train/metrics.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "lapse/core/testing.h"
#include "lapse/ops/aten.h"

namespace lapse {
namespace {

TEST(Metrics, LinesAfterTheCheckpointAreCut) {
  TestFolder folder;
  {
    Metrics metrics(folder.path(), 0);
    for (int64_t n : {10, 20, 21}) metrics.record(n, "train", {{"loss", 1.0 / static_cast<double>(n)}});
  }
  std::ofstream(folder / "metrics.jsonl", std::ios::app) << R"({"update":40,"spl)";  // a process killed while it wrote
  { Metrics metrics(folder.path(), 20); }
  EXPECT_EQ(read_file(folder / "metrics.jsonl"),
            "{\"update\":10,\"split\":\"train\",\"loss\":0.1}\n{\"update\":20,\"split\":\"train\",\"loss\":0.05}\n");
  { Metrics metrics(folder.path(), 0); }
  EXPECT_EQ(read_file(folder / "metrics.jsonl"), "");
}

TEST(Metrics, LinesThatAreNoneOfOursAreNotTheNewest) {
  TestFolder folder;
  { Metrics(folder.path(), 0).record(10, "train", {{"loss", 0.5}}); }
  std::ofstream(folder / "metrics.jsonl", std::ios::app) << "{\"update\":20,\"split\":5}\n{\"update\":20}\n[1]\n";
  EXPECT_EQ(newest_of_training(folder.path(), 30)["loss"], 0.5);
}

TEST(Metrics, PartsOfABatchAreSummarised) {
  LayerReport a, b;
  a.memory_sum = 40, a.queries = 4, a.memory_max = 12, a.readable = 8, a.deleted = 4,
  a.told["span"] = at::tensor({1.f, 3.f}).view({1, 2});
  b.memory_sum = 102, b.queries = 4, b.memory_max = 40, b.readable = 12, b.deleted = 2,
  b.told["span"] = at::tensor({5.f, 7.f, 9.f, NAN}).view({1, 4});  // NaN: padding
  const auto layers = summarise(summaries({{a}, {b}}));
  EXPECT_EQ(layers.dump(), R"([{"memory_mean":17.75,"memory_max":40.0,"deleted":0.3,"span_mean":5.0,"span_max":9.0}])");
}

}  // namespace
}  // namespace lapse
