// How long each row stays in memory, seen at every single step.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "lapse/model/transformer.h"

namespace lapse {

/// One layer's memory. Every vector has one element per step: a token that was read, or an agent's observation.
struct LayerRecord {
  /// How many later queries could read the step's row. Where `there`, its window, stream or episode ended before that.
  std::vector<int64_t> held;
  std::vector<uint8_t> there;  ///< a query after the last of its window, stream or episode could have read it still
  std::vector<int64_t> sizes;  ///< |C_t|: how many rows the step's query could read
  std::map<std::string, std::vector<double>> told;  ///< what the method told of the row last, while it was there

  int64_t largest() const;
  double mean() const;  ///< of the sizes
};

struct MemoryRecord {
  std::vector<int64_t> begins;  ///< the steps that were read with empty memory: of each window or episode the first
  std::vector<LayerRecord> layers;
  bool stopped = false;  ///< by Ctrl-C, before the end
};

/// Fills a record of one stream's memory.
class MemoryRecorder {
 public:
  /// Both must outlive the recorder.
  MemoryRecorder(const Transformer& model, MemoryRecord& record);

  /// The memory is a new one: times begin at 0 again.
  void restart();
  /// The query of the next step has been answered; `memory` is what it left.
  void add(const std::vector<LayerReport>& reports, const ModelMemory& memory);
  /// The window, stream or episode has ended.
  void end(const ModelMemory& memory);

 private:
  struct Layer {
    const Attention& attention;
    LayerRecord& record;
    int64_t begin = 0;           // of the memory, in the record
    std::vector<int64_t> until;  // of each step since then, the time of the first query that cannot read its row

    void add(const LayerReport& report, const MemoryTable& table);
    void end(const MemoryTable& table);
  };

  std::vector<Layer> layers_;
};

}  // namespace lapse
