#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <iostream>

#include "lapse/cli/episode_options.h"
#include "lapse/cli/inspect_matrix.h"
#include "lapse/cli/verbs.h"
#include "lapse/core/error.h"
#include "lapse/core/file.h"
#include "lapse/core/process.h"
#include "lapse/core/progress.h"
#include "lapse/observe/alignment.h"
#include "lapse/observe/report.h"

namespace lapse {
namespace {

struct Arguments {
  ReadingOptions reading;
  std::string data, data_documents, compare, split, out = "report.html", title;
  MatrixArguments matrix;
  int64_t tokens = 2000, offset = 0;
  EpisodeArguments episodes{.episodes = 10};
};

/// What is read, of a text the part that was asked for, and how many tokens at most.
struct Part {
  std::unique_ptr<Source> source;
  int64_t tokens = 0;
  std::string split = {};
};

/// Where the part of a text ends that is read, and how many tokens of it are: of a document no more than fits a window.
struct End {
  int64_t end, read;
};
End end_of(const Tokens& all, const Arguments& arguments, int64_t unpredicted, int64_t window) {
  const int64_t offset = arguments.offset, tokens = arguments.tokens;
  if (all.documents().empty()) {
    const int64_t end = std::min(all.size(), offset + tokens + unpredicted);
    return {end, end - offset - unpredicted};
  }
  End found = {offset, 0};
  for (const auto& document : all.documents()) {
    const int64_t begin = std::max(document.begin, offset), fits = std::min(document.end - begin, window);
    const int64_t taken = std::min(fits, tokens - found.read);
    if (taken <= 0) continue;
    found = {taken < fits ? begin + taken : document.end, found.read + taken};
  }
  return found;
}

/// The part that was asked for; else all of a text that is given, or test.
std::string split_of(const Arguments& arguments, const std::string& data) {
  if (!arguments.split.empty()) return arguments.split;
  return data.empty() ? "test" : "all";
}

Part part_of(const Reader& reader, const Arguments& arguments, const std::string& data) {
  const std::string split = split_of(arguments, data);
  if (reader.task) {
    if (arguments.offset > 0)
      fail("the run's task, " + reader.config().task_name + ", is read from its start; leave out --offset");
    return {reader.source(data, split, {.kind = arguments.data_documents}), arguments.tokens, split};
  }
  const Tokens all = reader.text(data, split, {.kind = arguments.data_documents});
  // A stream's first token is predicted by nothing; a window's by BOS.
  const int64_t unpredicted = reader.config().data.in_windows() ? 0 : 1;
  if (all.size() - arguments.offset < 1 + unpredicted)
    fail(fmt::format("split '{}' of {} has {} tokens; {} is left to read{}, and a page needs {}", split,
                     data.empty() ? "the run's text" : data, all.size(),
                     std::max<int64_t>(all.size() - arguments.offset, 0),
                     arguments.offset > 0 ? fmt::format(" after --offset {}", arguments.offset) : "", 1 + unpredicted));
  const auto [end, read] = end_of(all, arguments, unpredicted, reader.config().train.block);
  Tokens part = all.slice(arguments.offset, end);
  return {std::make_unique<TextSource>(reader.config().data, reader.vocabulary(), split, std::move(part)), read, split};
}

/// What is said beside any page.
ReportOptions describe(const Arguments& arguments, const Reader& reader) {
  ReportOptions report;
  report.title = arguments.title.empty() ? fmt::format("What {} remembers", arguments.reading.run) : arguments.title;
  report.facts = {{"checkpoint", reader.checkpoint.path().string()}, {"method", reader.method->name()}};
  for (const auto& [field, value] : arguments.reading.of_method) report.facts.emplace_back(flag_of(field), value);
  report.configuration = reader.config().to_toml();
  return report;
}

/// A text as it was read.
struct ReadText {
  TextRecord record;
  Contents contents;
  ReportOptions::Facts facts;
};

ReadText read_text(const Reader& reader, Transformer& model, const Part& part) {
  const auto& source = part.source;
  const int64_t tokens = part.tokens;
  const auto blocks = source->evaluation(part.split, 1, reader.config().train.block, /*drop_partial=*/false);
  Progress progress("inspect", "token", tokens);
  ReadText read = {
      record_memory(model, *blocks, {.tokens = tokens, .progress = [&](int64_t done) { progress.update(done); }})};
  if (!read.record.stopped) progress.of(std::ssize(read.record.tokens));
  progress.finish();
  if (read.record.stopped) return read;
  if (std::ssize(read.record.tokens) < tokens)
    fmt::print(stderr, "lapse: note: split '{}' has {} tokens to read, not {}\n", part.split, read.record.tokens.size(),
               tokens);
  read.contents = contents_of(read.record, reader.vocabulary());
  read.facts = {{"tokens read", fmt::format("{}", read.record.tokens.size())}};
  const Score& score = read.record.score;
  if (score.scored > 0)
    read.facts.emplace_back("loss", fmt::format("{:.4f} nats", score.nats / static_cast<double>(score.scored)));
  for (const auto& figure : source->figures(score))
    read.facts.emplace_back(figure.name, fmt::format("{:.4f}", figure.value));
  return read;
}

/// What two texts have in common; where tokens are smaller than words, an edit is of whole characters and words.
Alignment aligned_by_words(const Reader& reader, const std::vector<int32_t>& a, const std::vector<int32_t>& b) {
  Alignment alignment = aligned(a, b);
  if (reader.vocabulary().unit().words) return alignment;
  const auto texts = [&](const std::vector<int32_t>& tokens) {
    std::vector<std::string> all;
    for (const int32_t token : tokens) all.push_back(reader.vocabulary().decode(token));
    return all;
  };
  const auto texts_a = texts(a), texts_b = texts(b);
  widen_edits(alignment, character_numbers(texts_a), character_numbers(texts_b));
  widen_edits(alignment, word_numbers(texts_a), word_numbers(texts_b));
  return alignment;
}

/// What writes a file of this name. Error where the name has the ending of something else.
auto writer_of(const std::string& out) {
  std::string ending = fs::path(out).extension().string();
  std::ranges::transform(ending, ending.begin(), [](unsigned char c) { return std::tolower(c); });
  if (ending != ".json" && ending != ".html" && ending != ".htm")
    fail(fmt::format("-o {}: a page's name ends in .html, and that of a file for `lapse plot` in .json", out));
  return ending == ".json" ? json_report : html_report;
}

std::string page_of_text(const Reader& reader, Transformer& model, const Arguments& arguments) {
  if (!arguments.compare.empty() && reader.task)
    fail("--compare is for runs that read a text, and this one has the task " + reader.task->name() + "; leave it out");
  const Part one = part_of(reader, arguments, arguments.data);  // both, before either is read
  const auto other_part = arguments.compare.empty() ? Part() : part_of(reader, arguments, arguments.compare);
  const ReadText first = read_text(reader, model, one);
  if (first.record.stopped) return "";
  ReportOptions report = describe(arguments, reader);
  auto& facts = report.facts;
  if (reader.task)
    facts.emplace_back("task", reader.task->name());
  else
    facts.emplace_back("text", !arguments.data.empty() ? arguments.data : "the run's own");
  facts.emplace_back("split", one.split);
  if (arguments.offset > 0) facts.emplace_back("offset", fmt::format("{} tokens", arguments.offset));
  facts.insert(facts.end(), first.facts.begin(), first.facts.end());
  const auto write = writer_of(arguments.out);
  if (arguments.compare.empty()) return write(first.record, first.contents, report, nullptr);
  const ReadText second = read_text(reader, model, other_part);
  if (second.record.stopped) return "";
  facts.emplace_back("compared with", arguments.compare);
  facts.insert(facts.end(), second.facts.begin(), second.facts.end());
  const Alignment alignment = aligned_by_words(reader, first.record.tokens, second.record.tokens);
  if (!alignment.whole) {
    const std::string why = fmt::format("more than {} edits: only beginnings and ends are compared", kMostEdits);
    facts.emplace_back("alignment", why);
    std::cerr << fmt::format("lapse: {}; lower --tokens\n", why);
  }
  const ComparedRecord other = {second.record, second.contents, alignment.partner};
  return write(first.record, first.contents, report, &other);
}

std::string page_of_episodes(const Reader& reader, Transformer& model, const Arguments& arguments) {
  const EpisodeArguments& asked = arguments.episodes;
  const Config config = elsewhere(reader.config(), asked.set);
  const EnvironmentOptions& environment = *config.environment();
  const auto most = static_cast<double>(asked.episodes) * static_cast<double>(environment.shape().most_steps);
  Progress progress("inspect", "step",
                    most < static_cast<double>(arguments.tokens) ? static_cast<int64_t>(most) : arguments.tokens);
  const auto record = record_episodes(model, environment,
                                      {.episodes = asked.episodes,
                                       .steps = arguments.tokens,
                                       .seed = static_cast<uint64_t>(asked.seed),
                                       .greedy = asked.greedy,
                                       .progress = [&](int64_t done) { progress.update(done); }});
  // Episodes may have been shorter than they can be.
  if (const int64_t steps = std::ssize(record.steps); !record.stopped) progress.of(steps), progress.update(steps);
  progress.finish();
  if (record.stopped) return "";
  const int64_t ended = std::ranges::count_if(record.steps, [](const AgentStep& step) { return step.result.end; });
  if (ended < asked.episodes)
    std::cerr << fmt::format(
        "lapse: note: the page ends after {} steps, with {} of {} episodes whole; a larger --tokens shows more\n",
        record.steps.size(), ended, asked.episodes);
  ReportOptions report = describe(arguments, reader);
  report.facts.insert(report.facts.end(), {{"environment", environment.name()},
                                           {"whole episodes", fmt::format("{} of {}", ended, asked.episodes)},
                                           {"seed", fmt::format("{}", asked.seed)},
                                           {"actions", asked.greedy ? "likeliest" : "drawn"},
                                           {"steps", fmt::format("{}", record.steps.size())}});
  for (const auto& setting : asked.set) report.facts.emplace_back("world", setting);
  return writer_of(arguments.out)(record, contents_of(record, environment), report, nullptr);
}

int write_matrix(const Command& verb, const Reader& reader, Transformer& model, const Arguments& arguments) {
  refuse_given(verb, {"--offset"},
               "is for the page, and --matrix reads from the beginning (for another place give --data a text that "
               "begins there)");
  refuse_given(verb, {"--compare", "--title"}, "is for the page, and --matrix writes none");
  for (const char* picture : {".png", ".svg", ".pdf", ".html"})
    if (fs::path(arguments.out).extension() == picture)
      fail(fmt::format("{}: --matrix writes JSON; name a .json file, which `lapse plot` draws", arguments.out));
  const MatrixReading reading = {.options = arguments.reading,
                                 .data = arguments.data,
                                 .data_documents = arguments.data_documents,
                                 .split = split_of(arguments, arguments.data),
                                 .tokens = verb.count("--tokens") > 0 ? arguments.tokens : 0};
  const std::string file = matrix_file(reader, model, arguments.matrix, reading);
  if (file.empty()) fail("interrupted; no file was written");
  write_file(arguments.out, file);
  std::cout << arguments.out << '\n';
  return 0;
}

int run(const Command& verb, Arguments arguments) {
  if (!arguments.matrix.what.empty() && verb.count("--out") == 0) arguments.out = "matrix.json";
  refuse_empty(verb, {{"--data", arguments.data}, {"--compare", arguments.compare}});
  refuse_empty(verb, {{"--matrix", arguments.matrix.what}}, "name what it is to show");
  refuse_empty(verb, {{"--data-documents", arguments.data_documents}}, "give lines, whole or markers");
  check_out(arguments.out);
  Reader reader = open_reader(arguments.reading);
  auto read = files_of_runs({arguments.reading.run});
  read.insert(read.end(), {arguments.data, arguments.compare});
  check_apart(arguments.out, "--out", read, reader.config().data);
  check_of_no_run(arguments.out, "--out");
  if (arguments.matrix.what.empty()) (void)writer_of(arguments.out);  // an error now rather than after the reading
  if (reader.config().model.encoder_layers > 0)
    fail(fmt::format("{}: `lapse inspect` does not read models with an encoder; `lapse eval` and `lapse generate` do",
                     arguments.reading.run));
  const bool acts = reader.config().environment() != nullptr;
  refuse_of_the_other(verb, acts, {"--data", "--data-documents", "--compare", "--split", "--offset"});
  const auto model = reader.model();
  reader.checkpoint.close();
  catch_interrupts();
  if (!arguments.matrix.what.empty()) return write_matrix(verb, reader, *model, arguments);
  refuse_given(verb, {"--documents", "--layer", "--min-fill"}, "goes with --matrix");
  const std::string page = acts ? page_of_episodes(reader, *model, arguments) : page_of_text(reader, *model, arguments);
  if (page.empty()) fail("interrupted; no page was written");
  write_file(arguments.out, page);
  std::cout << arguments.out << '\n';
  return 0;
}

}  // namespace

void add_inspect(const Command& program, Action& action) {
  const Command verb = program.add_verb(
      "inspect", "Show what a trained model remembers of a text, or of episodes, and for how long: one HTML page");
  auto arguments = std::make_shared<Arguments>();
  verb.add_option("run", arguments->reading.run, "folder of a run, or one of its checkpoints").required();
  verb.add_option("--data", arguments->data, "text to read, plain or gzip; default: the run's own text or task")
      .type_name("FILE");
  add_data_documents(verb, arguments->data_documents);
  verb.add_option("--compare", arguments->compare,
                  "another text, perhaps an edited one, to show beside the first: what is held longer or shorter in it")
      .type_name("FILE");
  verb.add_option("--split", arguments->split,
                  "which part of it, cut as in training; default: all of a text that is given, test of the run's own")
      .check(one_of({"train", "valid", "test", "all"}));
  verb.add_option(
          "--tokens", arguments->tokens,
          "read so many tokens; in an environment, at most so many steps; with --matrix the size of a block, by "
          "default that of training")
      .check(whole_number(1, 200000))
      .shows_default();
  verb.add_option("--offset", arguments->offset, "pass over so many tokens of the text first")
      .check(whole_number(0, int64_t{1} << 50));
  add_episodes(verb, arguments->episodes);
  add_matrix(verb, arguments->matrix);
  verb.add_option(
          "-o,--out", arguments->out,
          "the page to write; .json: what it shows, which `lapse plot` draws. With --matrix by default matrix.json")
      .type_name("FILE")
      .shows_default();
  verb.add_option("--title", arguments->title, "of the page");
  add_device(verb, arguments->reading.device);
  add_threads(verb, arguments->reading.threads);
  add_method_options(verb, arguments->reading);
  add_task_options(verb, arguments->reading);
  verb.footer(
      "The page opens from the disk and needs no network. It shades each token, or each step of an agent, by how\n"
      "long its row stayed in memory and by what the method tells of it, layer by layer.");
  verb.callback([=, &action] {
    verb.refuse_extras();
    action = within_memory("lower --tokens", [=] { return run(verb, *arguments); });
  });
}

}  // namespace lapse
