// A checkpoint gives back what was put in, and refuses what it is not.
#include "lapse/train/checkpoint.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "lapse/core/testing.h"
#include "lapse/forgetting/registry.h"
#include "lapse/model/tensor_file.h"
#include "lapse/ops/aten.h"

namespace lapse {
namespace {

using at::Tensor;

struct Small {
  Config config;
  Vocabulary vocabulary;
  std::unique_ptr<Transformer> model;
  std::unique_ptr<Optimiser> optimiser;
  std::vector<ModelMemory> memory;

  explicit Small(const std::string& method, const std::map<std::string, std::string>& settings = {}) {
    config.method_name = method;
    for (const auto& field : config.method().fields())
      if (const auto found = settings.find(field.name); found != settings.end())
        set_field(field, found->second, field.name);
    config.model.width = 8, config.model.heads = 2, config.model.layers = 4, config.model.feed_forward = 8;
    config.train.batch = 3, config.train.block = 4;
    vocabulary = Vocabulary::build(config.data, "abc");
    model = std::make_unique<Transformer>(config.model, config.method(), vocabulary.size(), config.train.block,
                                          Random(1, "weights"));
    optimiser = std::make_unique<Optimiser>(config.optimiser, model->parameters());
    memory.push_back(model->begin(3, Stored::inputs));
    const auto tokens = at::arange(12).view({3, 4});
    const auto y = model->forward(tokens, memory[0], {});
    (y.logits.sum() + y.cost).backward();
    optimiser->step(1e-2);
  }

  fs::path write(const fs::path& run, int64_t update, int64_t keep = 2) {
    return write_checkpoint(run, update, keep, config, vocabulary, *optimiser, memory_tensors(memory, 0), "{}");
  }
};

class Checkpoints : public testing::TestWithParam<std::string> {};

TEST_P(Checkpoints, GiveBackEverything) {
  TestFolder folder;
  Small small(GetParam());
  small.write(folder.path(), 7);
  const Checkpoint read = Checkpoint::open(folder.path());
  EXPECT_EQ(read.config().to_toml(), small.config.to_toml());
  EXPECT_EQ(read.vocabulary().to_json(), small.vocabulary.to_json());

  const auto model = read.model();
  auto ours = small.model->parameters(), theirs = model->parameters();
  ASSERT_EQ(ours.size(), theirs.size());
  for (size_t i = 0; i < ours.size(); ++i) EXPECT_TRUE(at::equal(*ours[i].second, *theirs[i].second)) << ours[i].first;

  Optimiser optimiser(small.config.optimiser, model->parameters());
  read.load_optimiser(optimiser);
  EXPECT_EQ(optimiser.steps(), 1);
  for (auto& [slot, tensors] : small.optimiser->slots())
    for (size_t i = 0; i < tensors.size(); ++i) EXPECT_TRUE(at::equal(tensors[i], optimiser.slots()[slot][i])) << slot;

  const auto memory = read.memory(*model);
  ASSERT_EQ(memory.size(), 1u);
  EXPECT_TRUE(at::equal(memory[0].clock, small.memory[0].clock));
  for (size_t l = 0; l < 2; ++l) {
    const auto &before = small.memory[0].layers[l], &after = memory[0].layers[l];
    EXPECT_TRUE(at::equal(before.offsets(), after.offsets()));
    for (const auto& [name, values] : before.columns()) EXPECT_TRUE(at::equal(values, after.column(name))) << name;
  }
}

// Files written before tables had kinds: pooled rows 2^40 timesteps too early, start rows before 0.
TEST(Checkpoint, OpensFilesWithoutKinds) {
  TestFolder folder;
  Small small("compressive", {{"max_span", "4"}, {"rate", "2"}, {"size", "4"}, {"initial_memory", "zeros"}});
  const SafetensorsFile file(small.write(folder.path() / "new", 7));
  auto entries = file.tensors();
  std::vector<Tensor> kept;
  for (int64_t l = 0; l < 4; ++l) {
    const auto& table = small.memory[0].layers[l];
    const Tensor pooled = is_kind(table.kind(), RowKind::pooled);
    ASSERT_TRUE(pooled.any().item<bool>() && is_kind(table.kind(), RowKind::start).any().item<bool>() == false);
    kept.push_back(at::where(pooled, table.time() - (int64_t{1} << 40), table.time()));
    entries.erase(fmt::format("memory.0.{}.kind", l));
    entries[fmt::format("memory.0.{}.time", l)] = to_entry(kept.back());
  }
  auto metadata = file.metadata();
  metadata.erase("lapse.checksum");
  write_safetensors(folder.path() / "old.safetensors", entries, metadata);
  const Checkpoint old = Checkpoint::open(folder.path() / "old.safetensors");
  const auto memory = old.memory(*old.model());
  for (size_t l = 0; l < 4; ++l)
    for (const auto& [name, values] : small.memory[0].layers[l].columns())
      EXPECT_TRUE(at::equal(values, memory[0].layers[l].column(name))) << name << " of layer " << l;
}

TEST(Checkpoint, AClockBeyondAllTimesIsRefused) {
  TestFolder folder;
  Small small("fixed_span");
  const SafetensorsFile file(small.write(folder.path() / "run", 7));
  for (const int64_t wrong : {int64_t{-1}, int64_t{1} << 50, std::numeric_limits<int64_t>::max()}) {
    auto entries = file.tensors();
    const Tensor clock = at::full_like(small.memory[0].clock, wrong);
    entries["memory.0.clock"] = to_entry(clock);
    auto metadata = file.metadata();
    metadata.erase("lapse.checksum");
    write_safetensors(folder.path() / "wrong.safetensors", entries, metadata);
    const Checkpoint wrong_one = Checkpoint::open(folder.path() / "wrong.safetensors");
    const auto model = wrong_one.model();
    EXPECT_NE(error_of([&] { wrong_one.memory(*model); }).find("the clock must lie between 0 and 2^50"),
              std::string::npos)
        << wrong;
  }
}

std::vector<std::string> method_names() {
  std::vector<std::string> names;
  for (const auto& entry : method_table()) names.push_back(entry.name);
  return names;
}
INSTANTIATE_TEST_SUITE_P(Methods, Checkpoints, testing::ValuesIn(method_names()));

TEST(Checkpoint, OnlyTheNewestStay) {
  TestFolder folder;
  Small small("fixed_span");
  for (int64_t update : {5, 10, 15}) small.write(folder.path(), update);
  const auto files = checkpoints_of(folder.path());
  ASSERT_EQ(files.size(), 2u);
  EXPECT_EQ(files[0].filename(), "update-00000015.safetensors");
  EXPECT_EQ(files[1].filename(), "update-00000010.safetensors");
}

TEST(Checkpoint, NamesSayTheUpdate) {
  EXPECT_EQ(update_of(checkpoint_path("run", 1000)), 1000);
  EXPECT_EQ(update_of(checkpoint_path("run", 123456789)), 123456789) << "more digits than usual";
  for (const char* other :
       {"update-best.safetensors", "update-12b.safetensors", "update-.safetensors", "update-12.safetensors",
        "update-000000012.safetensors", "update-00000012.safetensors.damaged", "pruned.safetensors", "update-00000012"})
    EXPECT_EQ(update_of(other), -1) << other;
}

TEST(Checkpoint, TheFolderOfARun) {
  TestFolder folder;
  const fs::path run = folder.path() / "run", checkpoint = checkpoint_path(run, 1);
  make_folder(run / "checkpoints");
  for (const fs::path& path : {run, run / "", run / ".", run / "pruned.safetensors", checkpoint})
    EXPECT_EQ(run_folder(path), fs::absolute(run).lexically_normal()) << path;
}

TEST(Checkpoint, ADamagedOneIsPassedOver) {
  TestFolder folder;
  Small small("fixed_span");
  small.write(folder.path(), 5);
  const auto newest = small.write(folder.path(), 10);
  auto bytes = read_file(newest);
  bytes[bytes.size() - 9] ^= 1;
  write_file(newest, bytes);
  EXPECT_EQ(Checkpoint::open(folder.path()).file().path().filename(), "update-00000005.safetensors");
  EXPECT_NE(error_of([&] { Checkpoint{newest}; }).find("truncated or altered"), std::string::npos);
}

TEST(Checkpoint, WhatIsNoRunIsNamed) {
  TestFolder folder;
  EXPECT_NE(error_of([&] { Checkpoint::open(folder / "none"); }).find("no such run"), std::string::npos);
  EXPECT_NE(error_of([&] { Checkpoint::open(folder.path()); }).find("no checkpoint"), std::string::npos);
  write_safetensors(folder / "other.safetensors", {}, {});
  EXPECT_NE(error_of([&] { Checkpoint::open(folder / "other.safetensors"); }).find("not a checkpoint"),
            std::string::npos);
}

/// A checkpoint of `small` whose tensors `change` alters, and what reading its model says.
template <class Change>
std::string error_after(Small& small, Change change) {
  TestFolder folder;
  const SafetensorsFile file(small.write(folder.path(), 5));
  auto tensors = file.tensors();
  change(tensors);
  write_safetensors(folder / "changed.safetensors", tensors, file.metadata());
  return error_of([&] { Checkpoint(folder / "changed.safetensors").model(); });
}

TEST(Checkpoint, WeightsThatAreNotFiniteAreNamed) {
  Small small("fixed_span");
  for (const double value : {NAN, INFINITY, -INFINITY}) {
    auto& weight = *small.model->parameters().back().second;
    const at::Tensor before = weight.detach().clone();
    weight.detach().view(-1)[-1] = value;
    const std::string error = error_after(small, [](auto&) {});
    EXPECT_NE(error.find("changed.safetensors: 'weight.output.bias' holds numbers that are not finite"),
              std::string::npos)
        << error;
    weight.detach().copy_(before);
  }
  EXPECT_EQ(error_after(small, [](auto&) {}), "");
}

TEST(Checkpoint, TensorsThatItsModelLacksAreNamed) {
  Small small("fixed_span");
  for (const std::string name : {"weight.layers.4.query", "weight.layers.0.more", "weight.more", "more"}) {
    const std::string error =
        error_after(small, [&](auto& tensors) { tensors[name] = tensors.at("weight.layers.0.query"); });
    EXPECT_NE(error.find("'" + name + "'"), std::string::npos) << error;
  }
}

TEST(Checkpoint, AnotherMethodReadsPastTheWeightsOfTheTrainedOne) {
  TestFolder folder;
  Small small("expire_span");
  const Checkpoint read(small.write(folder.path(), 5));
  const auto local = read.config().copy_method("local");
  local->adopt(read.config().method(), shape_of(small.config.model, small.config.train.block));
  EXPECT_EQ(error_of([&] { read.model(*local); }), "");
}

TEST(Checkpoint, MemoryOfAnotherShapeIsRefused) {
  TestFolder folder;
  Small small("fixed_span");
  const SafetensorsFile file(small.write(folder.path(), 5));
  const auto error = [&](const std::string& name) {
    auto tensors = file.tensors();
    tensors[name] = tensors.at("memory.0.0.hidden");
    write_safetensors(folder / "changed.safetensors", tensors, file.metadata());
    const Checkpoint read(folder / "changed.safetensors");
    return error_of([&] { read.memory(*read.model()); });
  };
  EXPECT_NE(error("memory.0.0.more").find("the memory of layer 0: there is no column 'more'"), std::string::npos);
  for (const char* name : {"memory.1.clock", "memory.0.4.hidden", "memory.zero"})
    EXPECT_NE(error(name).find(std::string("'") + name + "'"), std::string::npos) << name;
}

}  // namespace
}  // namespace lapse
