#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iostream>

#include "lapse/cli/eval_choices.h"
#include "lapse/cli/eval_episodes.h"
#include "lapse/cli/memory_sizes.h"
#include "lapse/cli/token_report.h"
#include "lapse/cli/verbs.h"
#include "lapse/core/error.h"
#include "lapse/core/json.h"
#include "lapse/core/process.h"
#include "lapse/core/progress.h"
#include "lapse/data/questions.h"
#include "lapse/train/evaluate.h"
#include "lapse/train/shares.h"

namespace lapse {
namespace {

struct Arguments {
  ReadingOptions reading;
  std::string data, data_documents, split = "test", losses, against;
  int64_t streams = 0, block = 0;
  double min_fill = 0;
  EpisodeArguments episodes;
  ChoicesArguments choices;
  bool json = false;
};

/// Another reading of the same text, which --against compares with.
struct Other {
  Reader reader;
  std::unique_ptr<Transformer> model;
  Evaluator evaluator;
};

/// The run as it was trained: options of the method are for the first reading alone.
std::unique_ptr<Other> other_reading(const Arguments& arguments, const Reader& first, int64_t block) {
  if (arguments.against.empty()) return nullptr;
  Reader reader =
      open_reader({.run = arguments.against, .device = arguments.reading.device, .threads = arguments.reading.threads});
  reader.require_text("--against");
  if (reader.config().data.in_windows() != first.config().data.in_windows())
    fail(fmt::format("--against {}: one of the two runs reads windows that begin with BOS, and the other streams",
                     arguments.against));
  if (reader.vocabulary().to_json() != first.vocabulary().to_json())
    fail(fmt::format("--against {}: its vocabulary is not that of {}; give a run that was trained with the same one",
                     arguments.against, arguments.reading.run));
  auto model = reader.model();
  if (model->context() > 0 && model->context() < block)
    fail(fmt::format("--against {}: it reads windows of at most {} tokens, not of {}; give --block {}",
                     arguments.against, model->context(), block, model->context()));
  reader.checkpoint.close();
  Transformer& read = *model;
  return std::unique_ptr<Other>(new Other{std::move(reader), std::move(model), Evaluator(read)});
}

/// Token by token, if that was asked for.
std::unique_ptr<TokenReport> token_report(const Arguments& arguments, const Reader& reader, const Source& source) {
  if (arguments.losses.empty() && arguments.against.empty()) return nullptr;
  const auto* text = dynamic_cast<const TextSource*>(&source);
  if (!text)
    fail(fmt::format("{} is for runs that read a text, and this one has the task {}; leave it out",
                     arguments.losses.empty() ? "--against" : "--losses", reader.config().task_name));
  return std::make_unique<TokenReport>(text->tokens(arguments.split), reader.vocabulary(), arguments.losses);
}

Json to_json(const Reader& reader, const EvaluationResult& result, const std::vector<Figure>& figures) {
  Json json = {{"run", reader.checkpoint.path().string()}, {"method", reader.method->name()}, {"loss", result.nats}};
  for (const auto& figure : figures) json[figure.tag] = figure.value;
  if (result.score.answers > 0 || reader.config().task() != nullptr)  // a small set may ask for none
    json["scored"] = result.score.scored, json["answers"] = result.score.answers;
  json.update(memory_of(result.layers));
  return json;
}

/// How the run was read, as far as this differs from one reading to another.
Json options_of(const Arguments& arguments, int64_t block) {
  Json options = to_json(arguments.reading);
  options["block"] = block;
  if (arguments.min_fill > 0) options["min_fill"] = arguments.min_fill;
  if (!arguments.data.empty()) options["data"] = arguments.data;
  if (!arguments.data_documents.empty()) options["data_documents"] = arguments.data_documents;
  return options;
}

/// Of the column of names: wider than usual for a long one.
size_t width_of(const std::vector<Figure>& figures) {
  size_t width = 20;
  for (const auto& figure : figures) width = std::max(width, figure.name.size() + 1);
  return width;
}

void print(const std::vector<Figure>& figures) {
  for (const auto& figure : figures)
    std::cout << fmt::format("{:<{}}{:.4f}\n", figure.name, width_of(figures), figure.value);
}

/// `read_with`: how the method read, where that was asked for.
void print(const Json& result, const std::vector<Figure>& figures, const std::string& read_with) {
  const auto line = [&](const char* name, const std::string& value) {
    std::cout << fmt::format("{:<{}}{}\n", name, width_of(figures), value);
  };
  print(figures);
  if (!read_with.empty()) line("read with", read_with);
  if (const Json& options = result["options"]; options.contains("data"))
    line("text", result["split"] == "all"
                     ? "all of " + options["data"].get<std::string>()
                     : fmt::format("part {} of {}; --split all reads all of it", result["split"].get<std::string>(),
                                   options["data"].get<std::string>()));
  if (result.contains("scored")) line("loss", fmt::format("{:.4g}", result["loss"].get<double>()));
  for (const char* count : {"scored", "answers", "documents", "tokens"})
    if (result.contains(count)) line(count, std::to_string(result[count].get<int64_t>()));
  line("tokens/s", fmt::format("{:.0f}", result["tokens_per_second"].get<double>()));
  line("peak memory", byte_size(result["peak_memory"].get<double>()));
  std::cout << '\n' << table_of_memory(result);
}

void print_comparison(const Json& result, const std::vector<Figure>& figures) {
  std::cout << fmt::format("\nagainst {}\n", result["against"]["run"].get<std::string>());
  print(figures);
  std::cout << fmt::format("{:<{}}{:+.4f} nats per token\n\n{}", "difference", width_of(figures),
                           result["mean_difference"].get<double>(), table_of(result["differences"]));
}

std::unique_ptr<EvaluationBlocks> blocks_of(Source& source, const Arguments& arguments, int64_t streams,
                                            int64_t block) {
  try {
    return source.evaluation(arguments.split, streams, block, /*drop_partial=*/false);
  } catch (const Error& error) {
    const bool part = !arguments.data.empty() && arguments.split != "all";
    fail(fmt::format("{}split '{}'{}: {}{}", arguments.streams == 0 ? "" : fmt::format("--streams {}, ", streams),
                     arguments.split, arguments.data.empty() ? "" : " of " + arguments.data, error.what(),
                     part ? "; --split all reads the whole file" : ""));
  }
}

/// How a text or a task is read.
struct Shape {
  int64_t streams, block;
};

EvaluationResult read_blocks(Transformer& model, EvaluationBlocks& blocks, const Source& source, Other* other,
                             TokenReport* report, bool quiet) {
  Group& group = join_group(kPatience);
  EvaluationOptions options{.parts = group.size(), .group = group};
  Progress progress("eval", "block", 0, 0, quiet || !group.first());
  options.progress = [&](int64_t done, int64_t total, const Score& score) {
    std::vector<std::string> said;  // of several processes none knows the figures of all
    if (group.size() == 1)
      for (const auto& figure : source.figures(score))
        said.push_back(fmt::format("{:.4f} {}", figure.value, figure.tag));
    progress.of(total);
    progress.update(done, fmt::format("{}", fmt::join(said, "  ")));
  };
  if (report)
    options.each = [&](const TokenBlock& read, const TokenLosses& losses) {
      TokenLosses others;
      if (other) other->evaluator.read(read, &others);
      report->add(read, losses, other ? &others : nullptr);
    };
  const auto result = evaluate(model, blocks, options);
  progress.finish();
  return result;
}

Json result_of(const Reader& reader, const Arguments& arguments, const Source& source, const Shape& shape,
               const EvaluationResult& result) {
  Json json = {
      {"run", ""}, {"method", ""}, {"split", arguments.split}, {"streams", shape.streams}, {"tokens", result.tokens}};
  if (const auto* text = dynamic_cast<const TextSource*>(&source)) {
    const Tokens& tokens = text->tokens(arguments.split);
    json["text"] = fmt::format("{:08x}", tokens.checksum());
    json["unit"] = reader.vocabulary().unit().name;
    if (!tokens.documents().empty()) json["documents"] = tokens.documents().size();
  } else {
    json["task"] = reader.config().task_name;
  }
  json.update(to_json(reader, result, source.figures(result.score)));
  json.update({{"seconds", result.seconds},
               {"tokens_per_second", static_cast<double>(result.tokens) / result.seconds},
               {"peak_memory", peak_memory()},
               {"complete", !result.stopped},
               {"options", options_of(arguments, shape.block)},
               {"config", read_by(reader.config(), arguments.reading)}});
  return json;
}

int eval_source(Reader& reader, const Arguments& arguments) {
  const TrainConfig& train = reader.config().train;
  const ReadingOptions& reading = arguments.reading;
  const int64_t block = arguments.block > 0 ? arguments.block : train.block;
  const auto source =
      reader.source(arguments.data, arguments.split, {arguments.min_fill, block, arguments.data_documents});
  const auto model = reader.model();
  const int64_t streams =
      arguments.streams > 0 ? arguments.streams : source->streams(arguments.split, train.block, train.evaluated());
  Group& group = join_group(kPatience);
  if (!group.alone())
    require_agreement(group, fmt::format("{}split = {}\ntext = {:08x}\nstreams = {}\nblock = {}\n", reader.described(),
                                         arguments.split, source->checksum(arguments.split), streams, block));
  reader.checkpoint.close();
  const auto blocks = blocks_of(*source, arguments, streams, block);
  const auto other = other_reading(arguments, reader, block);
  const bool by_token = !arguments.losses.empty() || !arguments.against.empty();
  if (by_token && !group.alone()) fail("--losses and --against read in one process; start this one without torchrun");
  const auto report = token_report(arguments, reader, *source);
  catch_interrupts();
  const auto result = read_blocks(*model, *blocks, *source, other.get(), report.get(), arguments.json);
  if (report && !result.stopped) report->close();
  Json json = result_of(reader, arguments, *source, {streams, block}, result);
  std::vector<Figure> other_figures;
  if (other) {
    const auto compared = other->evaluator.finish();
    other_figures = source->figures(compared.score);
    json["against"] = to_json(other->reader, compared, other_figures);
    json["mean_difference"] = report->mean_difference();
    json["differences"] = report->largest_differences();
  }
  if (!group.first()) return 0;
  if (arguments.json)
    std::cout << to_text(json, 2) << '\n';
  else
    print(json, source->figures(result.score),
          reading.method || !reading.of_method.empty() ? reader.method_read(reading) : "");
  if (!arguments.json && other) print_comparison(json, other_figures);
  if (result.stopped)
    fail("interrupted: these are the numbers of the part that was read" +
         (arguments.losses.empty() ? "" : "; " + arguments.losses + " was not written"));
  return 0;
}

int run(const Command& verb, const Arguments& arguments) {
  refuse_empty(verb, {{"--data", arguments.data},
                      {"--losses", arguments.losses},
                      {"--against", arguments.against},
                      {"--choices", arguments.choices.questions},
                      {"--labels", arguments.choices.labels}});
  refuse_empty(verb, {{"--data-documents", arguments.data_documents}}, "give lines, whole or markers");
  if (!arguments.losses.empty()) check_out(arguments.losses, "--losses");
  Reader reader = open_reader(arguments.reading, join_group(kPatience));
  if (!arguments.losses.empty()) {
    auto read = files_of_runs({arguments.reading.run, arguments.against});
    read.push_back(arguments.data);
    check_apart(arguments.losses, "--losses", read, reader.config().data);
    check_of_no_run(arguments.losses, "--losses");
  }
  const bool acts = reader.config().environment() != nullptr;
  refuse_of_the_other(
      verb, acts,
      {"--data", "--data-documents", "--split", "--block", "--min-fill", "--losses", "--against", "--choices"});
  if (acts) return eval_episodes(reader, arguments.reading, arguments.episodes, arguments.streams, arguments.json);
  if (arguments.choices.questions.empty()) return eval_source(reader, arguments);
  refuse_given(verb,
               {"--data", "--data-documents", "--split", "--streams", "--block", "--min-fill", "--losses", "--against"},
               "is for reading a text, not for --choices");
  if (!join_group(kPatience).alone()) fail("--choices reads in one process; start this one without torchrun");
  return eval_choices(reader, arguments.reading, arguments.choices, arguments.json);
}

}  // namespace

void add_eval(const Command& program, Action& action) {
  const Command verb = program.add_verb(
      "eval", "Read a text or a task, or act in an environment, with a trained model: how well, memory sizes, speed");
  auto arguments = std::make_shared<Arguments>();
  verb.add_option("run", arguments->reading.run, "folder of a run, or one of its checkpoints").required();
  verb.add_option("--data", arguments->data, "text to read, plain or gzip; default: the run's own text or task")
      .type_name("FILE");
  verb.add_option("--split", arguments->split,
                  "which part of it, cut as in training, also of --data; all: the whole text")
      .check(one_of({"train", "valid", "test", "all"}))
      .shows_default();
  verb.add_option(
          "--streams", arguments->streams,
          "read so many streams or windows, or act in so many environments, at a time; of tasks whose streams have no "
          "end (long_copy, instruction) another number is another test set; default: as in validation")
      .check(whole_number(1, int64_t{1} << 20));
  verb.add_option(
          "--block", arguments->block,
          "timesteps read at once. Windows and documents: their length; span corruption: the text of a source; "
          "streams: the speed alone depends on it; a task's sequences: it has no effect. Default: as in training")
      .check(whole_number(1, int64_t{1} << 20));
  add_data_documents(verb, arguments->data_documents);
  add_min_fill(verb, arguments->min_fill);
  verb.add_option("--losses", arguments->losses,
                  "write the loss of each token of the text, and the memory that predicted it, as JSON lines")
      .type_name("FILE");
  verb.add_option("--against", arguments->against,
                  "read the same text with this run too, and list the tokens whose losses differ most")
      .type_name("RUN2");
  add_episodes(verb, arguments->episodes);
  add_choices(verb, arguments->choices);
  add_precision(verb, arguments->reading.precision);
  add_device(verb, arguments->reading.device);
  add_threads(verb, arguments->reading.threads);
  verb.add_flag("--json", arguments->json, "print one JSON object");
  add_method_options(verb, arguments->reading);
  add_task_options(verb, arguments->reading);
  verb.footer(
      "Printed for each layer: memory, the rows that a query reads; and what the method reports of the rows that a\n"
      "block makes, at the end of the block. A span stays the same. Masking grows as more tokens are read, and so is\n"
      "larger with a larger --block. Methods that choose token by token which rows to drop report nothing. With a\n"
      "budget, only rows that are still held are reported.\n\n"
      "--against RUN2: RUN2 is read as it was trained; options of the forgetting method and --precision are for RUN\n"
      "alone. RUN2 may be RUN itself: `lapse eval RUN --max-span 128 --against RUN` shows what the longer spans were\n"
      "for. Lines of --losses are in the order of reading; with --streams 1 that is the order of the text.\n"
      "In an environment each mean has its 95 % interval: of shares of successes Wilson's, of other means the normal\n"
      "approximation, 1.96 standard errors to each side, which is too narrow for few episodes.\n"
      "--choices reads these files, each question after empty memory:\n" +
      question_forms());
  verb.callback([=, &action] {
    verb.refuse_extras();
    action = within_memory("lower --streams, or --block of streams", [=] { return run(verb, *arguments); });
  });
}

}  // namespace lapse
