#include "lapse/cli/eval_choices.h"

#include <fmt/format.h>

#include <iostream>

#include "lapse/core/error.h"
#include "lapse/core/json.h"
#include "lapse/core/process.h"
#include "lapse/core/progress.h"
#include "lapse/read/choices.h"
#include "lapse/train/episodes.h"

namespace lapse {
namespace {

void print(const Json& json) {
  for (const char* name : {"acc", "acc_norm"}) {
    const auto value = [&](const char* end) { return json[name + std::string(end)].get<double>(); };
    std::cout << fmt::format("{:<20}{:.4f}  (95 %: {:.4f} ... {:.4f})\n", name, value(""), value("_low"),
                             value("_high"));
  }
  std::cout << fmt::format("{:<20}{}\n", "questions", json["questions"].get<int64_t>());
  if (const int64_t truncated = json["truncated"]; truncated > 0)
    std::cout << fmt::format("{:<20}{}, whose contexts did not fit the model's window\n", "truncated", truncated);
  if (const int64_t left_out = json["left_out"]; left_out > 0)
    std::cout << fmt::format("{:<20}{}, which the model cannot read\n", "left out", left_out);
  std::cout << fmt::format("{:<20}{:.0f}\n{:<20}{}\n", "questions/min", json["questions_per_minute"].get<double>(),
                           "peak memory", byte_size(json["peak_memory"].get<double>()));
}

}  // namespace

void add_choices(const Command& verb, ChoicesArguments& arguments) {
  const Argument questions =
      verb.add_option("--choices", arguments.questions,
                      "read no text, but answer these multiple-choice questions, JSON lines: forms below");
  questions.type_name("FILE");
  verb.add_option("--labels", arguments.labels,
                  "the right answers of --choices, from 0, one a line, where they are in a file of their own (PiQA)")
      .type_name("FILE")
      .needs(questions);
}

int eval_choices(Reader& reader, const ReadingOptions& reading, const ChoicesArguments& arguments, bool json) {
  reader.require_text("--choices");
  if (reader.task) fail("--choices is for runs that read a text, and this one has the task " + reader.task->name());
  const auto model = reader.model();
  if (model->reads_source()) fail("--choices is for models that read one text, not for those with an encoder");
  const auto questions = read_questions(arguments.questions, arguments.labels);
  reader.checkpoint.close();
  catch_interrupts();
  Progress progress("eval", "question", std::ssize(questions), 0, json);
  const auto result = answer_questions(*model, reader.vocabulary(), questions, [&](const ChoicesResult& so_far) {
    progress.update(std::ssize(so_far.right) + so_far.left_out);
  });
  progress.finish();
  if (result.left_out > 0)
    std::cerr << fmt::format("lapse: note: {} of {} questions are left out: {}\n", result.left_out, questions.size(),
                             result.why);
  Json all = {{"run", reader.checkpoint.path().string()},
              {"method", reader.method->name()},
              {"choices", arguments.questions},
              {"labels", arguments.labels},
              {"questions", result.right.size()}};
  if (arguments.labels.empty()) all.erase("labels");
  for (const auto& [name, values] : {std::pair("acc", &result.right), {"acc_norm", &result.right_per_byte}}) {
    const Interval interval = interval_of_share(*values);
    all[name] = interval.mean;
    all[name + std::string("_low")] = interval.low, all[name + std::string("_high")] = interval.high;
  }
  all.update({{"truncated", result.truncated},
              {"left_out", result.left_out},
              {"tokens", result.tokens},
              {"seconds", result.seconds},
              {"questions_per_minute", 60 * static_cast<double>(result.right.size()) / result.seconds},
              {"peak_memory", peak_memory()},
              {"complete", !result.stopped},
              {"options", to_json(reading)},
              {"config", read_by(reader.config(), reading)}});
  if (json)
    std::cout << to_text(all, 2) << '\n';
  else
    print(all);
  if (result.stopped) fail("interrupted: these are the numbers of the questions that were answered");
  return 0;
}

}  // namespace lapse
