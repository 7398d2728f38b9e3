// What a block's queries do with each of its rows, for pictures.
#pragma once

#include "lapse/nn/block.h"

namespace lapse {

/// LayerReport::pairs. c10::Error if samples have different numbers of rows: the block must be read from empty memory.
Columns pairs_of(const Method& method, const Query& query, const Rows& rows, Pairs pairs);

}  // namespace lapse
