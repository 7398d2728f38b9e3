#include "lapse/read/choices.h"

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <numbers>
#include <optional>
#include <utility>

#include "lapse/core/error.h"
#include "lapse/core/process.h"
#include "lapse/ops/aten.h"
#include "lapse/ops/waiting.h"

namespace lapse {
namespace {

using at::Tensor;

int64_t longest_candidate(const QuestionTokens& question) {
  size_t longest = 0;
  for (const auto& candidate : question.candidates) longest = std::max(longest, candidate.size());
  return static_cast<int64_t>(longest);
}

/// Reads all of the context but its last token, which the candidates' first tokens follow.
ModelMemory read_context(Transformer& model, const std::vector<int32_t>& context) {
  ModelMemory memory = model.begin(1, Stored::projections);
  const Tensor tokens = sent(at::tensor(context, at::kLong), model.device()).unsqueeze(0);
  const int64_t length = tokens.size(1) - 1, block = std::max<int64_t>(model.shape().block, 1);
  for (int64_t i = 0; i < length; i += block)
    model.forward(tokens.narrow(1, i, std::min(block, length - i)), memory,
                  {.exact = true, .places = at::empty({0}, tokens.options())});
  return memory;
}

/// The memory of one stream, as if so many had read the same.
ModelMemory repeated(const ModelMemory& one, int64_t count) {
  ModelMemory all{{}, one.clock.repeat({count}), one.stored};
  for (const MemoryTable& table : one.layers) {
    Columns columns;
    for (const auto& [name, values] : table.columns()) {
      std::vector<int64_t> times(values.dim(), 1);
      times[0] = count;
      columns[name] = values.repeat(times);
    }
    all.layers.push_back(MemoryTable::restore(at::arange(count + 1, at::kLong) * table.rows(), std::move(columns)));
  }
  return all;
}

/// Which of the candidates costs least, each divided by its weight.
size_t likeliest(const std::vector<double>& nats, const std::vector<double>& weights) {
  size_t best = 0;
  for (size_t i = 1; i < nats.size(); ++i)
    if (nats[i] / weights[i] < nats[best] / weights[best]) best = i;
  return best;
}

/// Of the question as the model can read it; none, and `result` says so, where it cannot.
std::optional<QuestionTokens> tokens_to_read(const Question& question, const Vocabulary& vocabulary, int64_t context,
                                             ChoicesResult& result) {
  try {
    QuestionTokens tokens = tokens_of(question, vocabulary);
    shorten(tokens, context, vocabulary.bos() >= 0);
    return tokens;
  } catch (const Error& error) {
    if (result.left_out++ == 0) result.why = fmt::format("{}: {}", question.origin, error.what());
    return std::nullopt;
  }
}

}  // namespace

QuestionTokens tokens_of(const Question& question, const Vocabulary& vocabulary) {
  QuestionTokens tokens;
  if (vocabulary.bos() >= 0) tokens.context.push_back(vocabulary.bos());
  const auto context = vocabulary.encode(question.context);
  tokens.context.insert(tokens.context.end(), context.begin(), context.end());
  if (tokens.context.empty()) fail("the context is empty, and this model has no token to begin with (data.windows)");
  for (const auto& candidate : question.candidates) {
    std::vector<TextBytes> bytes;
    tokens.candidates.push_back(vocabulary.encode((context.empty() ? "" : " ") + candidate, &bytes));
    TextBytes sum;
    for (const TextBytes& each : bytes) sum += each;
    tokens.unknown_bytes.push_back(sum.unknown);
  }
  return tokens;
}

void shorten(QuestionTokens& tokens, int64_t longest, bool has_bos) {
  const int64_t kept = has_bos ? 1 : 0;
  const int64_t excess = std::ssize(tokens.context) - 1 + longest_candidate(tokens) - longest;
  if (longest == 0 || excess <= 0) return;
  if (excess >= std::ssize(tokens.context))
    fail(fmt::format("a candidate has {} tokens, and this model reads windows of {} in all", longest_candidate(tokens),
                     longest));
  const auto begin = tokens.context.begin() + std::min(kept, std::ssize(tokens.context) - excess);
  tokens.context.erase(begin, begin + excess);
  tokens.truncated = true;
}

std::vector<double> candidate_nats(Transformer& model, const QuestionTokens& question) {
  at::NoGradGuard no_grad;
  const int64_t count = std::ssize(question.candidates), longest = longest_candidate(question);
  std::vector<int64_t> input(count * longest), target(count * longest, kNoTarget), lengths;
  for (int64_t c = 0; c < count; ++c) {
    const auto& candidate = question.candidates[c];
    lengths.push_back(std::ssize(candidate));
    for (int64_t i = 0; i < lengths.back(); ++i) {
      input[c * longest + i] = i == 0 ? question.context.back() : candidate[i - 1];
      target[c * longest + i] = candidate[i];
    }
  }
  const auto tensor = [](const std::vector<int64_t>& x) { return at::tensor(x, at::kLong); };
  ModelMemory memory = repeated(read_context(model, question.context), count);
  const auto y =
      model.forward(sent(tensor(input), model.device()).view({count, longest}), memory,
                    {.lengths = tensor(lengths), .target = tensor(target).view({count, longest}), .each = true});
  const Tensor each = y.likelihood.each.to(at::kCPU, at::kDouble).contiguous();
  const auto* next = each.const_data_ptr<double>();
  std::vector<double> nats(count);
  for (int64_t c = 0; c < count; ++c) {
    for (int64_t i = 0; i < lengths[c]; ++i) nats[c] += *next++;
    if (!question.unknown_bytes.empty())
      nats[c] += 8 * std::numbers::ln2 * static_cast<double>(question.unknown_bytes[c]);
  }
  return nats;
}

ChoicesResult answer_questions(Transformer& model, const Vocabulary& vocabulary, const std::vector<Question>& questions,
                               const std::function<void(const ChoicesResult& so_far)>& progress) {
  ChoicesResult result;
  const auto start = std::chrono::steady_clock::now();
  std::vector<std::pair<const Question*, QuestionTokens>> all;
  for (const Question& question : questions)
    if (auto tokens = tokens_to_read(question, vocabulary, model.context(), result))
      all.emplace_back(&question, std::move(*tokens));
  if (all.empty()) fail(result.why);
  for (const auto& [asked, tokens] : all) {
    const Question& question = *asked;
    const auto nats = candidate_nats(model, tokens);
    std::vector<double> bytes;
    for (const auto& candidate : question.candidates) bytes.push_back(static_cast<double>(candidate.size()));
    const auto is_right = [&](size_t i) { return static_cast<int64_t>(i) == question.answer ? 1. : 0.; };
    result.right.push_back(is_right(likeliest(nats, std::vector<double>(nats.size(), 1))));
    result.right_per_byte.push_back(is_right(likeliest(nats, bytes)));
    result.truncated += tokens.truncated;
    result.tokens += std::ssize(tokens.context) - 1;
    for (const auto& candidate : tokens.candidates) result.tokens += std::ssize(candidate);
    if (progress) progress(result);
    if ((result.stopped = interrupted())) break;
  }
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return result;
}

}  // namespace lapse
