// Checkpoints: safetensors files DIR/checkpoints/update-NNNNNNNN.safetensors that hold a whole run.
//
//   weight.NAME                parameters
//   optimiser.SLOT.NAME        moments
//   memory.PART.clock, memory.PART.LAYER.offsets, memory.PART.LAYER.COLUMN
//   feed.NAME                  where the feed is (Feed::tensors)
//   metadata                   lapse.format, config (TOML), vocabulary (JSON), state (JSON: update, data position,
//                              random counters, sums of the metrics, validation history)
#pragma once

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "lapse/core/safetensors.h"
#include "lapse/data/vocabulary.h"
#include "lapse/model/transformer.h"
#include "lapse/train/config.h"
#include "lapse/train/optimiser.h"
#include "lapse/train/run_folder.h"

namespace lapse {

/// An opened checkpoint: what is needed to build its model, and the rest on demand. Copies share what was read.
class Checkpoint {
 public:
  /// A checkpoint file, or a run's folder: its newest checkpoint that is whole. A truncated or altered one is named on
  /// stderr and the one before it is used. Error if there is none.
  static Checkpoint open(const fs::path& run_or_file);
  explicit Checkpoint(const fs::path& file);

  const SafetensorsFile& file() const { return *file_; }
  const fs::path& path() const { return path_; }
  /// Releases the file's bytes, of which copies of this have a share; afterwards only the path, the configuration and
  /// the vocabulary can be asked for.
  void close() { file_.reset(); }
  /// As the run was trained.
  const Config& config() const { return *config_; }
  const Vocabulary& vocabulary() const { return vocabulary_; }
  const std::string& state() const { return file_->meta("state"); }

  /// The model as trained, or read with other options, perhaps of another method (MethodOptions::adopt).
  std::unique_ptr<Transformer> model() const { return model(config_->method()); }
  std::unique_ptr<Transformer> model(const MethodOptions& method) const;
  /// The same without the weights, which need no file.
  std::unique_ptr<Transformer> fresh_model(const MethodOptions& method) const;
  /// Copies the weights into a model of the same shape. Error if the shapes differ, a number is not finite, or the file
  /// has more weights than the model. Only those of the forgetting method are passed over, if the model has another:
  /// `method`.
  void load_weights(Transformer& model, const std::string& method) const;
  /// Error if the optimiser is another one.
  void load_optimiser(Optimiser& optimiser) const;
  /// In the parts in which it was saved. Error if it is not of this model.
  std::vector<ModelMemory> memory(Transformer& model) const;
  Columns feed() const;  ///< Feed::tensors

  /// Writes the checkpoint with another configuration.
  void save_as(const fs::path& path, const Config& config) const;

 private:
  void require_sizes(const MethodOptions& method) const;
  std::set<std::string> weights_of_method() const;  ///< of the forgetting method, as trained
  MemoryTable table(const std::string& prefix, const at::Tensor& clock, int64_t samples) const;

  fs::path path_;
  std::shared_ptr<const SafetensorsFile> file_;
  std::shared_ptr<const Config> config_;
  Vocabulary vocabulary_;
};

/// What a checkpoint holds of memory whose parts are number `first` and the next.
Columns memory_tensors(const std::vector<ModelMemory>& parts, int64_t first);

/// Writes beside and renames; then deletes all but the newest `keep` checkpoints of the folder. Returns the file's
/// path.
fs::path write_checkpoint(const fs::path& run, int64_t update, int64_t keep, const Config& config,
                          const Vocabulary& vocabulary, const Optimiser& optimiser, const Columns& memory,
                          const std::string& state, const Columns& feed = {});

}  // namespace lapse
