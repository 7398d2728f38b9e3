// One model that reads a text token by token, watched: side by side several lanes read the same one.
#pragma once

#include <memory>
#include <vector>

#include "lapse/observe/stream.h"
#include "lapse/serve/library.h"

namespace lapse {

class Lane {
 public:
  explicit Lane(std::shared_ptr<const Opened> opened);

  /// All that reading has changed. Copies are cheap; the next token after one costs a copy of the memory.
  struct State {
    ModelMemory memory;
    at::Tensor logits;
    Stream stream;
  };
  const State& state() const { return state_; }
  void restore(const State& state) { state_ = state; }

  /// The bits with which the present logits predict a token; NaN before the first.
  double bits(int32_t token) const;
  void read(int32_t token);
  /// What the last token changed, layer by layer; asked for once.
  std::vector<LayerChange> take_changes() { return state_.stream.take_changes(); }
  /// With what weight each head would read the row of this time if the token came next, layer by layer; empty where a
  /// layer does not hold it. Changes nothing.
  std::vector<std::vector<double>> reads(int32_t token, int64_t time) const;

  const Opened& opened() const { return *opened_; }
  Transformer& model() const { return *opened_->model; }
  int64_t layers() const { return std::ssize(opened_->model->layers()); }

 private:
  at::Tensor one(int32_t token) const;

  std::shared_ptr<const Opened> opened_;
  State state_;
};

/// Lane::reads, from the reports of a forward with Pairs::reads.
std::vector<std::vector<double>> weights_of(const std::vector<LayerReport>& reports, int64_t time);

}  // namespace lapse
