#include "lapse/ops/attention/cuda/plan.h"

#include <bit>
#include <cmath>
#include <limits>

#include "lapse/ops/aten.h"
#include "lapse/ops/waiting.h"

namespace lapse::cuda {

using at::Tensor;

namespace {

constexpr int64_t kForEver = int64_t{1} << 62;                  // beyond every age
constexpr int64_t kLines = 7, kBuckets = 16;                    // LINES, BUCKETS of rows.py
constexpr int64_t kMost = std::numeric_limits<int32_t>::max();  // kernels find a place by 32 bits
constexpr int64_t kMostRows = kMost / kLines;

/// Of what has `each` numbers for each block of each sample's rows, as many blocks as the longest sample has.
void check_blocks(int64_t samples, int64_t blocks, int64_t each, int64_t most) {
  TORCH_CHECK(samples * blocks * each <= kMost, "CUDA: ", samples, " samples of up to ", most,
              " rows in one call are too many for the kernels; read fewer samples at once");
}

}  // namespace

int64_t blocks_of(int64_t n, int64_t size) { return std::max<int64_t>(1, (n + size - 1) / size); }
int64_t kernel_width(int64_t width) { return width <= 64 ? 64 : width <= 128 ? 128 : 0; }

std::string kernel_kind(const Tensor& q, int64_t width) {
  const auto type = q.scalar_type();
  const char* element = type == at::kFloat ? "fp32" : type == at::kBFloat16 ? "bf16" : type == at::kHalf ? "fp16" : "";
  const int64_t padded = kernel_width(width);
  return *element == '\0' || padded == 0 ? "" : std::string(element) + "." + std::to_string(padded);
}

Tensor aligned(const Tensor& x) {
  const Tensor y = x.contiguous();
  return reinterpret_cast<uintptr_t>(y.const_data_ptr()) % kAlignment == 0 ? y : y.clone();
}

Tensor as_floats(const Tensor& x) { return aligned(x.to(at::kFloat)); }
Tensor as_floats(const std::optional<Tensor>& x, const Tensor& absent) { return x ? as_floats(*x) : absent; }

Tensor widened(const Tensor& x, int64_t width) {
  const int64_t more = width - x.size(-1);
  return aligned(more > 0 ? at::constant_pad_nd(x, {0, more}) : x);  // padding keeps the order of strides
}

double kept_scale(double dropout) { return 1 / (1 - dropout); }
int64_t drop_threshold(double dropout) { return static_cast<int64_t>(std::ceil(dropout * (1 << 24))); }
Tensor seed_on(const std::optional<Tensor>& seed, const Tensor& like) {
  return seed ? aligned(sent(*seed, like.device())) : at::zeros({1}, like.options().dtype(at::kLong));
}

SeenRows plan_rows(const AttentionInputs& x, const CoreOptions& o) {
  Kernels& kernels = Kernels::get();
  const int64_t B = x.q.size(0), K = x.q.size(1), N = std::max<int64_t>(1, x.time.numel());
  const auto floats = x.time.options().dtype(at::kFloat), ints = floats.dtype(at::kInt);
  TORCH_CHECK(N <= kMostRows, "CUDA: ", N, " rows in one call; the kernels take no more than ", kMostRows);
  SeenRows seen;
  const auto* offsets = x.offsets.const_data_ptr<int64_t>();
  for (int64_t b = 0; b < B; ++b) seen.most = std::max(seen.most, offsets[b + 1] - offsets[b]);
  const int64_t chunks = blocks_of(seen.most, kChunk);
  const bool by_age = o.position || o.age_bias;  // what row_spans = 1 and 2 mean: _buckets of rows.py
  check_blocks(B, chunks, kBuckets, seen.most);
  seen.offsets = sent(x.offsets, x.time.device());
  Tensor span = o.row_span    ? as_floats(*o.row_span)
                : o.head_span ? as_floats(*o.head_span).amin(0, /*keepdim=*/true)
                              : at::full({1}, INFINITY, floats);
  const Tensor start = aligned(x.start), time = aligned(x.time);
  const Tensor until = x.until ? aligned(*x.until) : time;
  const Tensor counts = at::empty({B, kBuckets, chunks}, ints), ramp_sums = at::empty({B, chunks}, floats);
  seen.count = at::empty({B}, ints);
  seen.packed = at::empty({kLines, N}, ints);
  Arguments arguments;
  arguments.set("offsets", seen.offsets).set("start", start).set("time", time).set("until", until).set("span", span);
  arguments.set("counts", counts).set("ramp_sums", ramp_sums).set("packed", seen.packed);
  arguments.set("count", seen.count).set("N", N).set("K", K).set("chunks", chunks).set("ramp", o.ramp);
  arguments.set("steps", static_cast<int64_t>(std::bit_width(static_cast<uint64_t>(K))));
  arguments.set("min_age", std::max(o.min_age, -kForEver)).set("max_age", std::min(o.max_age, kForEver));
  arguments.set("has_until", int64_t{x.until.has_value()}).set("row_spans", int64_t{o.row_span ? by_age ? 1 : 2 : 0});
  arguments.set("span_stride", int64_t{o.row_span.has_value()});
  kernels.find("rows_count").launch({chunks, B}, arguments, x.q);
  kernels.find("rows_pack").launch({chunks, B}, arguments, x.q);
  seen.ramp_sum = ramp_sums.sum(1);
  seen.span_row = o.row_span.has_value(), seen.span_head = o.head_span.has_value();
  seen.spans = o.head_span ? as_floats(*o.head_span) : span;
  return seen;
}

void check_places(const Tensor& x) {
  TORCH_CHECK(x.numel() / 16 <= kMost, "CUDA: ", x.size(0), " rows of ", x.numel() / std::max<int64_t>(1, x.size(0)),
              " features in one call are too many for the kernels; read fewer samples at once");
}

Tensor plan_ranges(const SeenRows& seen, int64_t rows, int64_t whole_age) {
  const int64_t B = seen.count.size(0), blocks = blocks_of(seen.most, rows);
  check_blocks(B, blocks, 4, seen.most);
  Tensor ranges = at::empty({B, blocks, 4}, seen.count.options());
  Arguments arguments;
  arguments.set("offsets", seen.offsets).set("packed", seen.packed).set("count", seen.count).set("ranges", ranges);
  arguments.set("N", seen.stride()).set("blocks", blocks).set("whole_age", whole_age);
  Kernels::get().find("block_ranges." + std::to_string(rows)).launch({blocks, B}, arguments, seen.count);
  return ranges;
}

Tensor of_rows(const AttentionInputs& x, at::IntArrayRef more, at::ScalarType type) {
  const auto* offsets = x.offsets.const_data_ptr<int64_t>();
  const bool all = offsets[0] == 0 && offsets[x.q.size(0)] == x.k.size(0);
  std::vector<int64_t> shape{x.k.size(0)};
  shape.insert(shape.end(), more.begin(), more.end());
  const auto options = x.q.options().dtype(type);
  return all ? at::empty(shape, options) : at::zeros(shape, options);
}

Lists plan_lists(const Tensor& ranges, int64_t K, int64_t queries) {
  const int64_t B = ranges.size(0), blocks = ranges.size(1), query_blocks = (K + queries - 1) / queries;
  Lists made{at::empty({B, query_blocks, blocks}, ranges.options()), at::empty({B, query_blocks, 2}, ranges.options())};
  Arguments arguments;
  arguments.set("ranges", ranges).set("lists", made.lists).set("counts", made.counts).set("K", K).set("blocks", blocks);
  Kernels::get().find("block_lists." + std::to_string(queries)).launch({query_blocks, B}, arguments, ranges);
  return made;
}

bool few_queries(const AttentionInputs& x) {
  return x.q.size(1) <= kFewOnGpu && x.q.size(0) * x.q.size(1) <= kMostOnGpu && x.q.size(2) <= 32 * x.k.size(1);
}

FewParts few_parts(const AttentionInputs& x, int64_t size) {
  constexpr int64_t kPrograms = 264;  // at most: they fill a large GPU twice, and few more would wait for them
  const int64_t lines = x.q.size(0) * x.q.size(1) * x.k.size(1);
  int64_t most = 0;
  const auto* offsets = x.offsets.const_data_ptr<int64_t>();
  for (int64_t b = 0; b < x.q.size(0); ++b) most = std::max(most, offsets[b + 1] - offsets[b]);
  const int64_t parts = std::max<int64_t>(1, std::min(kPrograms / lines, blocks_of(most, size)));
  return {parts, blocks_of(blocks_of(most, parts), size) * size};
}

}  // namespace lapse::cuda
