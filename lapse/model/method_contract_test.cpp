// What the registry and the layers ask of a method, besides its numbers (forgetting/method.h).
#include <gtest/gtest.h>

#include <map>

#include "lapse/model/transformer_testing.h"
#include "lapse/ops/aten.h"
#include "lapse/ops/attention/ramp/ramp_attention.h"

namespace lapse {
namespace {

using at::Tensor;

TEST(MethodTable, NamesAreThoseOfTheOptions) {
  for (const auto& entry : method_table()) EXPECT_EQ(entry.options()->name(), entry.name);
}

// A checkpoint keeps parameters alone, and is read by a model whose first weights came from another stream.
TEST(MethodTable, LayersFollowFromTheirParameters) {
  const Tensor tokens = random_tokens(2, 40);
  for (const auto& entry : method_table()) {
    const auto options = method_options(entry.name);
    const auto trained = tiny_model(tiny_config("post"), *options, at::kFloat, 1);
    const auto read = tiny_model(tiny_config("post"), *options, at::kFloat, 2);
    EXPECT_GT(difference(run(*read, false, tokens, {8, 32}), run(*trained, false, tokens, {8, 32})), 0) << entry.name;
    std::map<std::string, Tensor*> from;
    for (auto& [name, tensor] : trained->parameters()) from[name] = tensor;
    for (auto& [name, tensor] : read->parameters()) tensor->detach().copy_(*from.at(name));
    EXPECT_EQ(difference(run(*read, false, tokens, {8, 32}), run(*trained, false, tokens, {8, 32})), 0) << entry.name;
  }
}

/// Rows live for 5 timesteps, and are described by a column of the given name.
class Describing : public Method {
 public:
  Describing(std::string column, const ModelShape& shape) : column_(std::move(column)), shape_(shape) {}
  Columns describe(const Tensor& x) const override { return {{column_, at::full({x.size(0)}, 5, at::kLong)}}; }
  Tensor first(const RowView& rows) const override { return rows.time + shape_.min_age; }
  Tensor until(const RowView& rows) const override { return rows.time + rows.described.at(column_); }
  Reading read(const Query& query, const Rows& rows) const override {
    return {ramp_attention(ramp_inputs(query, rows), ramp_options(query, shape_)).out};
  }

 private:
  std::string column_;
  ModelShape shape_;
};

class DescribingOptions : public MethodOptions {
 public:
  explicit DescribingOptions(std::string column) : column_(std::move(column)) {}
  std::string name() const override { return "describing"; }
  Fields fields() override { return {}; }
  int64_t longest(const ModelShape&) const override { return 5; }
  int64_t positions(const ModelShape&) const override { return 5; }
  int64_t initial_rows(const ModelShape&) const override { return 0; }
  std::unique_ptr<Method> make(const ModelShape& shape, int64_t, Random&) const override {
    return std::make_unique<Describing>(column_, shape);
  }

 private:
  std::string column_;
};

TEST(MethodColumns, AreNotThoseOfEveryTable) {
  const Tensor tokens = random_tokens(2, 12);
  for (const bool training : {true, false}) {
    for (const char* name : {"time", "kind", "until", "hidden", "key", "value"}) {
      const auto m = tiny_model(tiny_config("post"), DescribingOptions(name), at::kFloat);
      try {
        run(*m, training, tokens, {12});
        FAIL() << name;
      } catch (const c10::Error& error) {
        EXPECT_NE(std::string(error.what()).find(std::string("a column '") + name + "'"), std::string::npos);
      }
    }
    const auto m = tiny_model(tiny_config("post"), DescribingOptions("lifetime"), at::kFloat);
    EXPECT_LE(difference(run(*m, training, tokens, {4, 4, 4}), run(*m, training, tokens, {12})), 1e-5);
  }
}

}  // namespace
}  // namespace lapse
