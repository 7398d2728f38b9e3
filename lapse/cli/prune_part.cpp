#include "lapse/cli/prune_part.h"

#include <fmt/format.h>

#include <algorithm>
#include <type_traits>

#include "lapse/core/error.h"

namespace lapse {
namespace {

/// f(), whose errors then begin with the option that chose the part.
template <class F>
std::invoke_result_t<F> named(const std::string& name, const F& f) {
  try {
    return f();
  } catch (const Error& error) {
    fail(fmt::format("{}: {}", name, error.what()));
  }
}

/// How many documents of it have `limit` tokens, or more, in windows of `block`; 0: all.
int64_t documents_of(const Tokens& tokens, int64_t limit, int64_t block) {
  int64_t count = 0, sum = 0;
  for (const auto& document : tokens.documents()) {
    if (limit > 0 && sum >= limit) break;
    sum += std::min(document.size(), block), ++count;
  }
  return count;
}

}  // namespace

PrunePart::PrunePart(const PruneText& text, const Reader& reader, const std::string& name, const std::string& split,
                     int64_t limit)
    : block(reader.config().train.block), name_(name + ' ' + split) {
  const Config& config = reader.config();
  tokens = named(name_, [&] { return reader.text(text.data, split, {text.min_fill, block, text.data_documents}); });
  if (const int64_t documents = documents_of(tokens, limit, block); documents > 0) {
    batch = std::min(documents, config.train.batch);
    if (limit == 0) return;
    blocks = (documents + batch - 1) / batch;
    batch = (documents + blocks - 1) / blocks;  // blocks of one size: 17 documents are 2 x 9, not 2 x 16
    return;
  }
  const int64_t length = limit > 0 ? std::min(limit, tokens.size()) : tokens.size();
  const int64_t fill = std::max(block, reader.method->longest(shape_of(config.model, block)));
  batch = std::clamp<int64_t>(length / (config.data.in_windows() ? block : 2 * fill), 1, config.train.batch);
  if (limit > 0) blocks = std::max<int64_t>(1, length / (batch * block));
}

std::unique_ptr<EvaluationBlocks> PrunePart::open(const Reader& reader) const {
  return named(name_, [&] {
    return evaluation_blocks(reader.config().data, reader.vocabulary(), tokens, batch, block, /*drop_partial=*/true);
  });
}

EvaluationResult PrunePart::read(Transformer& model, const Reader& reader) const {
  const auto result = evaluate(model, *open(reader), {.max_blocks = blocks});
  if (result.stopped) throw Interrupted();
  return result;
}

}  // namespace lapse
