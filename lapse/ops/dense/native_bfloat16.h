// Rounding to bfloat16 by the processor's own instruction, which Highway 1.0 does not know. No torch here.
#pragma once

#include <cstdint>

namespace lapse {

/// Whether this processor has that instruction (AVX512_BF16), and with it products in pairs (simd_pairs.inc). It rounds
/// to the nearest, ties to even, as matrix_passes.h does otherwise, but takes denormal numbers, below 1.2e-38, for 0.
bool rounds_to_bfloat16();

/// As to_bfloat16 and to_pairs of matrix_passes.h, where rounds_to_bfloat16().
void native_to_bfloat16(const float* x, uint16_t* to, int64_t n);
void native_to_pairs(const float* x, uint16_t* to, int rows, int columns);

}  // namespace lapse
