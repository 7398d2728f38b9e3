#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iostream>
#include <optional>

#include "lapse/cli/prune_part.h"
#include "lapse/cli/prune_rounds.h"
#include "lapse/cli/verbs.h"
#include "lapse/core/error.h"
#include "lapse/core/json.h"
#include "lapse/core/process.h"
#include "lapse/core/progress.h"
#include "lapse/forgetting/budgets.h"
#include "lapse/forgetting/registry.h"
#include "lapse/read/prune.h"
#include "lapse/train/run_folder.h"
#include "lapse/train/run_lock.h"

namespace lapse {
namespace {

struct Arguments {
  ReadingOptions reading;
  PruneText text;
  std::string split = "train", measure = "test", standard, out;
  int64_t tokens = 16384, step = 8, context = 0;
  double threshold = -1, margin = 0.02;
  bool json = false;
};

std::vector<std::string> methods_with_budgets() {
  std::vector<std::string> names;
  for (const auto& entry : method_table())
    if (has_budgets(*entry.options())) names.push_back(entry.name);
  return names;
}

/// The loss of another run on the same part: what the pruned model may have.
double loss_of(const Arguments& arguments, const PrunePart& part, const Reader& ours) {
  const std::string& run = arguments.standard;
  const Reader other =
      open_reader({.run = run, .device = arguments.reading.device, .threads = arguments.reading.threads});
  other.require_text("--standard");
  if ((other.vocabulary().bos() < 0) != (ours.vocabulary().bos() < 0))
    fail(
        fmt::format("--standard {}: of the two runs one reads its text in windows and the other in streams; give one "
                    "that reads as {} does",
                    run, arguments.reading.run));
  if (other.vocabulary().to_json() != ours.vocabulary().to_json())
    fail(fmt::format("--standard {}: it has another vocabulary; give a run on the same text", run));
  const auto model = other.model();
  if (model->context() > 0 && model->context() < part.block)
    fail(fmt::format(
        "--standard {}: it reads windows of at most {} tokens, and {} of {}; give a run with windows as long", run,
        model->context(), arguments.reading.run, part.block));
  return part.read(*model, other).nats;
}

/// Where the rounds of the search are kept.
fs::path rounds_of(const Arguments& arguments, const fs::path& out) {
  return arguments.out.empty() ? prune_rounds_path(out.parent_path()) : fs::path(out).replace_extension(".json");
}

/// The search itself, each round saved.
std::vector<PruneRound> search(LayerwiseText& text, int64_t layers, PruneOptions options, RoundsFile& file,
                               bool quiet) {
  auto curve = file.earlier(layers);
  // Known only at its end: where the loss passes the threshold, or nothing is left to lower.
  Progress progress("prune", "round", layers * (options.context / options.step - 1),
                    std::max<int64_t>(static_cast<int64_t>(curve.size()) - 1, 0), quiet);
  options.after_round = [&](const std::vector<PruneRound>& rounds) {
    file.save(rounds);
    progress.update(static_cast<int64_t>(rounds.size()) - 1,
                    fmt::format("{} of {} rows, loss {:.4f} (threshold {:.4f})", rounds.back().total(),
                                rounds.front().total(), rounds.back().nats, options.threshold));
    if (interrupted()) throw Interrupted();
  };
  curve = search_budgets(text, layers, options, std::move(curve));
  progress.finish();
  return curve;
}

void print(const Json& result) {
  std::cout << fmt::format("budgets              {}\n", fmt::join(result["budgets"].get<std::vector<int64_t>>(), ", "))
            << fmt::format("memory               {} of {} rows: {:.1f} times less\n", result["total"].get<int64_t>(),
                           result["full"].get<int64_t>(), result["saved"].get<double>());
  for (const char* part : {"chosen_on", "measured_on"}) {
    const Json& at = result[part];
    const bool part_alone = part == std::string("chosen_on") && at["split"] == result["measured_on"]["split"];
    std::cout << fmt::format("{:<21}", (part_alone ? "loss, part of " : "loss, ") + at["split"].get<std::string>())
              << fmt::format("{:.4f} unpruned, {:.4f} pruned", at["loss_full"].get<double>(), at["loss"].get<double>());
    if (at.contains("loss_standard")) std::cout << fmt::format(", {:.4f} standard", at["loss_standard"].get<double>());
    std::cout << '\n';
  }
  if (const auto own = result.find("at_own_loss"); own != result.end())
    std::cout << fmt::format("at its own loss      {} of {} rows: {:.1f} times less; loss {:.4f}, {} {:.4f}\n",
                             (*own)["total"].get<int64_t>(), result["full"].get<int64_t>(),
                             (*own)["saved"].get<double>(), (*own)["chosen_on"].get<double>(),
                             result["measured_on"]["split"].get<std::string>(), (*own)["measured_on"].get<double>());
  else if (result["threshold"] != result["chosen_on"]["loss_full"])
    std::cout << fmt::format("at its own loss      not reached with {} rows a layer, where the search begins\n",
                             result["settings"]["context"].get<int64_t>());
  const auto budgets = result["budgets"].get<std::vector<int64_t>>();
  if (const int64_t step = result["settings"]["step"]; std::ranges::max(budgets) < 2 * step)
    std::cout << fmt::format(
        "                     no layer can be lowered by {} rows more; a smaller --step may save more\n", step);
  if (const Json& checkpoint = result["checkpoint"]; checkpoint.is_string())
    std::cout << fmt::format("checkpoint           {}\n", checkpoint.get<std::string>());
  else
    std::cout << fmt::format(
        "checkpoint           none is written: the loss to reach, {:.7g}, is not reached with {} rows a layer, where "
        "the search begins ({:.7g})\n",
        result["threshold"].get<double>(), result["settings"]["context"].get<int64_t>(),
        result["chosen_on"]["loss"].get<double>());
}

/// The most rows that a layer holds: of windows, which texts may not fill, a whole window.
int64_t most_rows(const EvaluationResult& full, const PrunePart& part, const Reader& reader) {
  int64_t most = 0;
  for (const auto& layer : full.layers) most = std::max(most, static_cast<int64_t>(layer.max));
  if (!reader.config().data.in_windows()) return most;
  const int64_t longest = reader.method->longest(shape_of(reader.config().model, part.block));
  return std::max(most, std::min(part.block, longest + 1));
}

/// Nothing that is read may be written over. Without --out the files have names of their own.
void check_written(const Command& verb, const Arguments& arguments, const fs::path& out, const DataConfig& data) {
  check_out(out);
  if (verb.count("--out") == 0) return;
  auto read = files_of_runs({arguments.reading.run, arguments.standard});
  std::erase_if(read, [&](const std::string& file) {  // but what this verb itself writes
    const fs::path folder = run_folder(file);
    return file != arguments.reading.run && (file == prune_rounds_path(folder) || file == pruned_path(folder));
  });
  read.push_back(arguments.text.data);
  for (const fs::path& each : {out, rounds_of(arguments, out)}) check_apart(each, "--out", read, data);
  if (out.extension() != ".safetensors")
    fail(fmt::format(
        "--out: a checkpoint's name ends in .safetensors, not as {}; the search keeps its rounds beside it, in a "
        "file that ends in .json",
        out.string()));
}

/// Error, before anything is read, for what cannot be searched.
void check(const Arguments& arguments, const Reader& reader) {
  reader.require_text("`lapse prune`");
  if (reader.task)
    fail(fmt::format("{}: `lapse prune` needs a run that reads a text, and this one has the task {}",
                     arguments.reading.run, reader.config().task_name));
  if (!has_budgets(*reader.method))
    fail(fmt::format("{}: its forgetting method, {}, has no budgets to find; methods that have them: {}",
                     arguments.reading.run, reader.method->name(), fmt::join(methods_with_budgets(), ", ")));
  if (!arguments.standard.empty() && arguments.threshold >= 0)
    fail("--standard and --threshold both set the loss to reach; give one");
  if (arguments.measure == arguments.split || arguments.measure == "all" || arguments.split == "all")
    std::cerr << fmt::format("lapse: note: --measure {} has the text on which budgets are chosen (--split {})\n",
                             arguments.measure, arguments.split);
}

/// Where the search begins, and where it is to end; `full`: what the model does with all rows, `most` in a layer.
PruneOptions options_of(const Arguments& arguments, const PrunePart& part, const Reader& reader,
                        const EvaluationResult& full, int64_t most) {
  PruneOptions options{.context = arguments.context, .step = arguments.step, .margin = arguments.margin};
  if (arguments.context > most)
    fail(fmt::format("--context {}: no layer holds more than {} rows here; give at most that, or leave it out",
                     arguments.context, most));
  if (arguments.context == 0) options.context = most;
  if (options.context < 2 * options.step)
    fail(fmt::format("{} at most {} rows; there is nothing to find in steps of {} (--step)",
                     arguments.context > 0 ? "the search begins with" : "layers hold", options.context, options.step));
  options.threshold = !arguments.standard.empty() ? loss_of(arguments, part, reader)
                      : arguments.threshold >= 0  ? arguments.threshold
                                                  : full.nats;
  return options;
}

/// What a search depends on.
Json settings_of(const Arguments& arguments, const PrunePart& part, const Reader& reader, const PruneOptions& options) {
  Json settings = {{"run", reader.checkpoint.path().filename().string()},
                   {"checkpoint", reader.checkpoint.file().checksum()},
                   {"split", arguments.split},
                   {"data", arguments.text.data}};
  if (!arguments.text.data_documents.empty()) settings["data_documents"] = arguments.text.data_documents;
  if (arguments.text.min_fill > 0) settings["min_fill"] = arguments.text.min_fill;
  settings.update({{"text", part.tokens.checksum()},
                   {"tokens", arguments.tokens},
                   {"streams", part.batch},
                   {"context", options.context},
                   {"step", options.step}});
  return settings;
}

double loss_with(Transformer& model, const std::vector<int64_t>& budgets, const PrunePart& part, const Reader& reader) {
  set_budgets(model, budgets);
  const double nats = part.read(model, reader).nats;
  set_budgets(model, {});
  return nats;
}

Json to_json(const PruneRound& round, int64_t all) {
  return {{"budgets", round.budgets},
          {"total", round.total()},
          {"saved", static_cast<double>(all) / static_cast<double>(round.total())}};
}

/// The losses of what was found, on the part where budgets were chosen, whose reading is `full`, and on the other.
/// `all`: the rows that all layers hold without budgets.
Json result_of(const Arguments& arguments, Transformer& model, const std::vector<PruneRound>& curve, int64_t all,
               const PruneOptions& options, const EvaluationResult& full, const PrunePart& other,
               const Reader& reader) {
  const PruneRound& chosen = chosen_round(curve, options.threshold);
  Json on = {
      {"split", arguments.split}, {"tokens", full.score.scored}, {"loss_full", full.nats}, {"loss", chosen.nats}};
  Json measured = {{"split", arguments.measure},
                   {"text", other.tokens.checksum()},
                   {"loss_full", loss_with(model, {}, other, reader)},
                   {"loss", loss_with(model, chosen.budgets, other, reader)}};
  if (!arguments.standard.empty()) {
    on["loss_standard"] = options.threshold;
    measured["loss_standard"] = loss_of(arguments, other, reader);
  }
  Json result = to_json(chosen, all);
  if (!arguments.standard.empty()) result["standard"] = arguments.standard;
  result.update({{"threshold", options.threshold}, {"full", all}, {"chosen_on", on}, {"measured_on", measured}});
  if (options.threshold == full.nats) return result;
  const PruneRound& own = chosen_round(curve, full.nats);  // what the model's own loss allows
  if (own.nats > full.nats) return result;                 // not even as many rows as the search begins with
  result["at_own_loss"] = to_json(own, all);
  result["at_own_loss"].update(
      {{"chosen_on", own.nats}, {"measured_on", loss_with(model, own.budgets, other, reader)}});
  return result;
}

int run(const Command& verb, const Arguments& arguments) {
  refuse_empty(verb, {{"--data", arguments.text.data}, {"--out", arguments.out}, {"--standard", arguments.standard}});
  refuse_empty(verb, {{"--data-documents", arguments.text.data_documents}}, "give lines, whole or markers");
  const Reader reader = open_reader(arguments.reading);
  check(arguments, reader);
  catch_interrupts();
  const auto model = reader.model();
  require_budgets(*model);
  set_budgets(*model, {});
  const PrunePart part(arguments.text, reader, "--split", arguments.split, arguments.tokens);
  const PrunePart other(arguments.text, reader, "--measure", arguments.measure, 0);
  other.open(reader);  // an error now rather than after the search
  const fs::path folder = run_folder(arguments.reading.run);
  const fs::path out = arguments.out.empty() ? pruned_path(folder) : fs::path(arguments.out);
  check_written(verb, arguments, out, reader.config().data);
  std::error_code ignored;
  std::optional<RunLock> lock;  // a run that cannot be written to may be read
  if (arguments.out.empty() || fs::equivalent(folder, fs::absolute(out).parent_path(), ignored)) lock.emplace(folder);

  EvaluationResult full = part.read(*model, reader);
  const auto layers = std::ssize(full.layers);
  const int64_t most = most_rows(full, part, reader);
  LayerwiseText text(*model, *part.open(reader), part.blocks);
  full.nats = text.loss(std::vector<int64_t>(layers, most));  // rounded as that of all rounds, to be compared with them
  const PruneOptions options = options_of(arguments, part, reader, full, most);
  RoundsFile file(rounds_of(arguments, out), out, settings_of(arguments, part, reader, options));
  const auto curve = search(text, layers, options, file, arguments.json);
  const PruneRound& chosen = chosen_round(curve, options.threshold);
  const bool reached = chosen.nats <= options.threshold;
  file.keep_checkpoint(reached);
  if (reached) {
    Config pruned_config = reader.config();
    budgets_of(pruned_config.method()).budgets() = chosen.budgets;
    reader.checkpoint.save_as(out, pruned_config);
  }

  Json found = result_of(arguments, *model, curve, layers * most, options, full, other, reader);
  found["checkpoint"] = reached ? Json(out.string()) : Json();
  const Json result = file.save(curve, found);
  if (arguments.json)
    std::cout << to_text(result, 1) << '\n';
  else
    print(result);
  return 0;
}

}  // namespace

void add_prune(const Command& program, Action& action) {
  const Command verb =
      program.add_verb("prune", "Find how few rows each layer needs for the same loss, as a checkpoint with budgets");
  auto arguments = std::make_shared<Arguments>();
  verb.add_option("run", arguments->reading.run, "folder of a run, or one of its checkpoints").required();
  verb.add_option("--data", arguments->text.data, "text to use, plain or gzip; default: the run's own")
      .type_name("FILE");
  const auto splits = one_of({"train", "valid", "test", "all"});
  verb.add_option("--split", arguments->split, "where budgets are chosen").check(splits).shows_default();
  verb.add_option("--tokens", arguments->tokens, "so many tokens of it")
      .check(whole_number(1, int64_t{1} << 40))
      .shows_default();
  verb.add_option("--measure", arguments->measure,
                  "where the result is measured: all of it, except a last incomplete block")
      .check(splits)
      .shows_default();
  verb.add_option("--standard", arguments->standard,
                  "another run on the same text, say with standard attention, whose loss is to be reached")
      .type_name("RUN");
  verb.add_option("--threshold", arguments->threshold,
                  "the loss to reach, in nats per token; default: the model's own without budgets")
      .check(number(0.0, 1e9));
  verb.add_option("--margin", arguments->margin, "search on until the loss is so many nats above that")
      .check(number(0.0, 1e9))
      .shows_default();
  verb.add_option("--step", arguments->step, "a round lowers one layer by so many rows; none goes below it")
      .check(whole_number(1, int64_t{1} << 24))
      .shows_default();
  verb.add_option("--context", arguments->context,
                  "what every layer holds at first; default: the most that it holds on the chosen part")
      .check(whole_number(1, int64_t{1} << 24));
  verb.add_option("-o,--out", arguments->out,
                  "the checkpoint to write; default: pruned.safetensors in the run's folder")
      .type_name("FILE");
  add_data_documents(verb, arguments->text.data_documents);
  add_min_fill(verb, arguments->text.min_fill);
  add_device(verb, arguments->reading.device);
  add_threads(verb, arguments->reading.threads);
  verb.add_flag("--json", arguments->json, "print one JSON object");
  verb.footer(
      "Each round lowers the layer that costs least. Rounds are kept in the run's prune.json, or with --out FILE in a\n"
      "file of FILE's name with .json: a search that was interrupted goes on. `lapse eval RUN/pruned.safetensors` "
      "reads\n"
      "the result, `lapse plot RUN/prune.json` draws it.");
  verb.callback([=, &action] {
    verb.refuse_extras();
    action = within_memory("lower --tokens", [=] {
      try {
        return run(verb, *arguments);
      } catch (const Interrupted&) {
        fail("interrupted; the same command goes on from the last whole round");
      }
    });
  });
}

}  // namespace lapse
