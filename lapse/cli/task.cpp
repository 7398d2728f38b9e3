// `lapse task show`: what a model reads of a generated task, or sees in an environment, for people.
#include <fmt/format.h>

#include <algorithm>
#include <iostream>

#include "lapse/cli/frame.h"
#include "lapse/cli/verbs.h"
#include "lapse/core/error.h"
#include "lapse/rl/registry.h"
#include "lapse/tasks/registry.h"

namespace lapse {
namespace {

struct Arguments {
  std::string name;
  std::vector<std::string> set;
  int64_t seed = 1, length = 0;
};

constexpr int64_t kTokens = 1200;  // of a task, unless told otherwise
constexpr size_t kColumns = 100;

std::vector<std::string> names() {
  std::vector<std::string> all;
  for (const auto& entry : task_table()) all.push_back(entry.name);
  for (const auto& entry : environment_table()) all.push_back(entry.name);
  return all;
}

std::string word_of(const Vocabulary& vocabulary, int64_t id) {
  std::string word = vocabulary.decode(static_cast<int32_t>(id));
  if (word.empty()) return std::string(kBos);
  if (word.back() == ' ') word.pop_back();
  return word;
}

/// The words of a block of one sample. What is asked for after a word stands in brackets behind it, but not where all
/// next words are to be predicted.
std::string text_of(const TokenBlock& block, const Vocabulary& vocabulary) {
  const bool labels = vocabulary.outputs() != vocabulary.size();
  const bool is_text = !block.asked.empty() && block.scored() > std::ranges::count(block.asked, true);
  const int64_t length = block.lengths.empty() ? block.length : block.lengths[0];
  std::string text, line;
  for (int64_t i = 0; i < length; ++i) {
    std::string word = word_of(vocabulary, block.input[i]);
    const int64_t target = block.target[i];
    if (!is_text && target != kUnscored)
      word += fmt::format(" [{}]", labels ? fmt::format("{}", target) : word_of(vocabulary, target));
    const bool ends = word == "\n";
    if (ends || (!is_text && line.size() + word.size() >= kColumns)) text += line + '\n', line.clear();
    if (!ends) line += (line.empty() ? "" : " ") + word;
  }
  return text + line + (line.empty() ? "" : "\n");
}

/// The beginning of the test set of this seed, as one stream reads it.
void show_task(const Config& config, const Arguments& arguments) {
  const auto task = config.copy_task();
  for (const Field& field : task->reading_fields())
    if (field.name == "test_seed") set_field(field, fmt::format("{}", arguments.seed), "--seed");
  const auto source = task->open();
  const int64_t length = arguments.length > 0 ? arguments.length : kTokens;
  const auto blocks = source->evaluation("test", 1, length, /*drop_partial=*/false);
  int64_t shown = 0, scored = 0;
  for (TokenBlock block; shown < length && std::cout && blocks->next(block); shown += block.length) {
    std::cout << (shown > 0 ? "\n" : "") << text_of(block, source->vocabulary()) << std::flush;
    scored += block.scored();
  }
  if (!std::cout) return;
  if (scored == 0)
    std::cerr << fmt::format("lapse: note: nothing is asked in these {} tokens; --length shows more\n", shown);
  if (shown < length)
    std::cerr << fmt::format("lapse: note: the test set ends here, after {} tokens; section [{}] has its size\n", shown,
                             config.task_name);
}

/// A random walk: the words of each cell, and what is done. To the end of the episode, or for so many steps.
void show_environment(const EnvironmentOptions& environment, const Arguments& arguments) {
  const EnvironmentShape shape = environment.shape();
  const auto world = environment.make(1, arguments.seed);
  Random random(arguments.seed, "walk");
  std::vector<int32_t> bits(shape.most_words);
  StepResult done;
  for (int64_t step = 0; std::cout && (arguments.length > 0 ? step < arguments.length : !done.end); ++step) {
    world->observe(0, 1, bits.data());
    const auto action = static_cast<int32_t>(random.below(shape.actions.size()));
    world->step(0, 1, &action, &done);
    std::cout << fmt::format("step {}\n{}  {}: reward {:g}\n", step, draw_sight(sight_of(shape, bits), false),
                             shape.actions[action], done.reward);
    if (done.end) std::cout << fmt::format("  the episode ends: {} {:g}\n", shape.score, done.score);
    std::cout << '\n';
  }
}

}  // namespace

void add_task(const Command& program, Action& action) {
  const Command group = program.add_verb("task", "Look at the generated tasks and the environments");
  group.requires_verb();
  const Command verb = group.add_verb("show", "Print what a model reads of a task, or sees in an environment");
  verb.allows_extras();
  auto arguments = std::make_shared<Arguments>();
  verb.add_option("name", arguments->name, "the task or the environment").required().check(one_of(names()));
  verb.add_option("--seed", arguments->seed,
                  "of a task, the test set of this seed, as `lapse eval --test-seed` reads it (of long_copy and "
                  "instruction with --streams 1)")
      .check(whole_number(0, int64_t{1} << 53))
      .shows_default();
  verb.add_option("--length", arguments->length,
                  fmt::format("at least so many tokens, whole sequences, or so many steps; default: {} tokens, or one "
                              "episode of a random walk",
                              kTokens))
      .check(whole_number(1, 1'000'000'000));
  verb.add_option("--set", arguments->set, "an option of the task or the environment; may be repeated")
      .type_name("SECTION.KEY=VALUE")
      .repeats();
  verb.footer(
      "Of a task, words in brackets are what is asked for after the word before them: the next word, or a label's "
      "number.\n"
      "A text without brackets is predicted word by word.");
  verb.callback([=, &action] {
    verb.refuse_extras();
    action = within_memory("lower --length", [=] {
      const Config config = generating(arguments->name, arguments->set);
      config.environment() ? show_environment(*config.environment(), *arguments) : show_task(config, *arguments);
      return 0;
    });
  });
}

}  // namespace lapse
