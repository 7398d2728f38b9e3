// Our numbers against the golden files.
#include "lapse/model/golden.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace lapse {
namespace {

class Golden : public testing::TestWithParam<std::tuple<const char*, at::ScalarType>> {};

TEST_P(Golden, AgreesWithThePublicCode) {
  const auto& [name, type] = GetParam();
  const fs::path path = fs::path(LAPSE_SHARED) / "golden" / (std::string(name) + ".safetensors");
  if (!fs::exists(path)) GTEST_SKIP() << "no golden file " << path;
  const SafetensorsFile file(path);
  const auto errors = run_golden(file, type);
  ASSERT_GE(errors.size(), 4u);
  // The files are float32: a few of its roundings (6e-8), more in sums over many terms such as gradients.
  for (const auto& e : errors) {
    EXPECT_GT(e.tensors, 0);
    EXPECT_LE(e.error, e.what == "alive" ? 0 : e.what == "grad" ? 1e-5 : 4e-6) << e.what << " of " << e.tensor;
  }
}

TEST(GoldenOperator, AgreesWithSelectiveAttention) {
  const fs::path path = fs::path(LAPSE_SHARED) / "golden" / "selective_attention.safetensors";
  if (!fs::exists(path)) GTEST_SKIP() << "no golden file " << path;
  const SafetensorsFile file(path);
  // The file is float64. In float32 budgets may part where two rows are masked alike; here they do not.
  for (const auto& [type, tolerance] : {std::pair(at::kDouble, 1e-13), std::pair(at::kFloat, 1e-5)}) {
    const auto errors = run_golden(file, type);
    ASSERT_EQ(errors.size(), 12u);
    for (const auto& e : errors) EXPECT_LE(e.error, e.what == "held" ? 0 : tolerance) << e.what << " of " << e.tensor;
  }
}

INSTANTIATE_TEST_SUITE_P(Files, Golden,
                         testing::Combine(testing::Values("fixed_span", "adaptive_span", "compressive", "expire_span",
                                                          "expire_span_prenorm", "expire_span_random_drop"),
                                          testing::Values(at::kFloat, at::kDouble)),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param)) + "_" + at::toString(std::get<1>(info.param));
                         });

}  // namespace
}  // namespace lapse
