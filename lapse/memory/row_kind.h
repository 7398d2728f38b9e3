// What a row of memory stands for. Its time says when, never what.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <limits>

namespace lapse {

enum class RowKind : uint8_t {
  token = 0,   ///< one timestep
  first = 1,   ///< the first timestep of a stream, a document or an episode
  start = 2,   ///< a zero vector that a stream starts from, at a time before 0
  pooled = 3,  ///< several timesteps, of which its time is the first
  spare = 4,   ///< nothing yet: room for a row to come, at kSpareTime
};

/// Which of the rows are of this kind. kinds: uint8 of any shape; bool of the same.
at::Tensor is_kind(const at::Tensor& kinds, RowKind kind);
/// Which stand for one token that was read: RowKind::token or RowKind::first.
at::Tensor is_token(const at::Tensor& kinds);

/// The time of no query: a row that is read until then is read for ever.
constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
/// The time of spare rows, after every query; differences of times up to this fit int64.
constexpr int64_t kSpareTime = int64_t{1} << 61;

}  // namespace lapse
