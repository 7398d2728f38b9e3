// The gradient of queries when several tasks, each for some rows of the sample, contribute to it.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <mutex>
#include <vector>

#include "lapse/ops/attention/work.h"
#include "lapse/ops/parallel/parallel.h"

namespace lapse {

/// The gradient of q [B, K, H, D]. A sample's only task writes it; several keep what they have until `merge` adds it up
/// in their order, so that it depends on the cut but on no thread.
template <class T>
class QueryGradient {
 public:
  /// A task's part of the sum, over the blocks of queries [from, to) that see its rows.
  struct Part {
    int64_t from = 0, to = 0;
    at::Tensor sum;  ///< [to - from or more][H][queries][width], undefined if the task is the only one
  };

  explicit QueryGradient(const TiledCall<T>& call) : gradient(at::empty_like(call.q_tensor)), call_(call) {}

  Part part(int64_t from, int64_t to, bool only) {
    const int64_t blocks = std::max<int64_t>(to - from, 0);
    return {from, from + blocks, only ? at::Tensor() : spare()};
  }

  /// Zero gradients of sample b's queries before block `from` and from block `to` on, which see nothing.
  void clear(int64_t b, int64_t from, int64_t to) {
    auto none = [&](int64_t begin, int64_t end) {
      begin = std::min(begin * call_.queries, call_.K), end = std::min(end * call_.queries, call_.K);
      if (begin < end)
        std::memset(static_cast<void*>(gradient.mutable_data_ptr<T>() + call_.query_at(b, begin, 0)), 0,
                    (end - begin) * call_.H * call_.D * sizeof(T));
    };
    none(0, from), none(to, call_.query_blocks());
  }

  /// dq [width][lanes] of block j and head h, without the scale. room: [queries][width].
  void put(Part& part, int64_t b, int64_t j, int64_t h, const float* dq, float* room) {
    const auto width = static_cast<int>(call_.width), lanes = call_.lanes(j);
    float* to = part.sum.defined() ? at(part, j, h) : room;
    transpose(dq, lanes, to, width, width, lanes);
    if (!part.sum.defined()) write(b, j, h, to);
  }

  /// Adds up parts [first, first + count), those of sample b, and frees them.
  void merge(std::vector<Part>& parts, int64_t first, int64_t count, int64_t b) {
    Scratch& scratch = Scratch::of_thread();
    scratch.release();
    float* sum = scratch.take<float>(call_.queries * call_.width);
    for (int64_t j = 0; j < call_.query_blocks(); ++j)
      for (int64_t h = 0; h < call_.H; ++h) {
        const int64_t size = call_.lanes(j) * call_.width;
        std::fill_n(sum, size, 0.f);
        for (int64_t c = first; c < first + count; ++c)
          if (j >= parts[c].from && j < parts[c].to) add_to(sum, at(parts[c], j, h), size);
        write(b, j, h, sum);
      }
    const std::lock_guard lock(mutex_);
    for (int64_t c = first; c < first + count; ++c) free_.push_back(std::move(parts[c].sum));
  }

  at::Tensor gradient;

 private:
  /// Room for one part. Those that are done serve again: what threads allocate is not given back in between.
  at::Tensor spare() {
    const std::lock_guard lock(mutex_);
    if (free_.empty())
      return at::empty({call_.query_blocks(), call_.H, call_.queries, call_.width},
                       gradient.options().dtype(at::kFloat));
    at::Tensor spare = std::move(free_.back());
    free_.pop_back();
    return spare;
  }

  float* at(Part& part, int64_t j, int64_t h) const {
    return part.sum.template mutable_data_ptr<float>() + ((j - part.from) * call_.H + h) * call_.queries * call_.width;
  }

  void write(int64_t b, int64_t j, int64_t h, const float* dq) {
    const int64_t first = j * call_.queries;
    T* to = gradient.mutable_data_ptr<T>() + call_.query_at(b, first, h);
    store_lines(dq, call_.width, std::min<int64_t>(call_.queries, call_.K - first), call_.D, 1 / call_.unit,
                Lines<T>{to, call_.H * call_.D});
  }

  const TiledCall<T>& call_;
  std::mutex mutex_;
  std::vector<at::Tensor> free_;
};

}  // namespace lapse
