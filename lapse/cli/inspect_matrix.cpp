#include "lapse/cli/inspect_matrix.h"

#include <fmt/format.h>

#include <algorithm>
#include <iostream>

#include "lapse/cli/verbs.h"
#include "lapse/core/error.h"
#include "lapse/core/progress.h"
#include "lapse/observe/contents.h"
#include "lapse/observe/matrix.h"

namespace lapse {
namespace {

constexpr int64_t kSamples = 8;               // read at a time
constexpr int64_t kMostNumbers = 50'000'000;  // of a file: some 300 MB

/// The numbers that the file would have; Error if they are too many.
void check_size(const Transformer& model, const MatrixArguments& arguments, int64_t heads, int64_t tokens) {
  const auto layers = static_cast<int64_t>(model.layers().size());
  if (arguments.layer >= layers)
    fail(fmt::format("--layer {}: the model has the layers 0 to {}", arguments.layer, layers - 1));
  const int64_t matrices = (arguments.layer < 0 ? layers : 1) * (arguments.what == "attention" ? heads : 1);
  const double numbers = static_cast<double>(matrices) * static_cast<double>(tokens) * static_cast<double>(tokens) / 2;
  if (numbers > static_cast<double>(kMostNumbers))
    fail(fmt::format(
        "{} matrices of {} tokens are {:.0f} million numbers, more than {}; lower --tokens, or name a --layer",
        matrices, tokens, numbers / 1e6, kMostNumbers / 1'000'000));
}

/// What was read, and how, in the words of `lapse eval --json`: without it, two files that differ look alike.
Json facts_of(const Reader& reader, const Source& source, const MatrixArguments& arguments,
              const MatrixReading& reading, int64_t block) {
  Json facts = {
      {"run", reader.checkpoint.path().string()}, {"method", reader.method->name()}, {"split", reading.split}};
  if (reader.task)
    facts["task"] = reader.config().task_name;
  else
    facts.update(
        {{"text", fmt::format("{:08x}", source.checksum(reading.split))}, {"unit", reader.vocabulary().unit().name}});
  Json options = to_json(reading.options);
  options["block"] = block;
  if (arguments.min_fill > 0) options["min_fill"] = arguments.min_fill;
  if (!reading.data.empty()) options["data"] = reading.data;
  if (!reading.data_documents.empty()) options["data_documents"] = reading.data_documents;
  facts.update({{"options", options}, {"config", read_by(reader.config(), reading.options)}});
  return facts;
}

}  // namespace

void add_matrix(const Command& verb, MatrixArguments& arguments) {
  verb.add_option("--matrix", arguments.what,
                  "instead of the page a JSON file for `lapse plot`, with a number for each query (line) and row "
                  "(column): attention (of each head), kept (whether the row is in memory), or masking (F of selective "
                  "attention)");
  verb.add_option("--documents", arguments.documents,
                  "with --matrix: the mean over so many documents, windows or blocks of --tokens tokens")
      .check(whole_number(1, 100'000'000))
      .shows_default();
  add_min_fill(verb, arguments.min_fill);
  verb.add_option("--layer", arguments.layer, "with --matrix: only of this layer").check(whole_number(0, 100'000));
}

std::string matrix_file(const Reader& reader, Transformer& model, const MatrixArguments& arguments,
                        const MatrixReading& reading) {
  reader.require_text("--matrix");
  const Config& config = reader.config();
  const int64_t block = reading.tokens > 0 ? reading.tokens : config.train.block;
  const std::string& split = reading.split;
  check_size(model, arguments, config.model.heads, block);
  const auto source = reader.source(reading.data, split, {arguments.min_fill, block, reading.data_documents});
  int64_t samples = source->streams(split, block, std::min(arguments.documents, kSamples));
  auto blocks = source->evaluation(split, samples, block, /*drop_partial=*/true);
  // Each stream loses what fills no block: fewer of them give more of a short text.
  while (samples > 1 && samples * blocks->blocks() < arguments.documents)
    blocks = source->evaluation(split, --samples, block, /*drop_partial=*/true);
  Progress progress("inspect", "document", arguments.documents);
  const MatrixOptions options = {.what = arguments.what,
                                 .documents = arguments.documents,
                                 .layer = arguments.layer,
                                 .progress = [&](int64_t done) { progress.update(done); }};
  const auto record = record_matrix(model, *blocks, options);
  if (!record.stopped) progress.of(record.documents);
  progress.finish();
  if (record.stopped) return "";
  if (record.documents < arguments.documents)
    std::cerr << fmt::format("lapse: the part has no more than {}; the means are over these\n", record.documents);
  std::vector<std::string> texts;
  for (const int32_t token : record.tokens)
    texts.push_back(token == reader.vocabulary().bos() ? "BOS" : readable(reader.vocabulary().decode(token)));
  return matrix_json(record, options, facts_of(reader, *source, arguments, reading, block), texts);
}

}  // namespace lapse
