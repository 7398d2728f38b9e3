// The base model: embedding, layers, output (docs/equations.md, "The base model").
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <vector>

#include "lapse/model/encoder.h"
#include "lapse/model/ends.h"
#include "lapse/model/layer.h"
#include "lapse/nn/positions.h"

namespace lapse {

/// The state of B streams: one table per layer and each stream's clock, the time of its next token.
struct ModelMemory {
  std::vector<MemoryTable> layers;
  at::Tensor clock;                     ///< [B] int64
  Stored stored = Stored::projections;  ///< what the tables hold
  std::vector<SourceRows> source = {};  ///< per layer: what an encoder made of the streams' sources; empty: nothing yet
  /// No clock is later: known without waiting for a GPU. Not known where a memory was made of another, or read.
  int64_t latest = kNever;
  /// An error ended the reading of a block half way, so that some tables hold it and others do not. No more is read.
  bool torn = false;

  /// Room for so many more tokens of each stream, as MemoryTable::reserve: to read them one by one. c10::Error unless
  /// projections are stored.
  void reserve(int64_t tokens);
  void to(at::Device device);
  int64_t bytes() const;
};

/// Of the table of a model's positions.
PositionSizes position_sizes(const ModelConfig& config, const MethodOptions& method, const ModelShape& shape);

/// The random draws of one block, made in a fixed order so that a resumed run repeats them. By default there are none:
/// no dropout, no layer drop, whole spans.
struct BlockDraws {
  double uniform = 1;
  std::optional<uint64_t> seed = {};
  std::vector<bool> dropped = {};  ///< per layer; empty: none
};

/// How many parameters a Transformer of these arguments has, without making it.
int64_t count_parameters(const ModelConfig& config, const MethodOptions& method, const ModelEnds& ends, int64_t block);

class Transformer {
 public:
  /// Fresh weights from `random` (docs/equations.md, "Initialisation").
  Transformer(const ModelConfig& config, const MethodOptions& method, const ModelEnds& ends, int64_t block,
              Random random);
  /// One that reads and predicts tokens of `vocabulary` kinds.
  Transformer(const ModelConfig& config, const MethodOptions& method, int64_t vocabulary, int64_t block, Random random)
      : Transformer(config, method, token_ends(vocabulary), block, std::move(random)) {}

  struct Result {
    at::Tensor logits;      ///< [B, K, outputs], or [P, outputs] of options.places; undefined with a target
    Likelihood likelihood;  ///< with options.target
    at::Tensor cost;        ///< the methods' costs, summed over layers: a scalar, 0 if there are none
    std::vector<LayerReport> reports;
  };
  /// Tokens [B, K] int64, the next of each stream, or what else the input reads: [B, K, ...]. Reads and updates
  /// `memory`. options.target may stay on the CPU, where it is found out what is scored. With stored projections K is
  /// free, 1 for instance, and the outputs do not depend on it. Error if the tokens are not of the memory's streams or
  /// not of the vocabulary; if the model has absolute positions and a stream grows longer than their table; also if an
  /// episode begins (BlockOptions::begins) and the model has them, or starts from zeros. A model with an encoder reads
  /// each stream's source (BlockOptions::source) with the stream's first block: Error if it never got one. After these
  /// errors `memory` is as it was. After others (too little memory, say) it may be torn: then go on from a copy that
  /// was made before (copies are cheap, but the next tokens copy the tables that they share), or begin anew.
  Result forward(const at::Tensor& tokens, ModelMemory& memory, const BlockOptions& options,
                 const BlockDraws& draws = {});
  /// The errors that `forward` finds before it reads anything, of all the streams' next tokens [B, K].
  void check(const at::Tensor& tokens, ModelMemory& memory, const BlockOptions& options) const;

  /// `forward` in steps, for callers that run one layer at a time. The embedding of tokens [B, K] at times clock[b],
  /// ...: [B, K, width]. The times must be within the context.
  at::Tensor embed(const at::Tensor& tokens, const at::Tensor& clock) const {
    return positions_->added_to(input_->embed(tokens), clock);
  }
  Ages ages() const { return positions_->ages(); }
  /// Of the last layer's output h [B, K, width] against targets [B, K].
  Likelihood likelihood(const at::Tensor& h, const at::Tensor& target) const;

  /// Streams that have seen nothing.
  ModelMemory begin(int64_t streams, Stored stored) const;
  MemoryTable begin_layer(int64_t layer, int64_t streams, Stored stored) const;  ///< one layer's table of them
  /// Begins these streams of a memory anew, at time 0; the others go on. Error if the memory is torn, or the model has
  /// an encoder.
  void reset(ModelMemory& memory, c10::ArrayRef<int64_t> streams) const;
  /// Memory of inputs as memory of projections, made with the present weights: to read with weights that learn. Error
  /// if it is torn. Where a method decides token by token what goes, rows beyond its budget are still there.
  ModelMemory projected(const ModelMemory& inputs) const;
  BlockDraws draw(Random& random) const;

  /// Names such as "layers.0.key", stable: checkpoints use them.
  NamedTensors parameters();
  int64_t parameter_count();
  /// Has from now on the parameters of a model of the same configuration, those of its forgetting method only where
  /// this one has the same: they are shared, not copied.
  void share(Transformer& other);
  /// Takes all parameters to a type or a device. Memories begun before stay where they are.
  void to(const at::TensorOptions& options);
  at::Device device() const { return device_; }
  /// From now on for reading only, and with memories begun from now on: the layers' and the output's matrices,
  /// positions of ages, and rows' keys and values in bfloat16, half the bytes; the sums, norms and what methods add
  /// stay float32.
  void to_bfloat16();
  void after_update();  ///< Method::after_update of each layer

  std::vector<Layer>& layers() { return layers_; }
  const std::vector<Layer>& layers() const { return layers_; }
  const ModelShape& shape() const { return shape_; }
  /// Whether the model has an encoder.
  bool reads_source() const { return encoder_ != nullptr; }
  /// The longest stream that the model reads; 0: any.
  int64_t context() const { return positions_->context(); }

 private:
  std::vector<SourceRows> encode(const BlockOptions& options, const BlockDraws& draws) const;
  /// What the output reads of a block: [B, K, width], or [P, width] of options.places. `result` gets costs and reports.
  at::Tensor hidden(const at::Tensor& tokens, ModelMemory& memory, const BlockOptions& options, const BlockDraws& draws,
                    Result& result);
  void require_room(int64_t tokens, ModelMemory& memory) const;
  at::Tensor one_by_one(const at::Tensor& tokens, ModelMemory& memory, const BlockOptions& options, Result& result);
  void predict(const at::Tensor& h, const BlockOptions& options, Result& result) const;

  ModelConfig config_;
  ModelShape shape_;
  at::Device device_ = at::kCPU;
  int64_t initial_rows_;
  std::unique_ptr<Input> input_;
  std::unique_ptr<Positions> positions_;
  std::unique_ptr<Encoder> encoder_;
  std::vector<Layer> layers_;
  Norm norm_;  // pre-norm only
  std::unique_ptr<Output> output_;
};

}  // namespace lapse
