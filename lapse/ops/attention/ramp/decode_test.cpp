// A few queries against the reference in float64, on every instruction set.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "lapse/ops/aten.h"
#include "lapse/ops/attention/ramp/ramp_attention.h"
#include "lapse/ops/attention/ramp/ramp_testing.h"
#include "lapse/ops/parallel/instruction_set_testing.h"
#include "lapse/ops/poison_testing.h"

namespace lapse {
namespace {

using at::Tensor;

// The widths whose loops are unrolled, and others; heads in fours and single ones, with keys of their own or shared.
TEST(RampAttentionDecode, AgreesAtEveryWidth) {
  const Threads one(1);
  const Poison poison;
  Random random(11, "widths");
  const int64_t K = 2, n = 150;
  for (int64_t target : InstructionSet::all())
    for (const auto type : {at::kFloat, at::kBFloat16})
      for (int64_t D : {32, 64, 96, 128})
        for (const auto& [G, group] : {std::pair<int64_t, int64_t>{1, 1}, {6, 1}, {3, 2}})
          for (const bool positions : {true, false}) {
            const InstructionSet scope(target);
            AttentionInputs x = {random_normal({1, K, G * group, D}, random).to(type),
                                 random_normal({n, G, D}, random).to(type),
                                 random_normal({n, G, D}, random).to(type),
                                 at::arange(2, at::kLong) * n,
                                 at::full({1}, n, at::kLong),
                                 at::arange(n, at::kLong)};
            RampOptions o;
            if (positions) o.position = random_normal({n / 2, D}, random).to(type);
            AttentionInputs wide = x;
            RampOptions p = o;
            for (Tensor* t : {&wide.q, &wide.k, &wide.v}) *t = t->to(at::kDouble);
            if (positions) p.position = o.position->to(at::kDouble);
            const auto y = ramp_attention(x, o), z = ramp_attention_reference(wide, p);
            const auto text =
                fmt::format("D {}, {} heads of {}, positions {}, target {}", D, G, group, positions, target);
            EXPECT_LE(error_between(y.out, z.out), type == at::kFloat ? 1e-5 : 1. / 256) << text;
            EXPECT_LE(error_between(y.stats, z.stats), 1e-5) << text;
          }
}

}  // namespace
}  // namespace lapse
