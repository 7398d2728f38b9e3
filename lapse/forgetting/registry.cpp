#include "lapse/forgetting/registry.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "lapse/core/error.h"
#include "lapse/forgetting/adaptive_span.h"
#include "lapse/forgetting/compressive.h"
#include "lapse/forgetting/expire_span.h"
#include "lapse/forgetting/fixed_span.h"
#include "lapse/forgetting/h2o.h"
#include "lapse/forgetting/local.h"
#include "lapse/forgetting/local_global.h"
#include "lapse/forgetting/selective_attention.h"
#include "lapse/forgetting/sink_window.h"
#include "lapse/forgetting/strided.h"
#include "lapse/forgetting/tova.h"

namespace lapse {

const std::vector<MethodEntry>& method_table() {
  static const std::vector<MethodEntry> table = {
      {"fixed_span", "the newest L timesteps, as Transformer-XL", fixed_span_options},
      {"adaptive_span", "every head learns how far back it reads (Adaptive-Span)", adaptive_span_options},
      {"compressive", "the newest L timesteps, and averages of older ones (Compressive Transformer)",
       compressive_options},
      {"expire_span", "every memory predicts its own span and expires after it (Expire-Span)", expire_span_options},
      {"selective_attention",
       "tokens mask others for the tokens after them; the most masked are dropped (Selective "
       "Attention)",
       selective_attention_options},
      {"local", "the newest rows only; also reads models trained with another method", local_options},
      {"local_global", "three layers of the newest rows, then one that reads all, in turns; also reads other models",
       local_global_options},
      {"strided", "the newest rows and every n-th older one (Sparse Transformer); also reads other models",
       strided_options},
      {"sink_window", "the first rows of a stream and the newest (StreamingLLM); also reads other models",
       sink_window_options},
      {"h2o", "outside training, the newest rows and those that received most attention (H2O); also reads other models",
       h2o_options},
      {"tova", "outside training, drops what the newest query attends least (TOVA); also reads other models",
       tova_options},
  };
  return table;
}

std::vector<const MethodEntry*> untrained_methods() {
  std::vector<const MethodEntry*> methods;
  for (const auto& entry : method_table())
    if (entry.options()->adopts()) methods.push_back(&entry);
  return methods;
}

namespace {

/// The error lists, with or without those that must be trained, the methods that there are.
const MethodEntry& find(const std::string& name, bool trained) {
  const auto& table = method_table();
  if (const auto found = std::ranges::find(table, name, &MethodEntry::name); found != table.end()) return *found;
  std::vector<std::string> names;
  if (trained)
    for (const auto& entry : table) names.push_back(entry.name);
  else
    for (const auto* entry : untrained_methods()) names.push_back(entry->name);
  fail(fmt::format("unknown forgetting method '{}'{}; {}: {}", name, did_you_mean(name, names),
                   trained ? "there are" : "a trained run can be read with", fmt::join(names, ", ")));
}

}  // namespace

const MethodEntry& default_method() { return find_method("expire_span"); }
const MethodEntry& find_method(const std::string& name) { return find(name, /*trained=*/true); }
const MethodEntry& find_method_to_read_with(const std::string& name) { return find(name, /*trained=*/false); }

}  // namespace lapse
