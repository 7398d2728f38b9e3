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

}  // namespace

void add_matrix(const Command& verb, MatrixArguments& arguments) {
  verb.add_option("--matrix", arguments.what,
                  "instead of the page a JSON file for `lapse plot`: of each query (line) and row (column) the "
                  "attention of each head, whether it is kept, or what else the method tells of pairs: selective "
                  "attention its masking F");
  verb.add_option("--documents", arguments.documents,
                  "with --matrix: the mean over so many documents, windows or blocks of --tokens tokens")
      .check(whole_number(1, 100'000'000))
      .shows_default();
  add_min_fill(verb, arguments.min_fill);
  verb.add_option("--layer", arguments.layer, "with --matrix: only of this layer").check(whole_number(0, 100'000));
}

std::string matrix_file(const Reader& reader, Transformer& model, const MatrixArguments& arguments,
                        const std::string& data, const std::string& data_documents, const std::string& split,
                        int64_t tokens) {
  reader.require_text("--matrix");
  const Config& config = reader.config();
  const int64_t block = tokens > 0 ? tokens : config.train.block;
  check_size(model, arguments, config.model.heads, block);
  const auto source = reader.source(data, split, {arguments.min_fill, block, data_documents});
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
  return matrix_json(record, options, reader.checkpoint.path().string(), texts);
}

}  // namespace lapse
