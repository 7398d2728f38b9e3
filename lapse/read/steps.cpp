#include "lapse/read/steps.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <limits>

#include "lapse/ops/aten.h"
#include "lapse/ops/waiting.h"

namespace lapse {
namespace {

using at::Tensor;

/// While it lives, the memory's tables are written where they are.
class InPlace {
 public:
  explicit InPlace(ModelMemory& memory) : memory_(memory) { set(true); }
  InPlace(const InPlace&) = delete;
  ~InPlace() { set(false); }

 private:
  void set(bool on) {
    for (auto& table : memory_.layers) table.write_in_place(on);
  }
  ModelMemory& memory_;
};

int64_t room_of(const ModelMemory& memory) {
  int64_t least = std::numeric_limits<int64_t>::max();
  for (const auto& table : memory.layers) least = std::min(least, table.room());
  return least;
}

}  // namespace

Steps::Steps(Transformer& model, int64_t room) : model_(model), room_(room) {
  // Methods that make or delete rows at every token have the host wait for that.
  const Method& method = model.layers().at(0).attention().method();
  records_ = !method.pools() && !method.one_by_one() && !model.reads_source() && has_graphs(model.device());
}

Steps::~Steps() = default;

/// All that a recorded step reads and writes, beside weights and its own; empty: somebody else holds a part of it.
Steps::Addresses Steps::addresses(const ModelMemory& memory) const {
  if (memory.clock.use_count() > 1) return {};
  Addresses all = {memory.clock.const_data_ptr()};
  for (const auto& table : memory.layers) {
    const auto own = table.addresses();
    if (own.empty()) return {};
    all.insert(all.end(), own.begin(), own.end());
  }
  return all;
}

void Steps::record(ModelMemory& memory) {
  auto graph = make_graph(model_.device(), graph_.get());
  recorded_.clear();
  tokens_ = at::zeros({memory.clock.size(0), 1}, memory.clock.options());
  Addresses now = addresses(memory);
  const InPlace here(memory);
  graph->record([&] {
    const Tensor clock = memory.clock;
    logits_ = model_.forward(tokens_, memory, {}).logits.squeeze(1);
    clock.copy_(memory.clock);
    memory.clock = clock;
  });
  graph_ = std::move(graph);
  recorded_ = std::move(now);
}

Tensor Steps::replay(const Tensor& tokens) {
  tokens_.copy_(sent(tokens, model_.device()).unsqueeze(1));
  graph_->replay();
  ++replays_;
  return logits_;
}

Tensor Steps::operator()(const Tensor& tokens, ModelMemory& memory) {
  at::NoGradGuard no_grad;
  // Where positions end, the host must know without asking that no stream is there yet.
  const bool may = records_ && (model_.context() == 0 || memory.latest < model_.context());
  const int64_t room = may ? room_of(memory) : 0;
  const Addresses now = room > 0 ? addresses(memory) : Addresses();
  if (!now.empty() && now == recorded_) {
    for (auto& table : memory.layers) table.count_row();
    if (memory.latest != kNever) ++memory.latest;
    return replay(tokens);
  }
  if (!now.empty() && room > 1) {  // a step that fills the last row deletes too
    record(memory);
    return replay(tokens);
  }
  const bool makes_room = may && room == 0;
  const Tensor input = sent(tokens, model_.device()).unsqueeze(1);
  const Tensor logits = model_.forward(input, memory, {.exact = makes_room}).logits.squeeze(1);
  if (makes_room) memory.reserve(room_);
  return logits;
}

}  // namespace lapse
