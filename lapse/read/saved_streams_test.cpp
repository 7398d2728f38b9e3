#include "lapse/read/saved_streams.h"

#include <gtest/gtest.h>

#include "lapse/core/testing.h"
#include "lapse/model/tensor_file.h"
#include "lapse/model/transformer_testing.h"
#include "lapse/ops/aten.h"
#include "lapse/read/generator.h"

namespace lapse {
namespace {

using at::Tensor;

class StreamFiles : public testing::Test {
 protected:
  TestFolder folder_;
  fs::path file_ = folder_ / "streams";
};

std::unique_ptr<Transformer> model_of(const std::string& method, const Settings& settings = {}) {
  return tiny_model(tiny_config("pre"), *method_options(method, settings), at::kFloat);
}

Tensor last_logits(Transformer& m, ModelMemory& memory, const Tensor& tokens) {
  at::NoGradGuard no_grad;
  Tensor logits;
  for (int64_t i = 0; i < tokens.size(1); ++i)
    logits = m.forward(tokens.narrow(1, i, 1), memory, {}).logits.select(1, 0);
  return logits;
}

TEST_F(StreamFiles, GoOnAsIfTheyHadNotBeen) {
  for (const auto& entry : method_table())
    for (const int64_t streams : {1, 3})
      for (const bool bfloat16 : {false, true}) {
        const auto m = model_of(entry.name);
        if (bfloat16) m->to_bfloat16();
        const Tensor tokens = random_tokens(streams, 150);
        ModelMemory memory = m->begin(streams, Stored::projections);
        for (int64_t i = 0; i < 150; i += 47) {
          const Tensor piece = tokens.narrow(1, i, std::min<int64_t>(47, 150 - i));
          const Tensor before = last_logits(*m, memory, piece.narrow(1, 0, 1));
          save_streams(file_, {memory, before, {{"own", at::full({2}, 7)}}}, "a = 1\nb = 2\n");
          SavedStreams saved = load_streams(file_, *m, "a = 1\nb = 2\n");
          EXPECT_TRUE(saved.logits.equal(before));
          EXPECT_EQ(saved.more.at("own").sum().item<double>(), 14);
          const Tensor rest = piece.narrow(1, 1, piece.size(1) - 1);
          const Tensor on = last_logits(*m, memory, rest), again = last_logits(*m, saved.memory, rest);
          if (streams == 1) {
            EXPECT_TRUE(on.equal(again)) << entry.name << " at " << i;
          } else {
            EXPECT_LE(difference(again, on), bfloat16 ? 0.02 : 1e-5) << entry.name << " at " << i;
          }
        }
      }
}

TEST_F(StreamFiles, OfAnotherReadingAreRefused) {
  const auto m = model_of("expire_span");
  ModelMemory memory = m->begin(1, Stored::projections);
  save_streams(file_, {memory, {}}, "checkpoint = 1\nmax_span = 2\n");
  EXPECT_FALSE(load_streams(file_, *m, "checkpoint = 1\nmax_span = 2\n").logits.defined());
  const auto error = [&](const std::string& described) {
    return error_of([&] { load_streams(file_, *m, described); });
  };
  EXPECT_NE(error("checkpoint = 1\nmax_span = 3\n").find("'max_span = 2', and this one has 'max_span = 3'"),
            std::string::npos);
  EXPECT_NE(error("checkpoint = 1\n").find("'max_span = 2', and this one has 'nothing'"), std::string::npos);
  memory.torn = true;
  EXPECT_THROW(save_streams(file_, {memory, {}}, ""), c10::Error);
  EXPECT_THROW(save_streams(file_, {m->begin(1, Stored::inputs), {}}, ""), c10::Error);
}

/// Each tensor of a saved stream left out, of another type, of another length, or with other numbers: none is read.
TEST_F(StreamFiles, ThatNoModelHasAreRefused) {
  for (const char* method : {"expire_span", "compressive", "selective_attention"}) {
    const auto m = model_of(method);
    ModelMemory memory = m->begin(2, Stored::projections);
    const Tensor logits = last_logits(*m, memory, random_tokens(2, 30));
    save_streams(file_, {memory, logits}, "");
    const SafetensorsFile good(file_);
    Columns tensors;
    for (const auto& [name, entry] : good.tensors()) tensors[name] = to_tensor(entry);
    const auto read = [&](const Columns& all) {
      TensorEntries entries;
      for (const auto& [name, values] : all) entries.add(name, values);
      write_safetensors(file_, entries.entries(), good.metadata());
      load_streams(file_, *m, "");
    };
    read(tensors);
    for (const auto& [name, values] : tensors) {
      Columns without = tensors, other = tensors, longer = tensors;
      without.erase(name);
      other[name] = values.to(values.scalar_type() == at::kInt ? at::kLong : at::kInt);
      longer[name] = lapse::cat({values, values});
      if (name != "logits") {
        EXPECT_THROW(read(without), Error) << method << ": without " << name;
      }
      EXPECT_THROW(read(other), Error) << method << ": another type of " << name;
      EXPECT_THROW(read(longer), Error) << method << ": twice " << name;
    }
    for (const char* name : {"0.time", "1.kind", "1.offsets", "clock"}) {
      Columns wrong = tensors;
      wrong[name] = tensors[name].flip(0) + (name == std::string("clock") ? -9 : 9);
      EXPECT_THROW(read(wrong), Error) << method << ": other numbers in " << name;
    }
  }
}

TEST(Generators, ReadNothingOfWhatTheyRefuse) {
  for (const char* method : {"expire_span", "tova"}) {
    const auto m = tiny_model(tiny_config("post"), *method_options(method), at::kFloat);
    Generator one(*m, {.temperature = 0}, 3), other(*m, {.temperature = 0}, 3);
    std::vector<int32_t> wrong(3 * kBlock, 1);
    wrong.back() = kVocabulary;  // in the last of several blocks
    EXPECT_THROW(one.feed(wrong), Error);
    one.feed({1, 2, 3}), other.feed({1, 2, 3});
    EXPECT_EQ(one.seen(), 3);
    EXPECT_EQ(one.memory_sizes(), other.memory_sizes());
    EXPECT_EQ(one.next(), other.next());
  }
}

TEST_F(StreamFiles, GeneratorsWriteTheSameText) {
  for (const char* method : {"expire_span", "h2o", "compressive"}) {
    const auto m = model_of(method);
    Generator whole(*m, {}, 3), first(*m, {}, 3);
    std::vector<int32_t> expected, got;
    whole.feed({1, 2, 3}), first.feed({1, 2, 3});
    for (int i = 0; i < 90; ++i) expected.push_back(whole.next());
    for (int i = 0; i < 40; ++i) got.push_back(first.next());
    first.save(file_, "x = 1");
    Generator second(*m, {}, 3);
    second.load(file_, "x = 1");
    EXPECT_EQ(second.seen(), 43);
    for (int i = 0; i < 50; ++i) got.push_back(second.next());
    EXPECT_EQ(got, expected) << method;
    EXPECT_EQ(second.remembered(), whole.remembered()) << method;
  }
}

}  // namespace
}  // namespace lapse
