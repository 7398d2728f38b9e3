#include "lapse/interop/golden_table.h"

#include <vector>

#include "lapse/core/error.h"
#include "lapse/forgetting/registry.h"
#include "lapse/interop/golden_selective.h"

namespace lapse {
namespace {

const std::vector<GoldenEntry>& golden_table() {
  static const std::vector<GoldenEntry> table = {
      {"fixed_span", {{"max_span", "attn_lim"}}, {{"initial_memory", "zeros"}}},
      {"adaptive_span",
       {{"max_span", "attn_lim"},
        {"ramp", "adapt_span_len"},
        {"loss", "adapt_span_loss"},
        {"per_layer", "adapt_span_layer"},
        {"trim_step", "adapt_span_trim_step"}},
       {{"initial_memory", "zeros"}},
       {{"span.fraction", "attn.attn.adaptive_span.mask.size_ratio"}}},
      {"compressive",
       {{"max_span", "attn_lim"}, {"rate", "compress_rate"}, {"size", "compress_size"}},
       {{"initial_memory", "zeros"}}},
      {"expire_span",
       {{"max_span", "attn_lim"},
        {"ramp", "expire_span_ramp"},
        {"loss", "expire_span_loss"},
        {"divisor", "expire_span_pre_div"},
        {"random_drop", "expire_span_noisy"}},
       {{"divide", "input"}, {"initial_memory", "zeros"}},
       {{"span.weight", "attn.attn.expire_span.span_predictor.weight"},
        {"span.bias", "attn.attn.expire_span.span_predictor.bias"}}},
      {"selective_attention", {{"memory_loss", "eps"}, {"cap", "tau"}}, {}, {}, selective_outputs},
  };
  return table;
}

}  // namespace

const GoldenEntry& golden_entry(const std::string& method) {
  find_method(method);
  for (const GoldenEntry& entry : golden_table())
    if (entry.method == method) return entry;
  fail("there are no golden files of " + method);
}

}  // namespace lapse
