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
  if (memory.clock.use_count() > 1 || memory.clock.storage().use_count() > 1) return {};
  Addresses all = {memory.clock.const_data_ptr()};
  for (const auto& table : memory.layers) {
    const auto own = table.addresses();
    if (own.empty()) return {};
    all.insert(all.end(), own.begin(), own.end());
  }
  return all;
}

/// Whether it could be recorded; if not, no more will be. Either way the memory is as it was.
bool Steps::record(ModelMemory& memory, Addresses now) {
  std::vector<int64_t> rooms;
  for (const auto& table : memory.layers) rooms.push_back(table.room());
  const Tensor clock = memory.clock;
  const int64_t latest = memory.latest;
  recorded_.clear();
  try {
    tokens_ = at::zeros({clock.size(0), 1}, clock.options());
    logits_ = at::empty_like(ordinary_);  // outside of the recording, whose memory other graphs write too
    graph_ = make_graph(model_.device());
    const InPlace here(memory);
    graph_->record([&] {
      logits_.copy_(model_.forward(tokens_, memory, {}).logits.squeeze(1));
      clock.copy_(memory.clock);
    });
    recorded_ = std::move(now);
  } catch (const c10::Error&) {  // such as too little memory: without a graph there may be enough
    records_ = false;
    graph_.reset();
  }
  memory.clock = clock, memory.latest = latest, memory.torn = false;
  for (size_t l = 0; l < rooms.size(); ++l)  // the host has counted what the device has not done yet
    if (memory.layers[l].room() < rooms[l]) memory.layers[l].count_row(/*taken_back=*/true);
  return records_;
}

Tensor Steps::replay(const Tensor& tokens, ModelMemory& memory) {
  tokens_.copy_(sent(tokens, model_.device()).unsqueeze(1));
  graph_->replay();
  for (auto& table : memory.layers) table.count_row();
  if (memory.latest != kNever) ++memory.latest;
  ++replays_;
  return logits_;
}

Tensor Steps::operator()(const Tensor& tokens, ModelMemory& memory) {
  at::NoGradGuard no_grad;
  const int64_t streams = memory.clock.size(0);
  TORCH_CHECK(tokens.dim() == 1 && tokens.size(0) == streams, "one token for each of ", streams, " streams, got ",
              tokens.sizes());
  // Where positions end, the host must know without asking that no stream is there yet.
  const bool may =
      records_ && memory.stored == Stored::projections && (model_.context() == 0 || memory.latest < model_.context());
  const int64_t room = may ? room_of(memory) : 0;
  Addresses now = room > 0 ? addresses(memory) : Addresses();
  if (!now.empty()) {
    if (now == recorded_) return replay(tokens, memory);
    // In a step that takes the last room attention waits, to know which rows are left.
    const bool can_record = room > 1 && ordinary_.defined() && ordinary_.size(0) == streams;
    if (can_record && record(memory, std::move(now))) return replay(tokens, memory);
  }
  const bool makes_room = may && room == 0;
  const Tensor input = sent(tokens, model_.device()).unsqueeze(1);
  ordinary_ = model_.forward(input, memory, {.exact = makes_room}).logits.squeeze(1);
  if (makes_room) {
    for (auto& table : memory.layers)
      if (table.room() == 0) table.reserve(room_);
    records_ = room_of(memory) > 0;  // not where a layer keeps no row at all
  }
  return ordinary_;
}

}  // namespace lapse
