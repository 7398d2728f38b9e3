// Multiple choice: questions answered a minute, with the context read once and its candidates side by side, against
// each candidate read after a context of its own.
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <cmath>
#include <iostream>
#include <memory>

#include "bench/models.h"
#include "bench/program.h"
#include "bench/report.h"
#include "lapse/core/error.h"
#include "lapse/ops/aten.h"
#include "lapse/read/choices.h"

namespace lapse::bench {
namespace {

using at::Tensor;

struct Options {
  int64_t questions = 100, context = 80, candidates = 4, longest = 32;
};

/// The section-5 model of size d = 6, but for its ends and norms.
StepShape small_shape(bool quick) {
  if (quick) return tiny_shape();
  return {"choices", 6, 384, 1024, 6, 512, 1, 512, 512, 1, 8192};
}

QuestionTokens random_question(const StepShape& shape, const Options& options) {
  const auto draw = [&](int64_t length) {
    const Tensor ids = at::randint(shape.vocabulary, {length}, at::kInt);
    return std::vector<int32_t>(ids.const_data_ptr<int32_t>(), ids.const_data_ptr<int32_t>() + length);
  };
  QuestionTokens question{draw(options.context), {}};
  for (int64_t c = 0; c < options.candidates; ++c)  // half as long to the longest
    question.candidates.push_back(draw(options.longest * (options.candidates + c + 1) / (2 * options.candidates)));
  return question;
}

/// Each candidate after a context of its own.
std::vector<double> one_by_one(Transformer& model, const QuestionTokens& question) {
  std::vector<double> nats;
  for (const auto& candidate : question.candidates) {
    QuestionTokens one{question.context, {candidate}};
    nats.push_back(candidate_nats(model, one)[0]);
  }
  return nats;
}

void check(Transformer& model, const QuestionTokens& question) {
  const auto together = candidate_nats(model, question), alone = one_by_one(model, question);
  for (size_t c = 0; c < alone.size(); ++c)
    if (!(std::abs(together[c] / alone[c] - 1) <= 1e-4))
      fail(fmt::format("candidate {}: {} nats beside the others, {} alone", c, together[c], alone[c]));
}

Json run(const Common& common, const Options& options) {
  const StepShape shape = small_shape(common.quick);
  const std::vector<std::string> methods = {"selective_attention", "fixed_span"};
  std::vector<Path> paths;  // two of each method: all take turns, so that the methods can be compared as well
  for (const std::string& method : methods) {
    const auto model =
        std::make_shared<Transformer>(make_model(shape, method, {{"max_span", std::to_string(shape.max_span)}}));
    check(*model, random_question(shape, options));
    for (const auto& [name, answer] : {std::pair{"together", &candidate_nats}, {"one_by_one", &one_by_one}})
      paths.push_back(
          {name, [=]() -> std::function<void()> { return [=] { answer(*model, random_question(shape, options)); }; },
           common.quick ? 1 : options.questions});
  }
  const auto times = take_turns(paths);
  Json json = {{"context", options.context}, {"candidates", options.candidates}, {"longest", options.longest}};
  for (size_t m = 0; m < methods.size(); ++m) {
    const double together = 60 / median(times[2 * m]), alone = 60 / median(times[2 * m + 1]);
    std::cout << fmt::format("{}: {:.0f} questions a minute; each candidate after a context of its own: {:.0f}\n",
                             methods[m], together, alone);
    json["results"][methods[m]] = {{"questions_per_minute", together}, {"one_by_one_per_minute", alone}};
  }
  return json;
}

}  // namespace
}  // namespace lapse::bench

int main(int argc, char** argv) {
  using namespace lapse::bench;
  Options options;
  Program program{"choices", "Times multiple-choice questions; see bench/README.md"};
  program.add_options = [&](const Command& app) {
    app.add_option("--questions", options.questions, "timed questions").check(whole_number(1, 100000)).shows_default();
  };
  program.run = [&](const Common& common) { return run(common, options); };
  return run_program(program, argc, argv);
}
