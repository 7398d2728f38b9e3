// The baselines that need no training against slow rules, each written from its paper: which rows every query reads.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "lapse/core/error.h"
#include "lapse/memory/table_testing.h"
#include "lapse/model/transformer_testing.h"
#include "lapse/ops/aten.h"
#include "lapse/ops/second_device_testing.h"

namespace lapse {
namespace {

using at::Tensor;

constexpr int64_t kHeads = 2, kDim = 4, kLength = 40;

/// A stream of one layer, read by a method token by token or at once; and the rows that each query is to read.
struct Stream {
  Tensor q, k, v;  // [T, H, D]

  explicit Stream(uint64_t seed) {
    Random random(seed, "baselines");
    for (Tensor* x : {&q, &k, &v}) {
      *x = at::empty({kLength, kHeads, kDim}, at::kDouble);
      for (int64_t i = 0; i < x->numel(); ++i) x->data_ptr<double>()[i] = random.normal();
    }
  }

  /// Softmax weights [H, n] of query t over rows, and its output.
  Tensor weights(int64_t t, const std::vector<int64_t>& rows) const {
    const Tensor keys = k.index_select(0, at::tensor(rows, at::kLong));
    return at::softmax(at::einsum("hd,nhd->hn", {q[t], keys}) / 2, 1);
  }
  Tensor out(int64_t t, const std::vector<int64_t>& rows) const {
    if (rows.empty()) return at::zeros({kHeads, kDim}, at::kDouble);
    return at::einsum("hn,nhd->hd", {weights(t, rows), v.index_select(0, at::tensor(rows, at::kLong))});
  }

  /// What the method makes of it, in blocks of these lengths; and how many rows the table holds after each block.
  Tensor read(const Method& method, const std::vector<int64_t>& lengths, std::vector<int64_t>* held = nullptr) const {
    MemoryTable table(1);
    std::vector<Tensor> all;
    int64_t t = 0;
    for (const int64_t K : lengths) {
      const Tensor start = at::full({1}, t, at::kLong);
      Columns block = {{"key", k.narrow(0, t, K).unsqueeze(0)}, {"value", v.narrow(0, t, K).unsqueeze(0)}};
      block.merge(method.state({1, K}, k.options()));
      const Tensor time = start + at::arange(K, at::kLong);
      block["until"] = method.until({time, at::zeros({K}, at::kByte), {}, Stored::projections}).unsqueeze(0);
      append_at(table, start, block);
      Columns described = table.columns();
      for (const char* own : {"time", "kind", "until", "key", "value"}) described.erase(own);
      Rows rows{table,     table.column("key"), table.column("value"), table.column("until"),
                described, Stored::projections};
      rows.until = method.until_among(rows);
      table.replace("until", rows.until);
      const auto y = method.read({{}, q.narrow(0, t, K).unsqueeze(0), start, {}}, rows);
      all.push_back(y.out[0]);
      for (const auto& [name, values] : y.state) table.replace(name, values);
      if (y.until.defined()) table.replace("until", y.until);
      t += K;
      table.keep(table.column("until") > t);
      if (held != nullptr) held->push_back(table.rows());
    }
    return lapse::cat(all);
  }
};

std::unique_ptr<Method> method_of(const std::string& name, const Settings& settings, int64_t min_age,
                                  int64_t layer = 0) {
  ModelShape shape{4, kHeads * kDim, kHeads, kDim, kBlock};
  shape.min_age = min_age;
  Random random(1, "method");
  auto options = find_method(name).options();
  set_fields(options->fields(), settings);
  set_fields(options->reading_fields(), settings);
  options->check(shape);
  return options->make(shape, layer, random);
}

using Rule = std::function<bool(int64_t age, int64_t time)>;

/// Every query of a stream reads the rows that the rule names, in blocks and token by token; no other row is held.
void expect_rule(const Method& method, int64_t min_age, const Rule& reads) {
  const Stream stream(3);
  std::vector<int64_t> held;
  const Tensor once = stream.read(method, {16, 1, 1, 22}),
               singly = stream.read(method, std::vector<int64_t>(kLength, 1), &held);
  for (int64_t t = 0; t < kLength; ++t) {
    std::vector<int64_t> rows;
    for (int64_t i = 0; i <= t - min_age; ++i)
      if (reads(t - i, i)) rows.push_back(i);
    EXPECT_LE((once[t] - stream.out(t, rows)).abs().max().item<double>(), 1e-7) << t;  // 1e-8 of the renormalisation
    EXPECT_LE((singly[t] - stream.out(t, rows)).abs().max().item<double>(), 1e-7) << t;
    int64_t later = 0;  // rows that some later query reads
    for (int64_t i = 0; i <= t; ++i)
      for (int64_t u = t + 1; u < t + 60; ++u)
        if (u - i >= min_age && reads(u - i, i)) {
          ++later;
          break;
        }
    EXPECT_EQ(held[t], later) << t;
  }
}

TEST(Baselines, LocalReadsAWindow) {
  for (int64_t self : {0, 1})
    expect_rule(*method_of("local", {{"window", "7"}}, 1 - self), 1 - self,
                [&](int64_t age, int64_t) { return age < 7 + 1 - self; });
  expect_rule(*method_of("local", {{"budget", "5"}}, 0), 0, [](int64_t age, int64_t) { return age < 5; });
}

TEST(Baselines, LocalGlobalReadsEverythingInTheFourthLayer) {
  for (int64_t layer : {0, 1, 2, 3, 7})
    expect_rule(*method_of("local_global", {{"window", "6"}, {"max_span", "30"}}, 0, layer), 0,
                [&](int64_t age, int64_t) { return layer % 4 == 3 ? age <= 30 : age < 6; });
}

TEST(Baselines, StridedReadsAWindowAndEveryNthRow) {
  expect_rule(*method_of("strided", {{"window", "4"}, {"stride", "5"}, {"max_span", "30"}}, 0), 0,
              [](int64_t age, int64_t time) { return age < 4 || (age <= 30 && time % 5 == 4); });
  // Half a budget of 9 for the window of ages 0 ... 4; 27 / 4 rounded up is the stride of the others.
  expect_rule(*method_of("strided", {{"budget", "9"}, {"max_span", "31"}}, 0), 0,
              [](int64_t age, int64_t time) { return age < 5 || (age <= 31 && time % 7 == 6); });
}

TEST(Baselines, SinkWindowKeepsTheFirstRows) {
  for (int64_t self : {0, 1})
    expect_rule(*method_of("sink_window", {{"sinks", "3"}, {"budget", "9"}}, 1 - self), 1 - self,
                [&](int64_t age, int64_t time) { return time < 3 || age < 6 + 1 - self; });
}

/// What an evicting cache holds for the next query: all heads the same rows, or each its own.
class Held {
 public:
  Held(int64_t budget, int64_t safe, bool sums, int64_t min_age)
      : room_(budget - own(min_age)), newest_(safe - own(min_age)), sums_(sums), min_age_(min_age) {}

  /// Before the query at time t reads, and after it: `given` [n], what it gave each row that it read.
  std::vector<int64_t> read(int64_t t) {
    if (min_age_ == 0) held_.push_back(t);
    return held_;
  }
  void evict(int64_t t, const Tensor& given) {
    for (size_t i = 0; i < held_.size(); ++i)
      scores_[held_[i]] = (sums_ ? scores_[held_[i]] : 0) + given[static_cast<int64_t>(i)].item<double>();
    if (min_age_ == 1) held_.push_back(t);
    while (std::ssize(held_) > room_) {
      auto least = held_.begin();
      for (auto i = held_.begin(); i != held_.end() - newest_; ++i)
        if (scores_[*i] < scores_[*least]) least = i;
      held_.erase(least);
    }
  }
  const std::vector<int64_t>& rows() const { return held_; }

 private:
  static int64_t own(int64_t min_age) { return min_age == 0 ? 1 : 0; }  // the next query's row, which comes later

  int64_t room_, newest_;
  bool sums_;
  int64_t min_age_;
  std::vector<int64_t> held_;
  std::map<int64_t, double> scores_;
};

struct EvictionCase {
  std::string name;
  int64_t budget, safe;  ///< of the rows that the next query sees, its own included, so many newest ones stay
  bool by_head, sums;    ///< whether heads choose for themselves; whether scores add up over queries
};

void expect_eviction(const EvictionCase& c) {
  for (int64_t min_age : {0, 1})
    for (uint64_t seed = 0; seed < 4; ++seed) {
      Stream stream(seed);
      stream.q.mul_(4);  // sharp attention: else the first rows, with few beside them, receive most from every head
      std::vector<int64_t> sizes;
      const auto method = method_of(c.name, {{"budget", std::to_string(c.budget)}}, min_age);
      EXPECT_TRUE(method->one_by_one());
      const Tensor got = stream.read(*method, std::vector<int64_t>(kLength, 1), &sizes);
      std::vector<Held> caches(c.by_head ? kHeads : 1, Held(c.budget, c.safe, c.sums, min_age));
      bool differ = false;
      for (int64_t t = 0; t < kLength; ++t) {
        std::set<int64_t> all;
        for (size_t h = 0; h < caches.size(); ++h) {
          Held& cache = caches[h];
          const auto rows = cache.read(t);
          const auto mine = static_cast<int64_t>(h), heads = c.by_head ? 1 : kHeads;
          EXPECT_LE((got[t] - stream.out(t, rows)).narrow(0, mine, heads).abs().max().item<double>(), 1e-12)
              << c.name << ", " << t;
          cache.evict(t, rows.empty() ? Tensor() : stream.weights(t, rows).narrow(0, mine, heads).sum(0));
          EXPECT_LE(std::ssize(cache.rows()), c.budget - (min_age == 0 ? 1 : 0));
          differ |= cache.rows() != caches[0].rows();
          all.insert(cache.rows().begin(), cache.rows().end());
        }
        EXPECT_EQ(sizes[t], std::ssize(all)) << "a row stays while some head holds it";
      }
      EXPECT_EQ(differ, c.by_head);
    }
}

TEST(Baselines, H2oKeepsTheHeavyHittersOfEachHeadAndTheNewest) {
  expect_eviction({"h2o", 8, 4, true, true});
  expect_eviction({"h2o", 5, 2, true, true});
}

TEST(Baselines, TovaDropsWhatTheNewestQueryAttendsLeast) {
  expect_eviction({"tova", 8, 1, false, false});
  expect_eviction({"tova", 3, 1, false, false});
}

// One row in all: the query's own where tokens attend themselves, else the one before.
TEST(Baselines, ABudgetOfOneRowIsTheNewest) {
  for (const char* name : {"h2o", "tova"})
    for (const int64_t min_age : {0, 1}) {
      SCOPED_TRACE(testing::Message() << name << ", least age " << min_age);
      Stream stream(3);
      std::vector<int64_t> sizes;
      const auto method = method_of(name, {{"budget", "1"}}, min_age);
      const Tensor got = stream.read(*method, std::vector<int64_t>(kLength, 1), &sizes);
      for (int64_t t = min_age; t < kLength; ++t)
        EXPECT_LE((got[t] - stream.v[t - min_age]).abs().max().item<double>(), 1e-7) << t;  // 1e-8 in a denominator
      EXPECT_LE(std::ranges::max(sizes), 1);
    }
}

// Equal keys receive equal attention.
TEST(Baselines, OfEqualRowsTheOldestGoes) {
  Stream stream(5);
  stream.k = at::ones_like(stream.k);
  const auto method = method_of("tova", {{"budget", "6"}}, 0);
  const Tensor got = stream.read(*method, std::vector<int64_t>(kLength, 1));
  for (int64_t t = 0; t < kLength; ++t) {
    const int64_t first = std::max<int64_t>(0, t - 5);
    const Tensor newest = stream.v.narrow(0, first, t + 1 - first).mean(0);
    EXPECT_LE((got[t] - newest).abs().max().item<double>(), 1e-12) << t;
  }
}

// ----- on models trained with another method
// ---------------------------------------------------------------------------

TEST(Baselines, ReadModelsOfOtherMethods) {
  const ModelConfig config = tiny_config("post");
  const ModelShape shape = shape_of(config, kBlock);
  for (const auto& trained : method_table()) {
    const auto options = method_options(trained.name);
    auto model = tiny_model(config, *options, at::kDouble);
    for (const char* name : {"local", "local_global", "strided", "sink_window", "h2o", "tova"}) {
      const auto reader = find_method(name).options();
      reader->adopt(*options, shape);
      set_fields(reader->reading_fields(), {{"budget", "9"}});
      if (name == std::string("local_global")) set_fields(reader->reading_fields(), {{"every", "2"}});
      reader->check(shape);
      EXPECT_EQ(reader->positions(shape), options->positions(shape));
      Transformer other(config, *reader, kVocabulary, kBlock, Random(2, "weights"));
      other.to(at::kDouble);
      std::map<std::string, Tensor*> theirs;
      for (auto& [key, tensor] : model->parameters()) theirs[key] = tensor;
      for (auto& [key, tensor] : other.parameters()) tensor->detach().copy_(*theirs.at(key));
      const Tensor tokens = random_tokens(2, 60);
      EXPECT_LE(difference(run(other, false, tokens, {60}), run(other, false, tokens, std::vector<int64_t>(60, 1))),
                1e-10)
          << name << " on " << trained.name;
    }
  }
}

// The compressive table goes on with an embedding for each rank of a slot; a row of that age has none.
TEST(Baselines, EmbeddingsOfSlotsAreNotThoseOfAges) {
  const ModelConfig config = tiny_config("post");
  const auto options = method_options("compressive", {{"max_span", "10"}, {"size", "12"}, {"rate", "3"}});
  const auto model = tiny_model(config, *options, at::kDouble);
  for (const char* name : {"local", "sink_window", "tova"}) {
    const auto reader = find_method(name).options();
    reader->adopt(*options, shape_of(config, kBlock));
    set_fields(reader->reading_fields(), {{"budget", "20"}});
    Transformer other(config, *reader, kVocabulary, kBlock, Random(2, "weights"));
    other.to(at::kDouble);
    const Tensor tokens = random_tokens(2, 40), before = run(other, false, tokens, {40});
    bool found = false;
    for (auto& [key, tensor] : other.parameters())
      if (tensor->dim() == 2 && tensor->size(0) == options->positions(shape_of(config, kBlock)))
        tensor->detach().narrow(0, 10, tensor->size(0) - 10).fill_(3), found = true;
    EXPECT_TRUE(found);
    EXPECT_EQ(difference(run(other, false, tokens, {40}), before), 0) << name;
  }
}

// Selective attention's tokens attend themselves, whatever the base model says, and so they do by another method.
TEST(Baselines, TokensGoOnAttendingThemselves) {
  ModelConfig config = tiny_config("post");
  for (const char* name : {"local", "sink_window", "tova", "h2o"}) {
    std::vector<Tensor> read;
    for (const bool attends : {false, true}) {
      config.attend_self = attends;
      const auto options = method_options("selective_attention");
      const auto reader = find_method(name).options();
      reader->adopt(*options, shape_of(config, kBlock));
      set_fields(reader->reading_fields(), {{"budget", "20"}});
      Transformer other(config, *reader, kVocabulary, kBlock, Random(2, "weights"));
      other.to(at::kDouble);
      read.push_back(run(other, false, random_tokens(2, 40), {40}));
    }
    EXPECT_EQ(difference(read[0], read[1]), 0) << name;
  }
}

TEST(Baselines, LocalGlobalNeedsAGlobalLayer) {
  const ModelShape shape = shape_of(tiny_config("post"), kBlock);
  EXPECT_THROW(method_options("local_global", {{"every", "3"}})->check(shape), Error);
  EXPECT_NO_THROW(method_options("local_global", {{"every", "2"}})->check(shape));
}

TEST(Baselines, MethodsWithWeightsMustBeTrained) {
  const auto trained = method_options("fixed_span");
  for (const char* name : {"expire_span", "adaptive_span", "compressive", "selective_attention", "fixed_span"}) {
    try {
      method_options(name)->adopt(*trained, shape_of(tiny_config("post"), kBlock));
      FAIL() << name;
    } catch (const std::exception& error) {
      EXPECT_NE(std::string(error.what()).find("must be trained"), std::string::npos) << error.what();
    }
  }
}

// A budget that holds everything reads what fixed span reads.
TEST(Baselines, ABudgetOfTheContextIsFixedSpan) {
  const ModelConfig config = tiny_config("pre");
  for (const std::string start : {"empty", "zeros"})
    for (const std::string name : {"local", "h2o", "tova", "sink_window"}) {
      const auto options = method_options("fixed_span", {{"max_span", "60"}, {"initial_memory", start}});
      const auto model = tiny_model(config, *options, at::kDouble);
      const Tensor tokens = random_tokens(2, 200), expected = run(*model, false, tokens, {200});
      const auto reader = find_method(name).options();
      reader->adopt(*options, shape_of(config, kBlock));
      set_fields(reader->reading_fields(), {{"budget", "64"}});
      if (name == "sink_window") set_fields(reader->reading_fields(), {{"sinks", "0"}});  // sinks stay for ever
      Transformer other(config, *reader, kVocabulary, kBlock, Random(2, "weights"));
      other.to(at::kDouble);
      std::map<std::string, Tensor*> theirs;
      for (auto& [key, tensor] : model->parameters()) theirs[key] = tensor;
      for (auto& [key, tensor] : other.parameters()) tensor->detach().copy_(*theirs.at(key));
      EXPECT_LE(difference(run(other, false, tokens, {200}), expected), 1e-7) << name << ", " << start;
    }
}

// What a reader starts from counts in its budget, on every device.
TEST(Baselines, ZerosAtTheStartCountInTheBudget) {
  const at::NoGradGuard no_grad;
  const ModelConfig config = tiny_config("pre");
  const auto options = method_options("fixed_span", {{"max_span", "12"}, {"initial_memory", "zeros"}});
  const Tensor tokens = random_tokens(2, 30);
  for (const std::string name : {"local", "strided", "sink_window", "h2o", "tova"}) {
    const auto reader = find_method(name).options();
    reader->adopt(*options, shape_of(config, kBlock));
    set_fields(reader->reading_fields(), {{"budget", "7"}, {"sinks", "2"}});
    std::vector<Tensor> logits;
    for (const at::Device device : {at::Device(at::kCPU), second_device()}) {
      Transformer model(config, *reader, kVocabulary, kBlock, Random(2, "weights"));
      model.to(device);
      ModelMemory memory = model.begin(2, Stored::projections);
      std::vector<Tensor> all;
      for (int64_t t = 0; t < tokens.size(1); ++t) {
        const auto y = model.forward(tokens.narrow(1, t, 1).to(device), memory, {.observe = true});
        all.push_back(y.logits.to(at::kCPU));
        // Each of H2O's heads holds rows of its own.
        const double most = name == "h2o" && t > 0 ? 7 * static_cast<double>(config.heads) : 7;
        for (const auto& report : y.reports) EXPECT_LE(report.memory_max, most) << name << ", query " << t;
      }
      logits.push_back(lapse::cat(all, 1));
    }
    EXPECT_LE(difference(logits[1], logits[0]), 1e-5) << name;
  }
}

}  // namespace
}  // namespace lapse
