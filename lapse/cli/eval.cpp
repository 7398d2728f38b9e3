#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>

#include "lapse/cli/verbs.h"
#include "lapse/core/error.h"
#include "lapse/core/process.h"
#include "lapse/core/progress.h"
#include "lapse/data/blocks.h"
#include "lapse/data/corpus.h"
#include "lapse/train/evaluate.h"

namespace lapse {
namespace {

using Json = nlohmann::ordered_json;

struct Arguments {
  std::string run, data, split = "test";
  int64_t streams = 0, block = 0, threads = 0;
  bool json = false;
};

void print(const Json& result, const Vocabulary& vocabulary) {
  std::cout << fmt::format("{:<20}{:.4f}\n{:<20}{}\n{:<20}{:.0f}\n{:<20}{}\n\nlayer    memory mean    max\n",
                           vocabulary.metric_name(), result[vocabulary.metric_tag()].get<double>(), "tokens",
                           result["tokens"].get<int64_t>(), "tokens/s", result["tokens_per_second"].get<double>(),
                           "peak memory", byte_size(result["peak_memory"].get<double>()));
  for (size_t l = 0; l < result["layers"].size(); ++l)
    std::cout << fmt::format("{:<9}{:>11.1f}{:>7.0f}\n", l, result["layers"][l]["memory_mean"].get<double>(),
                             result["layers"][l]["memory_max"].get<double>());
}

int run(const CLI::App& verb, const Arguments& arguments) {
  Checkpoint checkpoint = Checkpoint::open(arguments.run);
  set_evaluation_options(verb, checkpoint);
  if (arguments.threads > 0) at::set_num_threads(static_cast<int>(arguments.threads));
  const Tokens tokens = text_of(checkpoint, arguments.data, arguments.split);
  const auto model = checkpoint.model();
  checkpoint.close();
  const auto& vocabulary = checkpoint.vocabulary();
  const TrainConfig& train = checkpoint.config().train;
  // As many streams as in training, but none shorter than two blocks.
  const int64_t block = arguments.block > 0 ? arguments.block : train.block;
  const int64_t streams =
      arguments.streams > 0 ? arguments.streams : std::clamp<int64_t>(tokens.size() / (2 * block), 1, train.batch);
  const auto blocks =
      evaluation_blocks(checkpoint.config().data, vocabulary, tokens, streams, block, /*drop_partial=*/false);
  EvaluationOptions options;
  catch_interrupts();
  Progress progress("eval", "block", 0, 0, arguments.json);
  options.progress = [&](int64_t done, int64_t total, double nats) {
    progress.update(done, fmt::format("of {}  {:.4f} {}", total, vocabulary.metric(nats), vocabulary.metric_tag()));
  };
  const auto result = evaluate(*model, *blocks, options);
  progress.finish();
  Json layers = Json::array();
  for (const auto& layer : result.layers) layers.push_back({{"memory_mean", layer.mean}, {"memory_max", layer.max}});
  const Json json = {{"run", checkpoint.path().string()},
                     {"split", arguments.split},
                     {"streams", streams},
                     {"tokens", result.tokens},
                     {"loss", result.nats},
                     {vocabulary.metric_tag(), vocabulary.metric(result.nats)},
                     {"layers", layers},
                     {"seconds", result.seconds},
                     {"tokens_per_second", static_cast<double>(result.tokens) / result.seconds},
                     {"peak_memory", peak_memory()},
                     {"complete", !result.stopped}};
  if (arguments.json)
    std::cout << json.dump(2) << '\n';
  else
    print(json, vocabulary);
  if (result.stopped) fail("interrupted: these are the numbers of the part that was read");
  return 0;
}

}  // namespace

void add_eval(CLI::App& program, Action& action) {
  auto* verb = program.add_subcommand("eval", "Read a text with a trained model: loss, memory sizes, speed");
  auto arguments = std::make_shared<Arguments>();
  verb->add_option("run", arguments->run, "folder of a run, or one of its checkpoints")->required();
  verb->add_option("--data", arguments->data, "text to read, plain or gzip; default: the run's own");
  verb->add_option("--split", arguments->split, "which part of it, cut as in training")
      ->check(CLI::IsMember({"train", "valid", "test", "all"}))
      ->capture_default_str();
  verb->add_option("--streams", arguments->streams,
                   "read so many streams, or windows, at a time; default: as in training")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20));
  verb->add_option("--block", arguments->block,
                   "timesteps at once; of windows (data.windows) their length, else the result does not depend on it; "
                   "default: as in training")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20));
  verb->add_option("--threads", arguments->threads, "cores to use; default: all")
      ->check(CLI::Range(int64_t{1}, int64_t{4096}));
  verb->add_flag("--json", arguments->json, "print one JSON object");
  add_evaluation_options(*verb);
  verb->callback([=, &action] {
    refuse_extras(*verb);
    action = [=] { return run(*verb, *arguments); };
  });
}

}  // namespace lapse
