#include "lapse/train/shares.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "lapse/core/error.h"
#include "lapse/core/first_difference.h"
#include "lapse/core/json.h"
#include "lapse/memory/samples.h"
#include "lapse/ops/aten.h"

namespace lapse {
namespace {

using at::Tensor;

/// A line of JSON, which says what the bytes behind it are.
std::string packed(const Columns& tensors) {
  Json header = Json::array();
  std::string bytes;
  for (const auto& [name, values] : tensors) {
    const Tensor own = values.detach().to(at::kCPU).contiguous();
    header.push_back({name, static_cast<int>(own.scalar_type()), own.sizes().vec()});
    bytes.append(static_cast<const char*>(own.const_data_ptr()), own.nbytes());
  }
  return header.dump() + '\n' + bytes;
}

Columns unpacked(const std::string& bytes) {
  const size_t line = bytes.find('\n');
  const char* next = bytes.data() + line + 1;
  Columns tensors;
  for (const Json& entry : parse_json(bytes.substr(0, line), "the tensors of a rank")) {
    const Tensor values =
        at::empty(entry[2].get<std::vector<int64_t>>(), static_cast<at::ScalarType>(entry[1].get<int>()));
    if (values.nbytes() > 0) std::memcpy(values.mutable_data_ptr(), next, values.nbytes());
    next += values.nbytes();
    tensors[entry[0]] = values;
  }
  return tensors;
}

}  // namespace

int64_t parts_of(const TrainConfig& train, const Group& group) {
  const int64_t size = group.size(), parts = std::max(train.parts, size);
  if (parts % size != 0 || parts % train.parts != 0)
    fail(fmt::format("train.parts = {} cannot be shared by {} processes; let one be a multiple of the other",
                     train.parts, size));
  if (train.batch % parts != 0)
    fail(fmt::format("train.batch = {} does not divide into {} parts, one for each process at least", train.batch,
                     parts));
  return parts;
}

int64_t validation_parts_of(const TrainConfig& train, const Group& group) {
  if (train.evaluated() < group.size())
    fail(fmt::format("train.validation_streams = {} is less than the {} processes that share them; raise it",
                     train.evaluated(), group.size()));
  return std::min(parts_of(train, group), train.evaluated() / group.size() * group.size());
}

std::vector<ModelMemory> in_parts(const std::vector<ModelMemory>& memory, int64_t parts) {
  if (std::ssize(memory) == parts) return memory;
  std::vector<Tensor> clocks;
  for (const auto& part : memory) clocks.push_back(part.clock);
  const Tensor clock = lapse::cat(clocks);
  const int64_t each = clock.size(0) / parts;
  std::vector<ModelMemory> all(parts);
  for (int64_t p = 0; p < parts; ++p)
    all[p].clock = clock.narrow(0, p * each, each).clone(), all[p].stored = memory.at(0).stored;
  for (size_t l = 0; l < memory.at(0).layers.size(); ++l) {
    std::vector<MemoryTable> tables;
    for (const auto& part : memory) tables.push_back(part.layers[l]);
    const MemoryTable whole = joined(tables);
    for (int64_t p = 0; p < parts; ++p) all[p].layers.push_back(samples_of(whole, p * each, each));
  }
  return all;
}

std::vector<ModelMemory> share_of(const std::vector<ModelMemory>& memory, const Group& group) {
  const auto [first, count] = share_of(std::ssize(memory), group.rank(), group.size());
  return {memory.begin() + first, memory.begin() + first + count};
}

std::vector<Columns> gather(Group& group, const Columns& tensors) {
  if (group.alone()) return {tensors};
  std::vector<Columns> all;
  for (const auto& bytes : group.gather(packed(tensors))) all.push_back(unpacked(bytes));
  return all;
}

Columns gather_samples(Group& group, const Columns& tensors) {
  const auto ranks = gather(group, tensors);
  if (ranks.size() == 1) return ranks[0];
  Columns all;
  for (size_t r = 0; r < ranks.size(); ++r)
    for (const auto& [name, values] : ranks[r]) all[name] = r == 0 ? values : lapse::cat({all[name], values});
  return all;
}

std::string found_by_first(Group& group, const std::function<std::string()>& find) {
  constexpr char kFound = '+', kError = '-';  // the first byte says which; a path may have any others
  std::string said;
  if (group.first()) try {
      said = kFound + find();
    } catch (const std::exception& error) {  // also where memory is short: the others wait for an answer
      group.broadcast(kError + std::string(error.what()));
      throw;
    }
  said = group.broadcast(said);
  if (said.empty() || said[0] != kFound) fail("rank 0: " + said.substr(std::min<size_t>(said.size(), 1)));
  return said.substr(1);
}

Checkpoint open_together(Group& group, const fs::path& run_or_file) {
  std::optional<Checkpoint> own;
  const std::string path = found_by_first(group, [&] {
    own.emplace(Checkpoint::open(run_or_file));
    return own->path().string();
  });
  return own ? std::move(*own) : Checkpoint(fs::path(path));
}

void require_agreement(Group& group, const std::string& text) {
  const auto all = group.gather(text);
  found_by_first(group, [&]() -> std::string {
    for (size_t r = 1; r < all.size(); ++r)
      if (const auto [first, other] = first_difference(all[0], all[r]); first != other)
        fail(fmt::format(
            "rank {} is about to do something else: {} where rank 0 has {}; give every process the same configuration "
            "and files",
            r, other, first));
    return {};
  });
}

}  // namespace lapse
