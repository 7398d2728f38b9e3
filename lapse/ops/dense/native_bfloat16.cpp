#include "lapse/ops/dense/native_bfloat16.h"

#if defined(__x86_64__)

#include <immintrin.h>

#define LAPSE_BFLOAT16 __attribute__((target("avx512f,avx512bw,avx512vl,avx512bf16")))

namespace lapse {

bool rounds_to_bfloat16() {
  static const bool has = __builtin_cpu_supports("avx512bf16");
  return has;
}

LAPSE_BFLOAT16 void native_to_bfloat16(const float* x, uint16_t* to, int64_t n) {
  int64_t i = 0;
  for (; i + 32 <= n; i += 32) {
    const __m512bh both = _mm512_cvtne2ps_pbh(_mm512_loadu_ps(x + i + 16), _mm512_loadu_ps(x + i));
    _mm512_storeu_si512(to + i, reinterpret_cast<__m512i>(both));
  }
  for (; i < n; i += 16) {
    const __mmask16 left = n - i >= 16 ? 0xFFFF : static_cast<__mmask16>((1 << (n - i)) - 1);
    const __m256bh some = _mm512_cvtneps_pbh(_mm512_maskz_loadu_ps(left, x + i));
    _mm256_mask_storeu_epi16(to + i, left, reinterpret_cast<__m256i>(some));
  }
}

LAPSE_BFLOAT16 void native_to_pairs(const float* x, uint16_t* to, int rows, int columns) {
  // Of two joined vectors, the even line's 16 numbers and then the odd one's, in turns.
  alignas(64) uint16_t order[32];
  for (int i = 0; i < 16; ++i)
    order[2 * i] = static_cast<uint16_t>(i), order[2 * i + 1] = static_cast<uint16_t>(16 + i);
  const __m512i turns = _mm512_load_si512(order);
  for (int i = 0; i < rows; i += 2)
    for (int j = 0; j < columns; j += 16) {
      const float* even = x + i * columns + j;
      const __m512bh both = _mm512_cvtne2ps_pbh(_mm512_loadu_ps(even + columns), _mm512_loadu_ps(even));
      _mm512_storeu_si512(to + i * columns + 2 * j, _mm512_permutexvar_epi16(turns, reinterpret_cast<__m512i>(both)));
    }
}

}  // namespace lapse

#else

namespace lapse {

bool rounds_to_bfloat16() { return false; }
void native_to_bfloat16(const float*, uint16_t*, int64_t) {}
void native_to_pairs(const float*, uint16_t*, int, int) {}

}  // namespace lapse

#endif
