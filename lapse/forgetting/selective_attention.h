// Selective Attention: tokens mask others for the tokens after them, and what is masked most is dropped (Leviathan et
// al. 2024; docs/equations.md, "Selective attention").
#pragma once

#include <memory>

#include "lapse/forgetting/method.h"

namespace lapse {

std::unique_ptr<MethodOptions> selective_attention_options();

}  // namespace lapse
