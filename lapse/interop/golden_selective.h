// What follows from the q, k and v of a golden file of selective attention.
#pragma once

#include "lapse/interop/golden_value.h"
#include "lapse/memory/table.h"

namespace lapse {

/// inputs: q, k, v, weight [B, H, N, D]. Gives, by the golden file's names: out, masking, memory_per_token, memory_max,
/// grad_q, grad_k, grad_v of sum(weight out) + eps memory_max / N, the ablations' outputs, and held.b and out_budget.b
/// for each budget b. Masking is found one token at a time, as decoding does.
Columns selective_outputs(const Columns& inputs, const GoldenMetadata& metadata);

}  // namespace lapse
