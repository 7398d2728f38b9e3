// Streams without end in bounded memory: a trained model reads files side by side, and goes on where it stopped.
//   streams RUN STATE FILE...
// Each file is a stream. Reads its next 1,000 tokens, prints what they cost in bits per token, and keeps the streams in
// STATE: the next call reads on. Where a file ends, its stream begins anew, with a token that nothing predicts.
#include <ATen/ops/empty.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <cstdio>
#include <vector>

#include "lapse/core/error.h"
#include "lapse/data/vocabulary.h"
#include "lapse/read/reader.h"
#include "lapse/read/saved_streams.h"
#include "lapse/read/steps.h"

int main(int argc, char** argv) try {
  if (argc < 4) lapse::fail("usage: streams RUN STATE FILE...");
  lapse::Reader reader = lapse::open_reader({.run = argv[1]});
  reader.require_text("this example");
  const auto model = reader.model();
  std::vector<std::vector<int32_t>> texts;
  for (int i = 3; i < argc; ++i) {
    texts.push_back(reader.vocabulary().encode(lapse::read_text_file(argv[i])));
    if (texts.back().size() < 2) lapse::fail(std::string(argv[i]) + ": the file must have two tokens or more");
  }

  const auto B = static_cast<int64_t>(texts.size());
  lapse::SavedStreams streams = {
      model->begin(B, lapse::Stored::projections), {}, {{"places", at::zeros(B, at::kLong)}}};
  if (lapse::is_there(argv[2])) streams = lapse::load_streams(argv[2], *model, reader.described());
  at::Tensor& places = streams.more["places"];  // where each stream is in its file
  if (!places.defined() || places.numel() != B) lapse::fail(std::string(argv[2]) + ": it has other streams");

  lapse::Steps read(*model);
  std::vector<double> nats(B), predictions(B);
  for (int i = 0; i < 1000; ++i) {
    const at::Tensor tokens = at::empty(B, at::kLong);
    const at::Tensor predicted = streams.logits.defined() ? at::log_softmax(streams.logits, 1) : at::Tensor();
    for (int64_t b = 0; b < B; ++b) {
      auto& place = places.mutable_data_ptr<int64_t>()[b];
      if (place >= static_cast<int64_t>(texts[b].size())) model->reset(streams.memory, {b}), place = 0;
      const int32_t token = texts[b][place];
      if (place > 0) nats[b] -= predicted[b][token].item<double>(), ++predictions[b];
      tokens.mutable_data_ptr<int64_t>()[b] = token;
      ++place;
    }
    streams.logits = read(tokens, streams.memory);
  }
  for (int64_t b = 0; b < B; ++b)
    std::printf("%s: up to token %lld, %.3f bits per token\n", argv[3 + b],
                static_cast<long long>(places.const_data_ptr<int64_t>()[b]), nats[b] / predictions[b] / std::log(2.0));
  for (size_t l = 0; l < streams.memory.layers.size(); ++l)
    std::printf("layer %zu: room for %lld rows\n", l, static_cast<long long>(streams.memory.layers[l].rows()));
  std::printf("memory of all streams: %.1f KB\n", static_cast<double>(streams.memory.bytes()) / 1000);
  lapse::save_streams(argv[2], streams, reader.described());
} catch (const std::exception& error) {
  std::fprintf(stderr, "streams: %s\n", error.what());
  return 1;
}
