#include "lapse/observe/stream.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "lapse/data/window.h"
#include "lapse/model/transformer_testing.h"
#include "lapse/observe/recorder.h"
#include "lapse/train/evaluate.h"

namespace lapse {
namespace {

constexpr int64_t kLength = 90;

struct Followed {
  std::vector<std::vector<LayerChange>> changes;  // of each token
  std::vector<at::Tensor> logits;
  std::vector<std::vector<LiveRow>> live;  // of each layer, at the end
  std::vector<std::string> names;
};

Followed follow(Transformer& model, const at::Tensor& tokens) {
  at::NoGradGuard no_grad;
  Stream stream(model);
  ModelMemory memory = model.begin(1, Stored::projections);
  Followed all;
  for (int64_t t = 0; t < tokens.size(1); ++t) {
    const auto y = model.forward(tokens.narrow(1, t, 1), memory, stream.wants());
    stream.token({static_cast<int32_t>(tokens[0][t].item<int64_t>()), y.reports, memory});
    all.changes.push_back(stream.changes());
    all.logits.push_back(y.logits);
  }
  for (size_t l = 0; l < model.layers().size(); ++l) all.live.push_back(stream.live(static_cast<int64_t>(l)));
  all.names = stream.names();
  return all;
}

/// The recorder, which looks by another way, is the reference: it reads the tokens 0 ... length - 1 of the same text.
TEST(Stream, TellsWhatTheRecorderSees) {
  const at::Tensor ids = random_tokens(1, kLength);
  Tokens tokens(kVocabulary);
  for (int64_t i = 0; i < kLength; ++i) tokens.append({static_cast<int32_t>(ids.data_ptr<int64_t>()[i])});
  for (const auto& entry : method_table()) {
    const auto model = tiny_model(tiny_config("post"), *method_options(entry.name), at::kFloat);
    EvaluationStreams blocks(tokens, 1, kBlock, false);
    const TextRecord seen = record_memory(*model, blocks);
    const Followed got = follow(*model, ids.narrow(1, 0, kLength - 1));
    for (size_t l = 0; l < seen.layers.size(); ++l) {
      std::vector<int64_t> held(kLength - 1, -1);
      std::vector<double> told(kLength - 1, NAN);
      for (int64_t t = 0; t < kLength - 1; ++t) {
        const LayerChange& change = got.changes[t][l];
        EXPECT_EQ(change.size, seen.layers[l].sizes[t]) << entry.name << " at time " << t;
        int64_t before = -1;
        for (const auto& row : change.ended) {
          EXPECT_LT(before, row.time) << "ascending";
          before = row.time;
          EXPECT_EQ(held[row.time], -1) << "ends once";
          held[row.time] = row.last - row.time;
        }
      }
      for (const auto& row : got.live[l]) {
        EXPECT_EQ(held[row.time], -1);
        held[row.time] = kLength - 2 - row.time;
        if (!row.told.empty()) {
          // Float32 sums: the recorder's reading deletes at once, and sums in another order.
          const double known = seen.layers[l].told.begin()->second[row.time];
          EXPECT_NEAR(row.told[0], known, 1e-5 * (1 + std::abs(known))) << entry.name << " row " << row.time;
        }
      }
      EXPECT_EQ(held, seen.layers[l].held) << entry.name << " layer " << l;
      for (int64_t t = 0; t < kLength - 1; ++t)
        EXPECT_EQ(seen.layers[l].there[t],
                  std::ranges::count(got.live[l], t, [](const LiveRow& row) { return row.time; }))
            << entry.name << " row " << t;
    }
  }
}

TEST(Stream, WatchingChangesNothing) {
  for (const auto& entry : method_table()) {
    const auto model = tiny_model(tiny_config("post"), *method_options(entry.name), at::kFloat);
    const at::Tensor ids = random_tokens(1, kLength);
    const Followed got = follow(*model, ids);
    at::NoGradGuard no_grad;
    ModelMemory memory = model->begin(1, Stored::projections);
    for (int64_t t = 0; t < kLength; ++t)
      EXPECT_TRUE(model->forward(ids.narrow(1, t, 1), memory, {}).logits.equal(got.logits[t])) << entry.name;
  }
}

// What an undo does: a copy of the memory is taken up again, after the original went on.
TEST(Stream, ACopyGoesOnExactlyAsTheOriginalDid) {
  for (const auto& entry : method_table()) {
    const auto model = tiny_model(tiny_config("post"), *method_options(entry.name), at::kFloat);
    const at::Tensor ids = random_tokens(1, kLength);
    at::NoGradGuard no_grad;
    Stream stream(*model);
    ModelMemory memory = model->begin(1, Stored::projections);
    const auto read = [&](int64_t t) {
      const auto y = model->forward(ids.narrow(1, t, 1), memory, stream.wants());
      stream.token({0, y.reports, memory});
      return y.logits;
    };
    for (const int64_t from : {1, 17, 40}) {
      while (memory.clock.item<int64_t>() < from) read(memory.clock.item<int64_t>());
      const ModelMemory kept = memory;
      const Stream seen = stream;
      std::vector<at::Tensor> logits;
      std::vector<int64_t> sizes;
      for (int64_t t = from; t < kLength; ++t) logits.push_back(read(t)), sizes.push_back(stream.changes()[1].size);
      memory = kept, stream = seen;
      for (int64_t t = from; t < kLength; ++t) {
        EXPECT_TRUE(read(t).equal(logits[t - from])) << entry.name << " from " << from << " at time " << t;
        EXPECT_EQ(stream.changes()[1].size, sizes[t - from]);
      }
      memory = kept, stream = seen;
    }
  }
}

// The weights of one query add up to 1, or less where a ramp takes some away, and rows that are gone have none.
TEST(Stream, SaysHowAQueryReadsItsRows) {
  for (const auto& entry : method_table()) {
    const auto model = tiny_model(tiny_config("post"), *method_options(entry.name), at::kFloat);
    at::NoGradGuard no_grad;
    ModelMemory memory = model->begin(1, Stored::projections);
    const at::Tensor ids = random_tokens(1, kLength);
    for (int64_t t = 0; t < kLength; ++t) {
      ModelMemory copy = memory;
      const auto y = model->forward(ids.narrow(1, t, 1), copy, {.rows = true, .pairs = Pairs::reads});
      const auto plain = model->forward(ids.narrow(1, t, 1), memory, {});
      EXPECT_TRUE(y.logits.equal(plain.logits)) << entry.name;
      for (const auto& report : y.reports) {
        const at::Tensor weights = report.pairs.at("weights");
        ASSERT_EQ(weights.size(3), report.rows.time.numel());
        const at::Tensor unread = at::logical_or(report.rows.first > t, report.rows.until <= t);
        EXPECT_EQ(weights.masked_select(unread).abs().sum().item<double>(), 0) << entry.name << " time " << t;
        EXPECT_LE(weights.sum(3).max().item<double>(), 1 + 1e-4);
      }
    }
  }
}

std::vector<EndedRow> ended(const Followed& all, size_t layer) {
  std::vector<EndedRow> rows;
  for (const auto& change : all.changes)
    rows.insert(rows.end(), change[layer].ended.begin(), change[layer].ended.end());
  return rows;
}

TEST(Stream, SaysWhyRowsWent) {
  const auto why = [](const std::string& method, const Settings& settings) {
    const auto model = tiny_model(tiny_config("post"), *method_options(method, settings), at::kFloat);
    const auto rows = ended(follow(*model, random_tokens(1, kLength)), 0);
    EXPECT_GT(rows.size(), 20u) << method;
    std::vector<Gone> all;
    for (const auto& row : rows) all.push_back(row.why);
    return all;
  };
  for (const char* method : {"fixed_span", "expire_span", "adaptive_span", "sink_window"})
    for (const Gone one : why(method, {})) EXPECT_EQ(one, Gone::expired) << method;
  for (const char* method : {"h2o", "tova"})
    for (const Gone one : why(method, {{"max_span", "200"}, {"budget", "9"}})) EXPECT_EQ(one, Gone::evicted) << method;
  // 9 rows at most, of which none is older than 12: both rules have work to do.
  const auto both = why("h2o", {{"max_span", "12"}, {"budget", "9"}});
  EXPECT_GT(std::ranges::count(both, Gone::evicted), 0);
  EXPECT_GT(std::ranges::count(both, Gone::expired), 0);
}

// The row with the least score goes: of TOVA, what the newest query gave it.
TEST(Stream, EvictedRowsHaveTheLeastScore) {
  const auto model =
      tiny_model(tiny_config("post"), *method_options("tova", {{"max_span", "80"}, {"budget", "9"}}), at::kFloat);
  const at::Tensor ids = random_tokens(1, kLength);
  at::NoGradGuard no_grad;
  Stream stream(*model);
  ModelMemory memory = model->begin(1, Stored::projections);
  for (int64_t t = 0; t < kLength; ++t) {
    const auto y = model->forward(ids.narrow(1, t, 1), memory, stream.wants());
    stream.token({0, y.reports, memory});
    for (int64_t l = 0; l < 2; ++l)
      for (const auto& gone : stream.changes()[l].ended) {
        if (gone.why != Gone::evicted) continue;
        const auto& live = stream.live(l);
        for (size_t i = 0; i + 1 < live.size(); ++i)  // the newest is safe whatever its score
          EXPECT_LE(gone.told[0], live[i].told[0]) << "time " << t << " row " << gone.time;
      }
  }
}

TEST(Stream, NamesTheTokensThatMaskARow) {
  const auto model =
      tiny_model(tiny_config("post"), *method_options("selective_attention", {{"max_span", "80"}}), at::kFloat);
  const Followed all = follow(*model, random_tokens(1, 40));
  EXPECT_EQ(all.names, std::vector<std::string>{"masking"});
  int64_t masked = 0;
  for (const auto& row : all.live[0]) {
    double sum = 0;
    for (const auto& raise : row.raised) {
      if (raise.by < 0) continue;
      ++masked, sum += raise.amount;
      EXPECT_GT(raise.by, row.time);
      EXPECT_GT(raise.amount, 0);
    }
    EXPECT_GE(row.raised[0].amount, row.raised[1].amount);
    EXPECT_LE(sum, row.told[0] * (1 + 1e-6)) << "three of all that make the sum";
  }
  EXPECT_GT(masked, 20);
}

}  // namespace
}  // namespace lapse
