// `lapse import` and `lapse export`: checkpoints of other programs.
#include <fmt/format.h>

#include <algorithm>
#include <iostream>

#include "lapse/cli/verbs.h"
#include "lapse/core/error.h"
#include "lapse/interop/t5.h"
#include "lapse/train/run_folder.h"
#include "lapse/train/trainer.h"

namespace lapse {
namespace {

struct Arguments {
  std::string from, config, data, out;
  std::vector<std::string> set;
};

// In a run's folder: of the checkpoint that it was made of, the "config" and the "types" of its tensors.
constexpr const char* kTheirs = "t5.json";

/// How the configuration's vocabulary becomes as large as the checkpoint's.
std::string advice(const DataConfig& data, int64_t theirs, int64_t ours) {
  const int64_t more = theirs - ours;
  if (data.padded_vocabulary > 0) return fmt::format("set data.padded_vocabulary = {}", theirs);
  if (data.sentinels + more <= 0) return "it is another vocabulary";
  return fmt::format("set data.sentinels = {} if its <extra_id_0> is token {}", data.sentinels + more, theirs - 1) +
         (more > 0 ? fmt::format(", or data.padded_vocabulary = {} if its last {} are unused", theirs, more) : "");
}

int import_run(const Command& verb, const Arguments& arguments) {
  refuse_empty(verb, {{"--data", arguments.data}});
  const fs::path folder = arguments.from;
  const std::string theirs = read_file(folder / "config.json");
  const T5Config t5 = read_t5_config(theirs, (folder / "config.json").string());
  const SafetensorsFile weights(t5_weights(folder));
  Config config;
  read_config(config.sections(), arguments.config);
  for (const auto& assignment : arguments.set) {
    if (assignment.starts_with("model."))
      fail(fmt::format("--set {}: the model is the checkpoint's; leave it out", assignment));
    set_config(config.sections(), assignment);
  }
  use_text(config.data, arguments.data);
  if (!config.train.from.empty())
    fail(fmt::format("train.from = \"{}\": the weights are the checkpoint's; leave it out", config.train.from));
  config.model = t5.model;
  require_sizes(weights, t5);
  begin_run(config, arguments.out, [&](Transformer& model) {
    const int64_t ours = model.parameters().front().second->size(0);
    if (ours != t5.vocabulary)
      fail(fmt::format("{}: this T5 has {} tokens, and the configuration's vocabulary {}; {}", arguments.from,
                       t5.vocabulary, ours, advice(config.data, t5.vocabulary, ours)));
    load_t5(model, weights);
    const Json kept = {{"config", parse_json(theirs, "config.json")}, {"types", t5_types(weights)}};
    write_file(fs::path(arguments.out) / kTheirs, kept.dump(1) + "\n");
    std::cout << fmt::format("{} parameters; run in {}\n", model.parameter_count(), arguments.out);
  });
  return 0;
}

/// What the run in this folder was made of; {} if it is no imported one.
Json origin_of(const fs::path& folder) {
  const fs::path file = folder / kTheirs;
  if (!is_file(file)) return Json::object();
  Json known = parse_json(read_file(file), file.string());
  const bool right = known.is_object() && known.contains("types") && known["types"].is_object() &&
                     std::ranges::all_of(known["types"], [](const Json& type) { return type.is_string(); });
  if (!right)
    fail(
        fmt::format("{}: it does not say the types of tensors as `lapse import` wrote them; without the file all are "
                    "written as float32",
                    file.string()));
  return known;
}

int export_run(const Arguments& arguments) {
  const fs::path folder = arguments.out;
  for (const char* file : {kT5Config, kT5Weights, kT5Pieces})
    if (is_there(folder / file)) fail(fmt::format("--out: {} has a {}; give another", arguments.out, file));
  const Checkpoint checkpoint = Checkpoint::open(arguments.from);
  if (checkpoint.config().model.encoder_layers == 0)
    fail(fmt::format("{}: only models with an encoder can be written as a T5{}", arguments.from,
                     checkpoint.config().environment() ? ", and this run acts in an environment"
                                                       : "; in Python lapse.load reads the others"));
  const auto model = checkpoint.model();
  const Json known = origin_of(run_folder(arguments.from));
  const Vocabulary& vocabulary = checkpoint.vocabulary();
  // Pieces of another unit have other ids than in transformers' tokenizers.
  const std::string pieces = vocabulary.unit().normalised ? vocabulary.pieces_model() : "";
  write_t5(*model, t5_config_json({vocabulary.size(), checkpoint.config().model}, known.value("config", Json())),
           known.value("types", Json::object()), pieces, folder);
  std::cout << folder.string() << '\n';
  return 0;
}

}  // namespace

void add_import(const Command& program, Action& action) {
  const Command verb = program.add_verb("import", "Make a run of a T5 checkpoint of Hugging Face's transformers");
  auto arguments = std::make_shared<Arguments>();
  verb.add_option("folder", arguments->from, "has config.json and model.safetensors").required();
  verb.add_option("--config", arguments->config,
                  "a TOML file as for `lapse train`: text, vocabulary, forgetting method of the decoder; its section "
                  "[model] is replaced by what the checkpoint has")
      .required()
      .type_name("CONFIG.toml");
  verb.add_option("--data", arguments->data, "the text to read, in place of the configuration's: data.path=FILE")
      .type_name("FILE");
  verb.add_option("--set", arguments->set, "a value over the file's; may be repeated: of one key the last counts")
      .type_name("SECTION.KEY=VALUE")
      .repeats();
  verb.add_option("--out", arguments->out, "folder of the new run").required().type_name("RUN");
  verb.footer(
      "The run can be read as it is, trained by `lapse train RUN/config.toml --out RUN --resume`, or be another run's\n"
      "train.from. Ids are the configuration's: 0 padding, 1 end, the tokens of data.unit, and data.sentinels. For\n"
      "published weights: --set data.unit=t5 --set data.tokenizer=FOLDER/spiece.model --set "
      "data.padded_vocabulary=32128");
  verb.callback([=, &action] {
    verb.refuse_extras();
    action = within_memory("end other programs", [=] { return import_run(verb, *arguments); });
  });
}

void add_export(const Command& program, Action& action) {
  const Command verb =
      program.add_verb("export", "Write a run's weights as a T5 checkpoint of Hugging Face's transformers");
  auto arguments = std::make_shared<Arguments>();
  verb.add_option("run", arguments->from, "folder of a run, or one of its checkpoints").required();
  verb.add_option("--out", arguments->out,
                  "folder for config.json, model.safetensors and, of data.unit = t5, spiece.model")
      .required()
      .type_name("FOLDER");
  verb.footer("The decoder's forgetting is no part of it: transformers reads the weights with plain attention.");
  verb.callback([=, &action] {
    verb.refuse_extras();
    action = within_memory("end other programs", [=] { return export_run(*arguments); });
  });
}

}  // namespace lapse
