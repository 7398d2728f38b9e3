// The smallest program that trains with the library: an Expire-Span language model of bytes.
//   build/release/train_tiny FILE [UPDATES]
#include <cstdio>
#include <cstdlib>

#include "lapse/core/config.h"
#include "lapse/core/error.h"
#include "lapse/data/corpus.h"
#include "lapse/data/stream.h"
#include "lapse/forgetting/registry.h"
#include "lapse/read/generator.h"
#include "lapse/train/learner.h"

int main(int argc, char** argv) try {
  if (argc < 2) lapse::fail("usage: train_tiny FILE [UPDATES]");
  const int updates = argc > 2 ? std::atoi(argv[2]) : 200;
  if (updates < 1) lapse::fail(std::string("UPDATES must be a number of at least 1, not ") + argv[2]);

  lapse::DataConfig data;
  data.path = argv[1];
  const lapse::Corpus corpus = lapse::load_corpus(data);

  const auto method = lapse::find_method("expire_span").options();                         // or "fixed_span"
  lapse::set_config({{"expire_span", "", method->fields()}}, "expire_span.max_span=256");  // as a configuration's keys
  lapse::ModelConfig config;
  config.width = 64, config.layers = 2, config.feed_forward = 256;
  const int64_t batch = 8, block = 64;
  lapse::Transformer model(config, *method, corpus.vocabulary.size(), block, lapse::Random(1, "weights"));
  lapse::Learner learner(std::move(model), lapse::language_modelling(),
                         {.batch = batch, .updates = updates, .optimiser = {.rate = 2e-3, .warmup = 0}});
  lapse::TrainingStreams streams(corpus.train, batch, block, lapse::Random(1, "text"));
  for (int n = 1; n <= updates; ++n) {
    const lapse::Update made = learner.update(streams.next(), /*observe=*/true);
    if (n % 50 == 0)
      std::printf("update %d: %.3f bits per byte, memory %.0f\n", n, corpus.vocabulary.metric(made.loss),
                  made.reports[0][0].memory_mean());
  }

  lapse::Generator generator(learner.model(), {.temperature = 0.7}, /*seed=*/1);
  generator.feed(corpus.vocabulary.encode("The "));
  std::fputs("The ", stdout);
  for (int i = 0; i < 200; ++i) std::fputs(corpus.vocabulary.decode(generator.next()).c_str(), stdout);
  std::puts("");
} catch (const std::exception& error) {
  std::fprintf(stderr, "train_tiny: %s\n", error.what());
  return 1;
}
