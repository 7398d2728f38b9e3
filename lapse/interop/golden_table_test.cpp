#include "lapse/interop/golden_table.h"

#include <gmock/gmock.h>

#include <set>

#include "lapse/core/testing.h"
#include "lapse/forgetting/registry.h"

namespace lapse {
namespace {

using testing::HasSubstr;

bool has_option(MethodOptions& options, const std::string& name) {
  for (const Field& field : options.fields())
    if (field.name == name) return true;
  return false;
}

// Else a file's value would be passed over in silence.
TEST(GoldenTable, NamesOptionsAndParametersThatTheMethodHas) {
  for (const char* name : {"fixed_span", "adaptive_span", "compressive", "expire_span", "selective_attention"}) {
    const GoldenEntry& entry = golden_entry(name);
    const auto options = find_method(name).options();
    for (const auto& names : {entry.options, entry.constants})
      for (const auto& [option, value] : names) EXPECT_TRUE(has_option(*options, option)) << name << "." << option;
    Random random(1, "weights");
    const auto layer = options->make({.layers = 1, .width = 4, .heads = 2, .head_dim = 2, .block = 4}, 0, random);
    std::set<std::string> ours, mapped;
    for (const auto& [parameter, tensor] : layer->parameters()) ours.insert(parameter);
    for (const auto& [parameter, theirs] : entry.parameters) mapped.insert(parameter);
    EXPECT_EQ(mapped, ours) << name;
  }
}

TEST(GoldenTable, SaysWhichMethodsHaveNoFiles) {
  EXPECT_THAT(error_of([] { golden_entry("local"); }), HasSubstr("no golden files of local"));
  EXPECT_THAT(error_of([] { golden_entry("expire_spam"); }), HasSubstr("did you mean 'expire_span'"));
}

}  // namespace
}  // namespace lapse
