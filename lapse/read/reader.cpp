#include "lapse/read/reader.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <vector>

#include "lapse/core/config_json.h"
#include "lapse/core/error.h"
#include "lapse/forgetting/registry.h"
#include "lapse/tasks/registry.h"
#include "lapse/train/device.h"
#include "lapse/train/prediction.h"
#include "lapse/train/shares.h"
#include "lapse/train/threads.h"

namespace lapse {
namespace {

/// The entries of a table of methods or tasks that have a field for reading.
template <class Entry>
std::vector<std::string> that_have(const std::vector<Entry>& table, const std::string& name) {
  std::vector<std::string> names;
  for (const auto& entry : table)
    for (const auto& field : entry.options()->reading_fields())
      if (field.name == name) names.push_back(entry.name);
  return names;
}

/// `told` names whose fields they are, `kind` what the table holds.
template <class Entry>
void set_values(const Fields& fields, const ReadingOptions::Values& values, const std::vector<Entry>& table,
                const std::string& told, const std::string& kind) {
  for (const auto& [name, value] : values) {
    const auto field = std::ranges::find(fields, name, &Field::name);
    if (field == fields.end()) {
      const auto others = that_have(table, name);
      std::vector<std::string> own;
      for (const auto& known : fields) own.push_back(flag_of(known.name));
      fail(!others.empty() ? fmt::format("{} is no option of {}; the {} that have it: {}", flag_of(name), told, kind,
                                         fmt::join(others, ", "))
           : own.empty()
               ? fmt::format("{} is no option of {}, which has none", flag_of(name), told)
               : fmt::format("{} is no option of {}, which has: {}", flag_of(name), told, fmt::join(own, ", ")));
    }
    set_field(*field, value, flag_of(name));
  }
}

std::unique_ptr<TaskOptions> task_of(const Config& config, const ReadingOptions& options) {
  auto task = config.copy_task();
  set_values(task ? task->reading_fields() : Fields(), options.of_task, task_table(),
             task                   ? "the run's task, " + config.task_name
             : config.environment() ? "the run, which acts in an environment"
                                    : "the run, which reads a text",
             "tasks");
  return task;
}

/// The value of an option, a number where it is one.
Json as_number(const std::string& value) {
  Json number = Json::parse(value, nullptr, /*allow_exceptions=*/false);
  return number.is_number() ? number : Json(value);
}

}  // namespace

std::unique_ptr<MethodOptions> method_to_read_with(const Config& config, const ReadingOptions& options) {
  const std::string name = options.method.value_or(config.method_name);
  auto method = config.copy_method(name);
  if (name != config.method_name) method->adopt(config.method(), shape_of(config.model, config.train.block));
  set_values(method->reading_fields(), options.of_method, method_table(),
             options.method ? "--method " + name : "the run's method, " + name, "methods");
  return method;
}

std::unique_ptr<Transformer> Reader::model() const {
  auto model = checkpoint.model(*method);
  model->to(device);
  if (precision == "bf16") model->to_bfloat16();
  return model;
}

std::string Reader::described() const {
  Sections sections = {{method->name(), "", method->fields()}, {"reading", "", method->reading_fields()}};
  if (task)
    sections.push_back({task->name(), "", task->fields()}), sections.push_back({"task", "", task->reading_fields()});
  return fmt::format("checkpoint = {:08x}\nprecision = {}\n{}", checkpoint.file().checksum(), precision,
                     config_to_toml(sections));
}

std::string Reader::method_read(const ReadingOptions& options) const {
  std::string text = method->name();
  const Fields given = method->reading_fields(), own = method->fields();
  for (const auto& field : given) {
    const auto same = std::ranges::find(own, field.name, &Field::name);
    if (options.of_method.contains(field.name))
      text += fmt::format(", {} {}", field.name, field_to_toml(field));
    else if (same != own.end())
      text += fmt::format(", {} {}", field.name, field_to_toml(*same));
  }
  return text;
}

std::unique_ptr<Transformer> Reader::model(Transformer& weights) const {
  auto model = checkpoint.fresh_model(*method);
  model->share(weights);
  if (precision == "bf16") model->to_bfloat16();
  return model;
}

void Reader::require_text(const std::string& verb) const {
  if (config().environment())
    fail(fmt::format(
        "{}: the run acts in the environment \"{}\", and {} is for text; for agents there are `lapse eval`, "
        "`lapse play` and `lapse inspect`",
        checkpoint.path().string(), config().task_name, verb));
}

std::unique_ptr<Source> Reader::source(const std::string& data, const std::string& split,
                                       const DocumentOptions& documents) const {
  require_text("this");
  if (!task) return std::make_unique<TextSource>(config().data, vocabulary(), split, text(data, split, documents));
  if (documents.min_fill > 0) fail("--min-fill is for documents, and the run has the task " + config().task_name);
  for (const auto& [flag, given] : {std::pair("--data", &data), {"--data-documents", &documents.kind}})
    if (!given->empty())
      fail(fmt::format("the run's task, {}, generates what it reads; leave out {}", config().task_name, flag));
  auto source = task->open();
  if (source->vocabulary().to_json() != vocabulary().to_json())
    fail(checkpoint.path().string() + ": its vocabulary is not that of the task " + config().task_name);
  return source;
}

Tokens Reader::text(const std::string& data, const std::string& split, const DocumentOptions& documents) const {
  Tokens tokens = whole_text(data, split, documents.kind);
  if (documents.min_fill == 0) return tokens;
  constexpr double kRounding = 1e-9;  // 0.55 * 100 is a little above 55
  if (config().data.corrupts_spans())
    fail("--min-fill is for windows, and spans are cut out of stretches that reach across documents; leave it out");
  if (config().data.documents == "none") fail("--min-fill is for runs that read documents (data.documents)");
  tokens.keep_documents(
      std::llround(std::ceil(documents.min_fill * static_cast<double>(documents.window) - kRounding)));
  if (tokens.documents().empty())
    fail(fmt::format("--min-fill {}: no document of split '{}' fills so much of a window of {} tokens; give less",
                     documents.min_fill, split, documents.window));
  return tokens;
}

Tokens Reader::whole_text(const std::string& data, const std::string& split, const std::string& kind) const {
  require_text("this");
  if (!kind.empty() && data.empty()) fail("--data-documents is for a text that --data names; leave it out");
  if (!kind.empty() && config().data.documents == "none")
    fail("--data-documents is for runs that read documents (data.documents); leave it out");
  if (kind == "none") fail("--data-documents none: the run reads documents; whole takes a text as one");
  if (task) fail("the run has the task " + config().task_name + " and reads no text");
  DataConfig other = config().data;
  if (!kind.empty()) other.documents = kind;
  if (!data.empty()) return load_tokens(data, split, other, vocabulary());
  Tokens tokens = own_text(split);
  warn_of_another_text(split, tokens);
  return tokens;
}

Tokens Reader::own_text(const std::string& split) const {
  const DataConfig& own = config().data;
  if (!own.path.empty()) return load_tokens(own.path, split, own, vocabulary());
  const std::map<std::string, std::string> files = {
      {"train", own.train_path}, {"valid", own.valid_path}, {"test", own.test_path}};
  const auto file = files.find(split);
  if (file == files.end() || file->second.empty())
    fail("the run has no file for split '" + split + "'; name another, or give a text: --data FILE --split all");
  return load_tokens(file->second, "all", own, vocabulary());
}

void Reader::warn_of_another_text(const std::string& split, const Tokens& tokens) const {
  const std::string path = checkpoint.path().string();
  if (!feed.is_object() ||
      !is_another_text(JsonObject(feed, path), split, {tokens.checksum(), tokens.bytes_checksum()}))
    return;
  std::cerr << fmt::format(
      "lapse: warning: {}: the text's part '{}' is not what it was when the run was trained; was the file changed?\n",
      path, split);
}

Json to_json(const ReadingOptions& options) {
  Json json = {{"precision", options.precision}};
  for (const auto* given : {&options.of_method, &options.of_task})
    for (const auto& [name, value] : *given) json[name] = as_number(value);
  return json;
}

Json read_by(Config config, const ReadingOptions& options) {
  Json json;
  for (const Section& section : config.sections())
    if (section.name == "data" || section.name == config.task_name) json[section.name] = to_json(section.fields);
  for (const auto& [name, value] : options.of_task) json["task_options"][name] = as_number(value);
  return json;
}

Reader open_reader(const ReadingOptions& options, Group& group) {
  const at::Device device = find_device(options.device);
  Checkpoint checkpoint = open_together(group, options.run);
  auto method = method_to_read_with(checkpoint.config(), options);
  auto task = task_of(checkpoint.config(), options);
  use_threads(options.threads);
  const Json state = parse_json(checkpoint.state(), checkpoint.path().string() + ", its state");
  Json feed = state.is_object() ? state.value("streams", Json()) : Json();
  return {std::move(checkpoint), std::move(method), std::move(task), options.precision, device, std::move(feed)};
}

Reader reopened(const Reader& reader, const ReadingOptions& options) {
  const Config& config = reader.config();
  return {reader.checkpoint, method_to_read_with(config, options), task_of(config, options),
          options.precision, find_device(options.device),          reader.feed};
}

}  // namespace lapse
