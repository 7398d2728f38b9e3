// Our numbers against the golden files: of the public code, where they are at hand, and of the repository.
#include "lapse/interop/golden.h"

#include <gtest/gtest.h>

#include "lapse/core/golden_testing.h"
#include "lapse/ops/aten.h"

namespace lapse {
namespace {

class Golden : public testing::TestWithParam<std::tuple<const char*, at::ScalarType>> {};

void expect_model(const fs::path& path, at::ScalarType type) {
  const SafetensorsFile file(path);
  const auto errors = run_golden(file, type);
  ASSERT_GE(errors.size(), 4u);
  // The files are float32: a few of its roundings (6e-8), more in sums over many terms such as gradients.
  for (const auto& e : errors) {
    EXPECT_GT(e.tensors, 0);
    EXPECT_LE(e.error, e.what == "alive" ? 0 : e.what == "grad" ? 1e-5 : 4e-6) << e.what << " of " << e.tensor;
  }
}

void expect_operator(const fs::path& path) {
  const SafetensorsFile file(path);
  // The file is float64. In float32 budgets may part where two rows are masked alike; here they do not.
  for (const auto& [type, tolerance] : {std::pair(at::kDouble, 1e-13), std::pair(at::kFloat, 1e-5)}) {
    const auto errors = run_golden(file, type);
    ASSERT_EQ(errors.size(), 12u);
    for (const auto& e : errors) EXPECT_LE(e.error, e.what == "held" ? 0 : tolerance) << e.what << " of " << e.tensor;
  }
}

fs::path own_file(const std::string& name) { return fs::path(LAPSE_GOLDEN) / (name + ".safetensors"); }

TEST_P(Golden, AgreesWithThePublicCode) {
  const auto& [name, type] = GetParam();
  const fs::path path = golden_file(name);
  if (!fs::exists(path)) GTEST_SKIP() << no_golden_file(path);
  expect_model(path, type);
}

TEST(GoldenOperator, AgreesWithSelectiveAttention) {
  const fs::path path = golden_file("selective_attention");
  if (!fs::exists(path)) GTEST_SKIP() << no_golden_file(path);
  expect_operator(path);
}

// tests/make_golden.py wrote these, which are always here.
TEST(OwnGolden, AgreesWithTheReferenceModels) {
  for (const char* name : {"expire_span", "expire_span_pre_norm", "fixed_span"})
    for (const auto type : {at::kFloat, at::kDouble}) expect_model(own_file(name), type);
  expect_operator(own_file("selective_attention"));
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
