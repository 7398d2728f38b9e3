#include "lapse/nn/positions.h"

#include <algorithm>
#include <cmath>

#include "lapse/core/error.h"
#include "lapse/nn/buckets.h"
#include "lapse/nn/initialise.h"
#include "lapse/ops/aten.h"

namespace lapse {
namespace {

using at::Tensor;

// Positions of times start small beside the tokens' embeddings, which are N(0, 1).
constexpr double kTimeScale = 0.1;

/// q.p_a is added to the logits of rows of age a: a table [ages, head_dim], N(0, 1).
class AgePositions : public Positions {
 public:
  AgePositions(const PositionSizes& sizes, Random& random)
      : Positions(normal_parameter({sizes.ages, sizes.head_dim}, random)) {}

  Ages ages() const override { return {table_, {}}; }
  void to_bfloat16() override { table_ = table_.detach().to(at::kBFloat16); }
};

/// T5's: a bias per head and bucket of ages [kBuckets, heads], N(0, 1/sqrt(width)).
class BucketPositions : public Positions {
 public:
  BucketPositions(const PositionSizes& sizes, Random& random)
      : Positions(normal_parameter({kBuckets, sizes.heads}, random, 1 / std::sqrt(static_cast<double>(sizes.width)))),
        buckets_(buckets_by_age(sizes.bucket_distance, sizes.both_ways)) {}

  Ages ages() const override { return {{}, bias_by_age(table_, buckets_)}; }

 private:
  std::vector<int64_t> buckets_;
};

/// GPT's: an embedding of each time 0 ... block - 1 is added to the token's [block, width].
class TimePositions : public Positions {
 public:
  TimePositions(const PositionSizes& sizes, Random& random)
      : Positions(normal_parameter({sizes.block, sizes.width}, random)) {
    table_.detach().mul_(kTimeScale);
  }

  int64_t context() const override { return table_.size(0); }

  Tensor added_to(const Tensor& h, const Tensor& clock) const override {
    return h + at::embedding(table_, clock.unsqueeze(1) + at::arange(h.size(1), clock.options()));
  }
};

template <class Kind>
std::unique_ptr<Positions> make(const PositionSizes& sizes, Random& random) {
  return std::make_unique<Kind>(sizes, random);
}

}  // namespace

Tensor Positions::added_to(const Tensor& h, const Tensor&) const { return h; }

const std::vector<PositionKind>& position_table() {
  static const std::vector<PositionKind> table = {
      {"relative", "embeddings of ages, in attention, for streams without end", make<AgePositions>},
      {"absolute",
       "embeddings of times, added to the tokens', for windows of at most train.block tokens (data.windows)",
       make<TimePositions>, /*windows=*/true},
      {"buckets", "a bias of attention logits per head and bucket of ages, as in T5", make<BucketPositions>,
       /*windows=*/false, /*both_ways=*/true, /*bucketed=*/true},
  };
  return table;
}

const PositionKind& position_kind(const std::string& name) {
  const auto found = std::ranges::find(position_table(), name, &PositionKind::name);
  if (found == position_table().end()) fail("model.positions = \"" + name + "\" is unknown");
  return *found;
}

}  // namespace lapse
