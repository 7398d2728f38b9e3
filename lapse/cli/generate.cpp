#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>

#include "lapse/cli/interactive.h"
#include "lapse/cli/prompt.h"
#include "lapse/cli/verbs.h"
#include "lapse/core/error.h"
#include "lapse/core/json.h"
#include "lapse/core/process.h"
#include "lapse/core/progress.h"
#include "lapse/core/safetensors.h"
#include "lapse/data/spans.h"
#include "lapse/read/generator.h"
#include "lapse/read/highlight.h"

namespace lapse {
namespace {

struct Arguments {
  ReadingOptions reading;
  std::string prompt = "\n", prompt_file, state, color = "auto";
  int64_t tokens = 400, seed = 1;
  SamplingOptions sampling{.temperature = 0.8};
  bool json = false, remembered = false, interactive = false;
};

bool use_colour(const std::string& choice) {
  if (choice != "auto") return choice == "always";
  return isatty(STDOUT_FILENO) && std::getenv("NO_COLOR") == nullptr;
}

/// How many tokens can follow a prompt of `prompt` tokens: in a model with windows, as many as fit, and one more that
/// need not be read. 0: without end.
int64_t tokens_to_write(const Command& verb, const Arguments& arguments, int64_t prompt, int64_t context) {
  if (context == 0) return arguments.tokens;
  if (prompt > context)
    fail(
        fmt::format("the prompt has {} tokens, the first of the window (BOS) among them, but this model reads windows "
                    "of {} in all; give a shorter one",
                    prompt, context));
  const int64_t room = context - prompt + 1;
  if (verb.count("--tokens") == 0) return std::min(arguments.tokens, room);
  if (arguments.tokens == 0 || arguments.tokens > room)
    fail(fmt::format("this model reads windows of {} tokens: give --tokens of at most {} for this prompt", context,
                     room));
  return arguments.tokens;
}

/// Of `count` tokens after the first `before`: in how many layers each is remembered. The last may not have been read.
std::vector<int32_t> remembered_of(const Generator& generator, int64_t before, int64_t count) {
  auto remembered = generator.remembered();
  remembered.erase(remembered.begin(), remembered.begin() + before);
  remembered.resize(count);
  return remembered;
}

/// `before`: tokens that the stream had read in earlier calls.
void print_json(const Arguments& arguments, const std::string& text, const std::vector<int32_t>& tokens,
                int64_t prompt_tokens, int64_t before, const Generator& generator, double seconds, bool complete) {
  Json json = {{"prompt", arguments.prompt},
               {"text", text},
               {"tokens", tokens},
               {"ms_per_token", 1000 * seconds / static_cast<double>(std::max<size_t>(1, tokens.size()))},
               {"prompt_tokens", prompt_tokens},
               {"tokens_seen", generator.seen()},
               {"memory_sizes", generator.memory_sizes()},
               {"memory_bytes", generator.memory_bytes()},
               {"peak_memory", peak_memory()},
               {"complete", complete}};
  if (arguments.remembered) json["remembered"] = remembered_of(generator, before, prompt_tokens + std::ssize(tokens));
  // A byte model may write what is not UTF-8; JSON cannot hold that.
  std::cout << to_text(json, 2) << '\n';
}

/// Of a model with an encoder: the gaps of the prompt are filled in.
int fill(const Command& verb, const Arguments& arguments, Transformer& model, const Vocabulary& vocabulary) {
  for (const char* flag : {"--interactive", "--remembered", "--state"})
    if (verb.count(flag) > 0)
      fail(fmt::format("{} is for models that go on from a text; this one fills in gaps", flag));
  Generator generator(model, arguments.sampling, static_cast<uint64_t>(arguments.seed));
  const auto source = encode_gaps(vocabulary, arguments.prompt);
  generator.read_source(source);
  generator.feed({vocabulary.bos()});
  catch_interrupts();
  const auto start = std::chrono::steady_clock::now();
  std::vector<int32_t> made;
  const auto ended = [&] { return !made.empty() && made.back() == vocabulary.eos(); };
  const auto has_room = [&] { return arguments.tokens == 0 || std::ssize(made) < arguments.tokens; };
  while (has_room() && !ended() && !interrupted()) made.push_back(generator.next());
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const auto spans = decode_spans(vocabulary, made, vocabulary.sentinels());
  const std::string text = fill_gaps(vocabulary, arguments.prompt, spans);
  if (arguments.json)
    print_json(arguments, text, made, std::ssize(source), /*before=*/0, generator, seconds, ended() || !has_room());
  else
    std::cout << text << '\n';
  if (has_room() && !ended()) fail(fmt::format("interrupted after {} tokens: the rest was not filled in", made.size()));
  if (text.find("<extra_id_") != std::string::npos)
    std::cerr << fmt::format(
        "lapse: some gaps stay open; {}\n",
        ended() ? "the model wrote nothing for them" : fmt::format("--tokens {} did not reach them", arguments.tokens));
  return 0;
}

/// What cannot be asked for together.
void check(const Command& verb, const Arguments& arguments) {
  if (verb.count("--prompt") > 0 && verb.count("--prompt-file") > 0)
    fail("--prompt and --prompt-file both give the prompt; leave one out");
  if (verb.count("--prompt-file") > 0 && arguments.prompt_file.empty()) fail("--prompt-file: the name is empty");
  if (verb.count("--state") > 0 && arguments.state.empty()) fail("--state: the name is empty");
  if (!arguments.interactive) return;
  if (arguments.json || arguments.remembered)
    fail(fmt::format("--interactive has no {}; its commands /memory and /text tell what is remembered",
                     arguments.json ? "--json" : "--remembered"));
  if (arguments.prompt == "-") fail("--interactive reads lines from standard input; give the prompt by --prompt-file");
}

/// The prompt's tokens. A text that begins with BOS begins with nothing else by itself; others with a line end; and a
/// stream that goes on with nothing.
std::vector<int32_t> prompt_tokens(const Vocabulary& vocabulary, Arguments& arguments, bool given, bool goes_on) {
  const std::string origin = arguments.prompt_file.empty() ? "--prompt" : arguments.prompt_file;
  if (goes_on && !given) return arguments.prompt.clear(), std::vector<int32_t>();
  if (goes_on) return encode_prompt(vocabulary, arguments.prompt, origin);
  if (!given && vocabulary.bos() >= 0) arguments.prompt.clear();
  std::vector<int32_t> prompt;
  if (given || vocabulary.bos() < 0) prompt = encode_prompt(vocabulary, arguments.prompt, origin);
  if (vocabulary.bos() >= 0) prompt.insert(prompt.begin(), vocabulary.bos());
  if (prompt.empty() && !given)
    fail("this model knows no line end, with which a text would begin; give --prompt, at least one of its tokens");
  if (prompt.empty()) fail(origin + " has no token; give at least one character or word");
  return prompt;
}

struct Written {
  std::vector<int32_t> tokens;  ///< and their text: kept only where either is asked for at the end,
  std::string text;             ///< so that a stream without end takes no memory
  int64_t count = 0;
  double seconds = 0;
};

Written write_on(Generator& generator, const Vocabulary& vocabulary, const Arguments& arguments, int32_t last,
                 int64_t tokens) {
  Written written;
  if (!arguments.json) std::cout << arguments.prompt << space_after(arguments.prompt, last, vocabulary);
  std::cout << std::flush;
  const auto start = std::chrono::steady_clock::now();
  for (int64_t i = 0; (tokens == 0 || i < tokens) && !interrupted(); ++i) {
    const int32_t token = generator.next();
    ++written.count;
    const std::string piece = vocabulary.decode(token);
    if (arguments.json || arguments.remembered) written.tokens.push_back(token), written.text += piece;
    if (!arguments.json) std::cout << piece << std::flush;
    if (!std::cout) break;  // the reader of a pipe has gone
  }
  written.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return written;
}

void show_remembered(const Generator& generator, const Vocabulary& vocabulary, const std::vector<int32_t>& tokens,
                     int64_t before, int32_t layers, bool colour) {
  std::vector<std::string> pieces;
  for (int32_t token : tokens) pieces.push_back(vocabulary.decode(token));
  const auto remembered = remembered_of(generator, before, std::ssize(pieces));
  const std::string shown = colour ? fmt::format("the darker, in the more of {} layers", layers)
                                   : fmt::format("in brackets, in one or more of {} layers", layers);
  std::cout << fmt::format("\n--- what is still remembered: {}; memory sizes of the layers: {} ---\n", shown,
                           fmt::join(generator.memory_sizes(), ", "))
            << highlight(pieces, remembered, layers, colour) << '\n';
}

/// The prompt, and what follows it. `keep` is called when all is read.
int write_text(const Command& verb, Arguments& arguments, const Vocabulary& vocabulary, const Transformer& model,
               Generator& generator, bool given, const std::function<void()>& keep) {
  const int64_t before = generator.seen();
  if (generator.full())
    fail(fmt::format("{}: the model's window of {} tokens is full; nothing can follow", arguments.state,
                     model.context()));
  std::vector<int32_t> tokens = prompt_tokens(vocabulary, arguments, given, before > 0);
  const int64_t wanted = tokens_to_write(verb, arguments, before + std::ssize(tokens), model.context());
  if (const int64_t read = read_tokens(generator, model, tokens); read < std::ssize(tokens))
    fail(fmt::format("interrupted after {} of the prompt's {} tokens; nothing is kept", read, tokens.size()));
  const Written written = write_on(generator, vocabulary, arguments, tokens.empty() ? -1 : tokens.back(), wanted);
  keep();
  if (!std::cout) return 0;
  if (arguments.json) {
    print_json(arguments, written.text, written.tokens, std::ssize(tokens), before, generator, written.seconds,
               written.count >= wanted);
  } else {
    std::cout << '\n';
    tokens.insert(tokens.end(), written.tokens.begin(), written.tokens.end());
    if (arguments.remembered)
      show_remembered(generator, vocabulary, tokens, before, static_cast<int32_t>(model.layers().size()),
                      use_colour(arguments.color));
  }
  // A stream that was kept goes on.
  if (written.count < wanted && arguments.state.empty())
    fail(fmt::format("interrupted after {} of {} tokens", written.count, wanted));
  return 0;
}

void load_stream(Generator& generator, const std::string& file, const std::string& described) {
  try {
    generator.load(file, described);
  } catch (const DamagedFile& error) {
    fail(fmt::format("{}; --state goes on from a stream that was kept before: name its file, or a new one",
                     error.what()));
  }
}

int run(const Command& verb, Arguments arguments) {
  check(verb, arguments);
  const bool given = verb.count("--prompt") + verb.count("--prompt-file") > 0;
  if (given) arguments.prompt = read_prompt(arguments.prompt, arguments.prompt_file);
  Reader reader = open_reader(arguments.reading);
  reader.require_text("`lapse generate`");
  const auto& vocabulary = reader.vocabulary();
  if (vocabulary.outputs() != vocabulary.size())
    fail(arguments.reading.run + ": the run's task, " + reader.config().task_name +
         ", asks for labels; there is no text to go on");
  const auto model = reader.model();
  const std::string described = arguments.state.empty() ? "" : reader.described();
  reader.checkpoint.close();
  if (model->reads_source()) return fill(verb, arguments, *model, vocabulary);
  Generator generator(*model, arguments.sampling, static_cast<uint64_t>(arguments.seed));
  const bool keeps = !arguments.state.empty();
  if (keeps || !arguments.interactive) catch_interrupts();
  std::optional<FileLock> lock;  // of the stream, until it is saved: what another process adds meanwhile would be lost
  if (keeps) lock.emplace(arguments.state), outlive_readers();
  if (keeps && is_there(arguments.state)) load_stream(generator, arguments.state, described);
  const auto keep = [&] {
    if (keeps) generator.save(arguments.state, described);
  };
  if (arguments.interactive) {
    talk(generator, *model, vocabulary,
         {.prompt = given ? arguments.prompt : "", .tokens = arguments.tokens, .colour = use_colour(arguments.color)});
    keep();
    return 0;
  }
  return write_text(verb, arguments, vocabulary, *model, generator, given, keep);
}

/// A process whose output nobody reads ends as SIGPIPE ends it, once the stream is kept.
int run_to_end(const Command& verb, const Arguments& arguments) {
  const int status = run(verb, arguments);
  std::cout.flush();
  end_with_readers();
  return status;
}

}  // namespace

void add_generate(const Command& program, Action& action) {
  const Command verb =
      program.add_verb("generate", "Write text with a trained model, one token at a time, endlessly if asked");
  auto arguments = std::make_shared<Arguments>();
  verb.add_option("run", arguments->reading.run, "folder of a run, or one of its checkpoints").required();
  verb.add_option("--prompt", arguments->prompt,
                  "text to continue; default: a line end, or nothing after BOS. '-': standard input, without its last "
                  "line end. Of a model with an "
                  "encoder the text whose gaps <extra_id_0>, <extra_id_1>, ... are filled in");
  verb.add_option("--prompt-file", arguments->prompt_file,
                  "the text to continue is in this file, plain or gzip; its last line end is left out")
      .type_name("FILE");
  verb.add_flag("--interactive", arguments->interactive,
                "go on from each line that you type, and remember what was said before; /help there says more");
  verb.add_option(
          "--state", arguments->state,
          "keep the stream in this file at the end, also after Ctrl-C, SIGTERM or SIGHUP, unless that comes within the "
          "prompt; and if the file is there, go on from it: with the same --seed as if there had been no stop")
      .type_name("FILE");
  verb.add_option("--tokens", arguments->tokens,
                  "how many to write; 0: until Ctrl-C. If not given, no more than a model with windows has room for")
      .check(whole_number(0, int64_t{1} << 50))
      .shows_default();
  verb.add_option("--temperature", arguments->sampling.temperature,
                  "below 1 safer, above 1 bolder; 0: the likeliest token")
      .check(number(0.0, 100.0))
      .shows_default();
  verb.add_option("--top-k", arguments->sampling.top_k, "draw from the K likeliest tokens; 0: from all")
      .check(whole_number(0, int64_t{1} << 40))
      .shows_default();
  verb.add_option("--top-p", arguments->sampling.top_p,
                  "draw from the likeliest tokens that together have this probability")
      .check(number(0.0, 1.0))
      .shows_default();
  verb.add_option("--seed", arguments->seed, "the same seed gives the same text")
      .check(whole_number(0, int64_t{1} << 53))
      .shows_default();
  verb.add_flag("--remembered", arguments->remembered,
                "afterwards, show the text with what the model still remembers highlighted");
  verb.add_option("--color", arguments->color, "of the highlighting")
      .check(one_of({"auto", "always", "never"}))
      .shows_default();
  add_precision(verb, arguments->reading.precision);
  add_device(verb, arguments->reading.device);
  add_threads(verb, arguments->reading.threads);
  verb.add_flag("--json", arguments->json, "print one JSON object at the end, with times and memory sizes");
  add_method_options(verb, arguments->reading);
  verb.callback([=, &action] {
    verb.refuse_extras();
    action = within_memory("lower --max-span or --budget, or give a shorter prompt",
                           [=] { return run_to_end(verb, *arguments); });
  });
}

}  // namespace lapse
