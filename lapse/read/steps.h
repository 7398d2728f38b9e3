// Streams read one token at a time, on a GPU by a graph.
#pragma once

#include <memory>
#include <vector>

#include "lapse/model/transformer.h"
#include "lapse/ops/graph.h"

namespace lapse {

/// On a GPU a token is hundreds of short kernels, and the host takes longer to ask for them than the GPU to run them.
/// Where a memory has room (MemoryTable::reserve) one token's step differs from the next one's in nothing but the token
/// and what the device itself counts: one is recorded, the others are replays of it. When the room is full, a step
/// without a graph deletes the rows that no query reads and makes room anew; the next is recorded again.
class Steps {
 public:
  /// The model must outlive it, and its weights stay as and where they are. `room` tokens have room at a time, or more:
  /// to record a step takes about as long as one without a graph, and to make room copies the memory.
  explicit Steps(Transformer& model, int64_t room = 256);
  ~Steps();

  /// The logits [B, V] after the next token of each stream, [B] int64; they last until the next call. As
  /// Transformer::forward with no gradients; a model with an encoder has read its source. What cannot be recorded is
  /// read without a graph.
  at::Tensor operator()(const at::Tensor& tokens, ModelMemory& memory);

  /// How many calls so far were replays.
  int64_t replays() const { return replays_; }

 private:
  using Addresses = std::vector<const void*>;

  Addresses addresses(const ModelMemory& memory) const;
  bool record(ModelMemory& memory, Addresses now);
  at::Tensor replay(const at::Tensor& tokens, ModelMemory& memory);

  Transformer& model_;
  int64_t room_;
  bool records_;                  // whether device and method allow it, and it has not failed
  std::unique_ptr<Graph> graph_;  // the last one recorded, or null
  Addresses recorded_;            // what it depends on; empty: nothing is recorded
  at::Tensor tokens_, logits_;    // where it reads and writes
  at::Tensor ordinary_;           // the last logits without a graph
  int64_t replays_ = 0;
};

}  // namespace lapse
