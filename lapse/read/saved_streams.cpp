#include "lapse/read/saved_streams.h"

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include "lapse/core/error.h"
#include "lapse/core/first_difference.h"
#include "lapse/memory/samples.h"
#include "lapse/model/tensor_file.h"
#include "lapse/ops/aten.h"
#include "lapse/ops/waiting.h"

namespace lapse {
namespace {

using at::Tensor;

constexpr const char* kFormat = "1";

/// The file's tensors whose names begin with this, by the rest of their names.
Columns tensors_of(const SafetensorsFile& file, const std::string& prefix) {
  Columns found;
  const auto& all = file.tensors();
  for (auto next = all.lower_bound(prefix); next != all.end() && next->first.starts_with(prefix); ++next)
    found[next->first.substr(prefix.size())] = to_tensor(next->second);
  return found;
}

MemoryTable table_of(Columns parts, const Tensor& clock, const MemoryTable& like) {
  TORCH_CHECK(parts.count("offsets") && parts.count("unsifted"), "it is missing");
  const Tensor offsets = parts["offsets"], unsifted = parts["unsifted"];
  parts.erase("offsets"), parts.erase("unsifted");
  TORCH_CHECK(unsifted.numel() == 1 && unsifted.scalar_type() == at::kLong, "'unsifted' is no number");
  MemoryTable table = MemoryTable::restore(offsets, std::move(parts), std::max<int64_t>(unsifted.item<int64_t>(), 0));
  check_saved(table, clock);
  check_columns(table, like.columns());
  return table;
}

/// A file need not have a checksum: what readers rely on is looked at here, where the file can be named.
void check_read(const fs::path& path, const SavedStreams& saved) {
  if (saved.logits.defined() && !saved.logits.isfinite().all().item<bool>())
    fail(path.string() + ": 'logits' are not finite numbers; it is damaged");
  const auto seen = saved.more.find("seen");  // Generator's: it counts what each stream has read, as the clock does
  if (seen == saved.more.end() || seen->second.scalar_type() != at::kLong) return;
  if (!seen->second.equal(saved.memory.clock)) fail(path.string() + ": 'seen' is not the clock's; it is damaged");
}

}  // namespace

void save_streams(const fs::path& file, const SavedStreams& streams, const std::string& described) {
  const ModelMemory& memory = streams.memory;
  TORCH_CHECK(memory.stored == Stored::projections, "only a memory of projections is read on");
  TORCH_CHECK(!memory.torn && memory.source.empty(), "streams that are half read, or have a source, cannot be saved");
  TensorEntries tensors;
  tensors.add("clock", memory.clock);
  for (size_t l = 0; l < memory.layers.size(); ++l) {
    const MemoryTable& table = memory.layers[l];
    tensors.add(fmt::format("{}.offsets", l), table.offsets());
    tensors.add(fmt::format("{}.unsifted", l), at::full({1}, table.unsifted(), at::kLong));
    for (const auto& [name, values] : table.columns()) tensors.add(fmt::format("{}.{}", l, name), values);
  }
  if (streams.logits.defined()) tensors.add("logits", streams.logits);
  for (const auto& [name, values] : streams.more) tensors.add("more." + name, values);
  write_safetensors(file, tensors.entries(), {{"lapse.streams", kFormat}, {"described", described}});
}

SavedStreams load_streams(const fs::path& path, Transformer& model, const std::string& described) {
  const SafetensorsFile file(path);
  const auto format = file.metadata().find("lapse.streams");
  if (format == file.metadata().end() || format->second != kFormat)
    fail(fmt::format("{}: not a stream that this version of lapse has saved", path.string()));
  if (const auto [then, now] = first_difference(file.meta("described"), described); then != now)
    fail(fmt::format(
        "{}: the stream was saved by a reading with '{}', and this one has '{}'; read on as then, or name another "
        "file",
        path.string(), then, now));
  const at::NoGradGuard no_grad;
  SavedStreams saved{{{}, to_tensor(file.tensor("clock")), Stored::projections}, {}, tensors_of(file, "more.")};
  ModelMemory& memory = saved.memory;
  const int64_t streams = memory.clock.dim() == 1 ? memory.clock.size(0) : 0;
  if (streams == 0) fail(path.string() + ": it has no stream");
  ModelMemory like = model.begin(streams, Stored::projections);  // that has read a token
  const Tensor token = sent(at::zeros({streams, 1}, at::kLong), model.device());
  const Tensor logits = model.forward(token, like, {}).logits.squeeze(1);
  if (file.tensors().contains("logits")) {
    saved.logits = to_tensor(file.tensor("logits"));
    if (saved.logits.sizes() != logits.sizes() || saved.logits.scalar_type() != logits.scalar_type())
      fail(path.string() + ": 'logits' are not those of the model");
    saved.logits = saved.logits.to(model.device());
  }
  for (size_t l = 0; l < like.layers.size(); ++l) try {
      memory.layers.push_back(table_of(tensors_of(file, fmt::format("{}.", l)), memory.clock, like.layers[l]));
    } catch (const c10::Error& error) {
      fail(fmt::format("{}: the memory of layer {}: {}", path.string(), l, error.what_without_backtrace()));
    }
  check_read(path, saved);
  memory.to(model.device());
  return saved;
}

}  // namespace lapse
